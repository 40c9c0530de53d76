//! Bridges, ports and interfaces: the commands that maintain the references among the three tables.
//!
//! Every bridge has a port and an interface of its name (its local port), created with it.

use ovsdb::value::{Atom, Datum};

use super::Stop;
use super::context::Context;
use super::edit::set_columns;
use super::fake::{Bridge, all_bridges, fake_vlan, fakes_of, find_bridge, holding, need_bridge};
use super::options::Invocation;
use super::work::{Row, Work};

pub(crate) fn ports(work: &Work<'_>, bridge: Row) -> Result<Vec<Row>, Stop> {
    work.refs(bridge, "ports", work.table("Port")?)
}

pub(crate) fn interfaces(work: &Work<'_>, port: Row) -> Result<Vec<Row>, Stop> {
    work.refs(port, "interfaces", work.table("Interface")?)
}

/// A record and its parent.
pub(crate) struct WithParent {
    pub(crate) bridge: Bridge,
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
    placed(work, port)
}

/// A port with its bridge.
fn placed(work: &Work<'_>, port: Row) -> Result<Option<WithParent>, Stop> {
    let Some(row) = holder(work, "Bridge", "ports", port)? else { return Ok(None) };
    Ok(Some(WithParent { bridge: holding(work, row, port)?, port }))
}

pub(crate) fn find_interface(work: &Work<'_>, name: &str) -> Result<Option<WithParent>, Stop> {
    let Some(interface) = by_name(work, "Interface", name)? else { return Ok(None) };
    let Some(port) = holder(work, "Port", "interfaces", interface)? else { return Ok(None) };
    placed(work, port)
}

/// The row of an interface.
pub(crate) fn interface_row(work: &Work<'_>, name: &str) -> Result<Row, Stop> {
    by_name(work, "Interface", name)?.ok_or_else(|| Stop::fatal(format!("no interface named {name}")))
}

/// Rejects an empty name, and one in use.
pub(crate) fn check_free(ctx: &mut Context<'_>, name: &str, kind: &str) -> Result<(), Stop> {
    check_not_empty(name, kind)?;
    let article = if kind == "interface" { "an" } else { "a" };
    let what = format!("cannot create {article} {kind} named {name}");
    if find_bridge(ctx, name)?.is_some() {
        return Err(Stop::fatal(format!("{what} because a bridge named {name} already exists")));
    }
    let taken = match find_port(&ctx.work, name)? {
        Some(placed) => Some(("a port", placed)),
        None => find_interface(&ctx.work, name)?.map(|placed| ("an interface", placed)),
    };
    let Some((kind, placed)) = taken else { return Ok(()) };
    let bridge = placed.bridge.name;
    Err(Stop::fatal(format!("{what} because {kind} named {name} already exists on bridge {bridge}")))
}

