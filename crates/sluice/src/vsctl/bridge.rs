//! Bridges, ports and interfaces: the commands that maintain the references among the three tables.
//!
//! Every bridge has a port and an interface of its name (its local port), created with it. Fake bridges
//! (`add-br NAME PARENT VLAN`) are rejected: they emulate `tag=VLAN`.

use ovsdb::value::{Atom, Datum};

use super::Stop;
use super::context::Context;
use super::edit::set_columns;
use super::options::Invocation;
use super::work::{Row, Work};

/// A bridge's rows by kind, followed through references.
pub(crate) fn all_bridges(ctx: &mut Context<'_>) -> Result<Vec<Row>, Stop> {
    let root = ctx.root()?;
    let table = ctx.work.table("Bridge")?;
    ctx.work.refs(root, "bridges", table)
}

fn ports(work: &Work<'_>, bridge: Row) -> Result<Vec<Row>, Stop> {
    work.refs(bridge, "ports", work.table("Port")?)
}

pub(crate) fn interfaces(work: &Work<'_>, port: Row) -> Result<Vec<Row>, Stop> {
    work.refs(port, "interfaces", work.table("Interface")?)
}

pub(crate) fn find_bridge(ctx: &mut Context<'_>, name: &str) -> Result<Option<Row>, Stop> {
    for bridge in all_bridges(ctx)? {
        if ctx.work.text(bridge, "name")? == name {
            return Ok(Some(bridge));
        }
    }
    Ok(None)
}

pub(crate) fn need_bridge(ctx: &mut Context<'_>, name: &str) -> Result<Row, Stop> {
    find_bridge(ctx, name)?.ok_or_else(|| Stop::fatal(format!("no bridge named {name}")))
}

/// A record and its parent.
pub(crate) struct WithParent {
    pub(crate) bridge: Row,
    pub(crate) port: Row,
}

/// The row of that name that something refers to.
fn by_name(work: &Work<'_>, table: &str, name: &str) -> Result<Option<Row>, Stop> {
    let table = work.table(table)?;
    let column = work.column(table, "name")?;
    let is = |row: &Row| work.get(*row, column).as_atom().and_then(Atom::as_str) == Some(name);
    Ok(work.rows(table).into_iter().find(is))
}

/// The row whose set `column` contains `member`.
fn holder(work: &Work<'_>, table: &str, column: &str, member: Row) -> Result<Option<Row>, Stop> {
    let table = work.table(table)?;
    let column = work.column(table, column)?;
    let atom = Atom::Uuid(member.uuid);
    Ok(work.rows(table).into_iter().find(|row| work.get(*row, column).contains(&atom)))
}

pub(crate) fn find_port(work: &Work<'_>, name: &str) -> Result<Option<WithParent>, Stop> {
    let Some(port) = by_name(work, "Port", name)? else { return Ok(None) };
    let bridge = holder(work, "Bridge", "ports", port)?;
    Ok(bridge.map(|bridge| WithParent { bridge, port }))
}

pub(crate) fn find_interface(work: &Work<'_>, name: &str) -> Result<Option<WithParent>, Stop> {
    let Some(interface) = by_name(work, "Interface", name)? else { return Ok(None) };
    let Some(port) = holder(work, "Port", "interfaces", interface)? else { return Ok(None) };
    let bridge = holder(work, "Bridge", "ports", port)?;
    Ok(bridge.map(|bridge| WithParent { bridge, port }))
}

/// The row of an interface.
pub(crate) fn interface_row(work: &Work<'_>, name: &str) -> Result<Row, Stop> {
    by_name(work, "Interface", name)?.ok_or_else(|| Stop::fatal(format!("no interface named {name}")))
}

/// Rejects a name in use; `what` begins the message.
pub(crate) fn check_free(ctx: &mut Context<'_>, name: &str, what: &str) -> Result<(), Stop> {
    if find_bridge(ctx, name)?.is_some() {
        return Err(Stop::fatal(format!("{what} because a bridge named {name} already exists")));
    }
    let taken = match find_port(&ctx.work, name)? {
        Some(placed) => Some(("a port", placed)),
        None => find_interface(&ctx.work, name)?.map(|placed| ("an interface", placed)),
    };
    let Some((kind, placed)) = taken else { return Ok(()) };
    let bridge = ctx.work.text(placed.bridge, "name")?;
    Err(Stop::fatal(format!("{what} because {kind} named {name} already exists on bridge {bridge}")))
}

