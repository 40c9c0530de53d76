//! `emer-reset`: bridges, ports and interfaces stay, with a configuration that lets them forward by themselves.

use ovsdb::value::{Atom, Datum};

use super::Stop;

use super::context::Context;
use super::fake::real_bridges;
use super::options::Invocation;

/// Columns of a bridge that become empty.
const BRIDGE: [&str; 7] = ["controller", "fail_mode", "mirrors", "netflow", "sflow", "ipfix", "flood_vlans"];
/// Tables whose records end.
const TABLES: [&str; 7] = ["Mirror", "Controller", "Manager", "NetFlow", "SSL", "sFlow", "IPFIX"];
/// The setting of a bridge that stays: its address, which others may know.
const KEPT: &str = "hwaddr";

pub(crate) fn emer_reset(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    let root = ctx.root()?;
    for column in ["manager_options", "ssl"] {
        ctx.work.set_named(root, column, Datum::empty_set())?;
    }
    for bridge in real_bridges(ctx)? {
        for column in BRIDGE {
            ctx.work.set_named(bridge, column, Datum::empty_set())?;
        }
        let settings = ctx.work.named(bridge, "other_config")?;
        let kept: Vec<(Atom, Atom)> =
            settings.pairs().iter().filter(|(key, _)| key.as_str() == Some(KEPT)).cloned().collect();
        ctx.work.set_named(bridge, "other_config", Datum::map(kept))?;
    }
    let ports = ctx.work.table("Port")?;
    for port in ctx.work.rows(ports) {
        let none: [(Atom, Atom); 0] = [];
        ctx.work.set_named(port, "other_config", Datum::map(none))?;
    }
    let interfaces = ctx.work.table("Interface")?;
    for interface in ctx.work.rows(interfaces) {
        for column in ["ingress_policing_rate", "ingress_policing_burst"] {
            ctx.work.set_named(interface, column, 0)?;
        }
    }
    for name in TABLES {
        let table = ctx.work.table(name)?;
        for row in ctx.work.rows(table) {
            ctx.work.delete(row);
        }
    }
    Ok(())
}