/// Rejects an empty name.
fn check_not_empty(name: &str, kind: &str) -> Result<(), Stop> {
    match name.is_empty() {
        true => Err(Stop::fatal(format!("{kind} name must not be empty string"))),
        false => Ok(()),
    }
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

/// Parent and VLAN of a fake bridge.
fn parent(call: &Invocation) -> Result<Option<(&str, i64)>, Stop> {
    match call.args.len() {
        1 => Ok(None),
        2 => Err(Stop::fatal("'add-br' command takes exactly 1 or 3 arguments")),
        _ => match call.arg(2).parse() {
            Ok(vlan @ 0..=4095) => Ok(Some((call.arg(1), vlan))),
            _ => Err(Stop::fatal("add-br: vlan must be between 0 and 4095")),
        },
    }
}

/// Whether the existing bridge is the requested one.
fn check_same_bridge(
    call: &Invocation,
    bridge: &Bridge,
    wanted: Option<(&str, i64)>,
    parent: &str,
) -> Result<(), Stop> {
    let name = &bridge.name;
    let why = match (wanted, bridge.vlan()) {
        (None, None) => return Ok(()),
        (None, Some(vlan)) => format!("is a VLAN bridge for VLAN {vlan}"),
        (Some(_), None) => "is not a VLAN bridge".to_string(),
        (Some((asked, _)), Some(_)) if asked != parent => format!("has the wrong parent {parent}"),
        (Some((_, asked)), Some(vlan)) if asked != vlan => {
            format!("is a VLAN bridge for the wrong VLAN {vlan}")
        }
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(Stop::fatal(format!("\"--may-exist add-br {}\" but {name} {why}", call.args.join(" "))))
}

pub(crate) fn add_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let wanted = parent(call)?;
    let name = call.arg(0);
    if call.has("may-exist")
        && let Some(bridge) = find_bridge(ctx, name)?
    {
        let parent = ctx.work.text(bridge.row, "name")?;
        return check_same_bridge(call, &bridge, wanted, &parent);
    }
    check_free(ctx, name, "bridge")?;
    if let Some((parent, vlan)) = wanted {
        return add_fake(ctx, name, parent, vlan);
    }
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

fn add_fake(ctx: &mut Context<'_>, name: &str, parent: &str, vlan: i64) -> Result<(), Stop> {
    let Some(bridge) = find_bridge(ctx, parent)? else {
        return Err(Stop::fatal(format!("parent bridge {parent} does not exist")));
    };
    if bridge.fake.is_some() {
        return Err(Stop::fatal("cannot create bridge with fake bridge as parent"));
    }
    if let Some(other) = fakes_of(&ctx.work, bridge.row)?.iter().find(|fake| fake.vlan() == Some(vlan)) {
        let other = &other.name;
        return Err(Stop::fatal(format!(
            "bridge {parent} already has a child VLAN bridge {other} on VLAN {vlan}"
        )));
    }
    let interface = new_interface(ctx, name)?;
    ctx.work.set_named(interface, "type", "internal")?;
    let port = new_port(ctx, name, &[interface])?;
    ctx.work.set_named(port, "fake_bridge", true)?;
    ctx.work.set_named(port, "tag", vlan)?;
    ctx.work.change_refs(bridge.row, "ports", |ports| {
        ports.insert(port.uuid);
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
    let gone = match bridge.fake {
        Some((own, _)) => bridge.ports(&ctx.work)?.into_iter().chain([own]).collect(),
        None => ports(&ctx.work, bridge.row)?,
    };
    for port in &gone {
        delete_port(&mut ctx.work, *port)?;
    }
    if bridge.fake.is_some() {
        return ctx.work.change_refs(bridge.row, "ports", |ports| {
            ports.retain(|uuid| gone.iter().all(|port| port.uuid != *uuid));
        });
    }
    ctx.work.delete(bridge.row);
    let root = ctx.root()?;
    ctx.work.change_refs(root, "bridges", |bridges| {
        bridges.remove(&bridge.row.uuid);
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

pub(crate) fn list_br(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let (real, fake) = (call.has("real"), call.has("fake"));
    let mut bridges = all_bridges(ctx)?;
    bridges.retain(|bridge| real == fake || fake == bridge.fake.is_some());
    let mut names: Vec<String> = bridges.into_iter().map(|bridge| bridge.name).collect();
    names.sort();
    names.iter().for_each(|name| ctx.say(name));
    Ok(())
}

pub(crate) fn br_exists(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    find_bridge(ctx, call.arg(0))?.map(|_| ()).ok_or(Stop::Exit(2))
}

pub(crate) fn br_to_vlan(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    ctx.say(&bridge.vlan().unwrap_or(0).to_string());
    Ok(())
}

pub(crate) fn br_to_parent(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let parent = ctx.work.text(bridge.row, "name")?;
    ctx.say(&parent);
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
    check_free(ctx, name, "port")?;
    for interface in names.iter().filter(|interface| *interface != name) {
        check_free(ctx, interface, "interface")?;
    }
    let mut interfaces = Vec::new();
    for interface in names {
        interfaces.push(new_interface(ctx, interface)?);
    }
    let port = new_port(ctx, name, &interfaces)?;
    if call.has("fake-iface") {
        ctx.work.set_named(port, "bond_fake_iface", true)?;
    }
    if let Some(vlan) = bridge.vlan() {
        ctx.work.set_named(port, "tag", vlan)?;
    }
    set_columns(ctx, port, settings)?;
    ctx.work.change_refs(bridge.row, "ports", |ports| {
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
    let bridge = &placed.bridge.name;
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
    let holder = placed.bridge;
    if fake_vlan(&ctx.work, placed.port)?.is_none()
        && let Some(asked) = bridge.filter(|bridge| *bridge != holder)
    {
        let asked_name = asked.name;
        let related = asked.row == holder.row && asked.fake.is_none();
        let although = format!(" (although its child bridge {} does)", holder.name);
        let although = if related { although } else { String::new() };
        return Err(Stop::fatal(format!("bridge {asked_name} does not have a port {name}{although}")));
    }
    let is_local = port_name == holder.name || fake_vlan(&ctx.work, placed.port)?.is_some();
    if is_local && !must_exist {
        return Ok(());
    }
    if is_local {
        return Err(Stop::fatal(format!(
            "cannot delete port {name} because it is the local port for bridge {name} \
             (deleting this port requires deleting the entire bridge)"
        )));
    }
    delete_port(&mut ctx.work, placed.port)?;
    ctx.work.change_refs(holder.row, "ports", |ports| {
        ports.remove(&placed.port.uuid);
    })
}

pub(crate) fn list_ports(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let ports = bridge.ports(&ctx.work)?;
    say_names(ctx, &ports, Some(call.arg(0)))
}

pub(crate) fn list_ifaces(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let mut rows = Vec::new();
    for port in bridge.ports(&ctx.work)? {
        rows.extend(interfaces(&ctx.work, port)?);
    }
    say_names(ctx, &rows, Some(call.arg(0)))
}

fn say_bridge(ctx: &mut Context<'_>, found: Option<WithParent>, kind: &str, name: &str) -> Result<(), Stop> {
    let missing = || Stop::fatal(format!("no {kind} named {name}"));
    let found = found.ok_or_else(missing)?;
    if found.bridge.name == name || fake_vlan(&ctx.work, found.port)?.is_some() {
        return Err(missing());
    }
    ctx.say(&found.bridge.name);
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