pub(crate) fn new_interface(ctx: &mut Context<'_>, name: &str) -> Result<Row, Stop> {
    let table = ctx.work.table("Interface")?;
    let interface = ctx.work.insert_new(table);
    ctx.work.set_named(interface, "name", name)?;
    ctx.new_interfaces.push(interface.uuid);
    Ok(interface)
}

fn new_port(ctx: &mut Context<'_>, name: &str, interfaces: &[Row]) -> Result<Row, Stop> {
    let table = ctx.work.table("Port")?;
    let port = ctx.work.insert_new(table);
    ctx.work.set_named(port, "name", name)?;
    ctx.work.set_named(port, "interfaces", Datum::set(interfaces.iter().map(|row| row.uuid)))?;
    Ok(port)
}

pub(crate) fn add_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    match call.args.len() {
        1 => {}
        2 => return Err(Stop::fatal("'add-br' command takes exactly 1 or 3 arguments")),
        _ => {
            return Err(Stop::fatal(
                "fake bridges (add-br BRIDGE PARENT VLAN) are not supported: add ports with tag=VLAN to the parent",
            ));
        }
    }
    let name = call.arg(0);
    if call.has("may-exist") && find_bridge(ctx, name)?.is_some() {
        return Ok(());
    }
    check_free(ctx, name, &format!("cannot create a bridge named {name}"))?;
    let interface = new_interface(ctx, name)?;
    ctx.work.set_named(interface, "type", "internal")?;
    let port = new_port(ctx, name, &[interface])?;
    let table = ctx.work.table("Bridge")?;
    let bridge = ctx.work.insert_new(table);
    ctx.work.set_named(bridge, "name", name)?;
    ctx.work.set_named(bridge, "ports", Datum::set([port.uuid]))?;
    let root = ctx.root()?;
    ctx.work.change_refs(root, "bridges", |bridges| {
        bridges.insert(bridge.uuid);
    })
}

fn delete_port(work: &mut Work<'_>, port: Row) -> Result<(), Stop> {
    for interface in interfaces(work, port)? {
        work.delete(interface);
    }
    work.delete(port);
    Ok(())
}

pub(crate) fn del_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let name = call.arg(0);
    let bridge = match find_bridge(ctx, name)? {
        None if call.has("if-exists") => return Ok(()),
        None => return Err(Stop::fatal(format!("no bridge named {name}"))),
        Some(bridge) => bridge,
    };
    for port in ports(&ctx.work, bridge)? {
        delete_port(&mut ctx.work, port)?;
    }
    ctx.work.delete(bridge);
    let root = ctx.root()?;
    ctx.work.change_refs(root, "bridges", |bridges| {
        bridges.remove(&bridge.uuid);
    })
}

/// Prints the names of rows, sorted by bytes.
fn say_names(ctx: &mut Context<'_>, rows: &[Row], but: Option<&str>) -> Result<(), Stop> {
    let names: Result<Vec<String>, Stop> = rows.iter().map(|row| ctx.work.text(*row, "name")).collect();
    let mut names = names?;
    names.sort();
    for name in names.iter().filter(|name| Some(name.as_str()) != but) {
        ctx.say(name);
    }
    Ok(())
}

pub(crate) fn list_br(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    let bridges = all_bridges(ctx)?;
    say_names(ctx, &bridges, None)
}

pub(crate) fn br_exists(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    find_bridge(ctx, call.arg(0))?.map(|_| ()).ok_or(Stop::Exit(2))
}

pub(crate) fn br_to_vlan(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    need_bridge(ctx, call.arg(0))?;
    ctx.say("0");
    Ok(())
}

pub(crate) fn br_to_parent(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    need_bridge(ctx, call.arg(0))?;
    ctx.say(call.arg(0));
    Ok(())
}

/// Common part of `add-port` and `add-bond`. `names` are the interfaces.
fn add(ctx: &mut Context<'_>, call: &Invocation, names: &[String], settings: &[String]) -> Result<(), Stop> {
    let (bridge_name, name) = (call.arg(0), call.arg(1));
    let bridge = need_bridge(ctx, bridge_name)?;
    if call.has("may-exist")
        && let Some(placed) = find_port(&ctx.work, name)?
    {
        return check_same(ctx, call, &placed, names);
    }
    check_free(ctx, name, &format!("cannot create a port named {name}"))?;
    for interface in names.iter().filter(|interface| *interface != name) {
        check_free(ctx, interface, &format!("cannot create an interface named {interface}"))?;
    }
    let mut interfaces = Vec::new();
    for interface in names {
        interfaces.push(new_interface(ctx, interface)?);
    }
    let port = new_port(ctx, name, &interfaces)?;
    if call.has("fake-iface") {
        ctx.work.set_named(port, "bond_fake_iface", true)?;
    }
    set_columns(ctx, port, settings)?;
    ctx.work.change_refs(bridge, "ports", |ports| {
        ports.insert(port.uuid);
    })
}

