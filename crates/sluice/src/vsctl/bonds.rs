//! Interfaces of bonds, added and removed one at a time.

use super::Stop;
use super::bridge::{check_free, find_interface, find_port, interfaces, new_interface};
use super::context::Context;
use super::options::Invocation;

pub(crate) fn add_bond_iface(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let (port_name, name) = (call.arg(0), call.arg(1));
    let Some(port) = find_port(&ctx.work, port_name)? else {
        return Err(Stop::fatal(format!("no port named {port_name}")));
    };
    if call.has("may-exist")
        && let Some(there) = find_interface(&ctx.work, name)?
    {
        if there.port == port.port {
            return Ok(());
        }
        let actual = ctx.work.text(there.port, "name")?;
        return Err(Stop::fatal(format!(
            "\"--may-exist add-bond-iface {port_name} {name}\" but {name} is actually attached to port {actual}"
        )));
    }
    check_free(ctx, name, "interface")?;
    let interface = new_interface(ctx, name)?;
    ctx.work.change_refs(port.port, "interfaces", |interfaces| {
        interfaces.insert(interface.uuid);
    })
}

/// Removes an interface; with two arguments only from that port.
pub(crate) fn del_bond_iface(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let name = call.args.last().map_or("", String::as_str);
    let Some(found) = find_interface(&ctx.work, name)? else {
        return match call.has("if-exists") {
            true => Ok(()),
            false => Err(Stop::fatal(format!("no interface named {name}"))),
        };
    };
    let port_name = ctx.work.text(found.port, "name")?;
    if call.args.len() == 2 {
        let asked = call.arg(0);
        if find_port(&ctx.work, asked)?.is_none() {
            return Err(Stop::fatal(format!("no port named {asked}")));
        }
        if port_name != asked {
            return Err(Stop::fatal(format!("port {asked} does not have an interface {name}")));
        }
    }
    if interfaces(&ctx.work, found.port)?.len() < 2 {
        return Err(Stop::fatal(format!("cannot delete last interface from port {port_name}")));
    }
    let row = super::bridge::interface_row(&ctx.work, name)?;
    ctx.work.change_refs(found.port, "interfaces", |interfaces| {
        interfaces.remove(&row.uuid);
    })?;
    ctx.work.delete(row);
    Ok(())
}