/// Whether the existing port equals the requested one.
fn check_same(
    ctx: &Context<'_>,
    call: &Invocation,
    placed: &WithParent,
    names: &[String],
) -> Result<(), Stop> {
    let (bridge_name, name) = (call.arg(0), call.arg(1));
    let asked = format!("--may-exist {} {}", call.spec.name, call.args[..2].join(" "));
    let bridge = ctx.work.text(placed.bridge, "name")?;
    if bridge != bridge_name {
        return Err(Stop::fatal(format!("\"{asked}\" but {name} is actually attached to bridge {bridge}")));
    }
    let has: Result<Vec<String>, Stop> =
        interfaces(&ctx.work, placed.port)?.iter().map(|row| ctx.work.text(*row, "name")).collect();
    let (mut has, mut wants) = (has?, names.to_vec());
    has.sort();
    wants.sort();
    if has != wants {
        let asked = if call.spec.name == "add-bond" { format!("{asked} {}", names.join(" ")) } else { asked };
        return Err(Stop::fatal(format!(
            "\"{asked}\" but {name} actually has interface(s) {}",
            has.join(", ")
        )));
    }
    Ok(())
}

pub(crate) fn add_port(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    add(ctx, call, &call.args[1..2], &call.args[2..])
}

pub(crate) fn add_bond(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let rest = &call.args[2..];
    let settings = rest.iter().position(|word| word.contains('=')).unwrap_or(rest.len());
    let (names, settings) = rest.split_at(settings);
    if names.len() < 2 {
        return Err(Stop::fatal(format!(
            "add-bond requires at least 2 interfaces, but only {} were specified",
            names.len()
        )));
    }
    add(ctx, call, names, settings)
}

pub(crate) fn del_port(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let name = call.args.last().map_or("", String::as_str);
    let bridge = match call.args.len() {
        2 => Some(need_bridge(ctx, call.arg(0))?),
        _ => None,
    };
    let must_exist = !call.has("if-exists") || call.has("must-exist");
    let found = match find_port(&ctx.work, name)? {
        None if call.has("with-iface") => find_interface(&ctx.work, name)?,
        found => found,
    };
    let Some(placed) = found else {
        let kind = if call.has("with-iface") { "port or interface" } else { "port" };
        return if must_exist { Err(Stop::fatal(format!("no {kind} named {name}"))) } else { Ok(()) };
    };
    let port_name = ctx.work.text(placed.port, "name")?;
    let bridge_name = ctx.work.text(placed.bridge, "name")?;
    if bridge.is_some_and(|bridge| bridge != placed.bridge) {
        let asked = call.arg(0);
        return Err(Stop::fatal(format!("bridge {asked} does not have a port {name}")));
    }
    if port_name == bridge_name {
        return Err(Stop::fatal(format!(
            "cannot delete port {name} because it is the local port for bridge {name} \
             (deleting this port requires deleting the entire bridge)"
        )));
    }
    delete_port(&mut ctx.work, placed.port)?;
    ctx.work.change_refs(placed.bridge, "ports", |ports| {
        ports.remove(&placed.port.uuid);
    })
}

pub(crate) fn list_ports(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let ports = ports(&ctx.work, bridge)?;
    say_names(ctx, &ports, Some(call.arg(0)))
}

pub(crate) fn list_ifaces(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let mut rows = Vec::new();
    for port in ports(&ctx.work, bridge)? {
        rows.extend(interfaces(&ctx.work, port)?);
    }
    say_names(ctx, &rows, Some(call.arg(0)))
}

fn say_bridge(ctx: &mut Context<'_>, found: Option<WithParent>, kind: &str, name: &str) -> Result<(), Stop> {
    let missing = || Stop::fatal(format!("no {kind} named {name}"));
    let bridge = ctx.work.text(found.ok_or_else(missing)?.bridge, "name")?;
    if bridge == name {
        return Err(missing());
    }
    ctx.say(&bridge);
    Ok(())
}

pub(crate) fn port_to_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let found = find_port(&ctx.work, call.arg(0))?;
    say_bridge(ctx, found, "port", call.arg(0))
}

pub(crate) fn iface_to_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let found = find_interface(&ctx.work, call.arg(0))?;
    say_bridge(ctx, found, "interface", call.arg(0))
}
