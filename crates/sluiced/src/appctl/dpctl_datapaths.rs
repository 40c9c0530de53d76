//! Commands that make and remove datapaths, and ports without an interface in the database.
//!
//! Such ports have no bridge: their packets follow flows added by command (`dpctl/add-flow`). Ports of bridges follow the
//! database: no command here removes one behind its back; options set by command last until those of the interface
//! change in the database.

use super::datapath::datapath;
use super::{Reply, Rows, Several, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use dpif::{PortInfo, PortSpec};
use flow::DpPort;
use std::collections::BTreeMap;
use sync::lock;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/add-dp",
        (Word("dp"), Several("[iface...]", 0, 63)),
        "create a datapath without bridges, with optional ports",
        make,
    ),
    &command("dpctl/add-if", (Word("dp"), Several("iface...", 1, 63)), "add ports to a datapath", add_ports),
    &command("dpctl/del-dp", Word("dp"), "remove a datapath that has no bridges", remove),
    &command(
        "dpctl/del-if",
        (Word("dp"), Several("iface...", 1, 63)),
        "remove ports of a datapath",
        remove_ports,
    ),
    &command(
        "dpctl/set-if",
        (Word("dp"), Several("iface...", 1, 63)),
        "change options of ports of a datapath",
        set_ports,
    ),
];

/// The commands of the dummy mode.
pub(super) const DUMMY_ROWS: Rows = &[&command(
    "dpif-dummy/change-port-number",
    (Word("dp"), Word("port"), Word("new-number")),
    "change the number of a port of a dummy datapath",
    renumber,
)];

/// Type of a datapath, or of a port, that names none.
const DEFAULT_TYPE: &str = "system";

/// `INTERFACE[,type=TYPE][,port_no=N][,OPTION=VALUE...]`
struct Wanted<'a> {
    name: &'a str,
    type_name: &'a str,
    number: Option<DpPort>,
    options: BTreeMap<String, String>,
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Result<Wanted<'a>, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let mut wanted = Wanted { name, type_name: DEFAULT_TYPE, number: None, options: BTreeMap::new() };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "type" => wanted.type_name = value,
                "port_no" => {
                    let number =
                        value.parse().map_err(|_| format!("{name}: port_no={value} is not a number"))?;
                    wanted.number = Some(DpPort(number));
                }
                _ => drop(wanted.options.insert(key.to_string(), value.to_string())),
            }
        }
        Ok(wanted)
    }
}

/// `add-dp [TYPE@]NAME [INTERFACE...]`
fn make(plane: &mut ControlPlane, (dp, interfaces): (&str, Vec<&str>)) -> Reply {
    let (type_name, short) = dp.split_once('@').unwrap_or((DEFAULT_TYPE, dp));
    let served_by = match plane.switch.supported().datapaths.get(type_name) {
        Some(support) => support.served_by.clone(),
        None => return Reply::Error(format!("{type_name}: no such datapath type")),
    };
    let made = check_name(short)
        .and_then(|()| {
            plane.switch.instances_mut().add_separate(&served_by, short).map_err(|e| format!("{e:#}"))
        })
        .map_err(|e| format!("add_dp ({e})"));
    if made.is_err() || interfaces.is_empty() {
        return Reply::from(made.map(|()| String::new()));
    }
    let name = format!("{served_by}@{short}");
    Reply::from(add_all(plane, &name, &interfaces))
}

/// Its local port has the same name.
fn check_name(short: &str) -> Result<(), String> {
    let is_usable = vswitch::config::check_device_name(short);
    is_usable.map_err(|why| format!("{short}: {why}"))
}

/// `del-dp NAME`
fn remove(plane: &mut ControlPlane, dp: &str) -> Reply {
    let removed = plane.switch.instances_mut().remove_separate(dp);
    Reply::from(removed.map(|()| String::new()))
}

/// `add-if NAME INTERFACE...`
fn add_ports(plane: &mut ControlPlane, (dp, interfaces): (&str, Vec<&str>)) -> Reply {
    Reply::from(add_all(plane, dp, &interfaces))
}

/// Carries out each part of a command; fails with all failures.
fn each(parts: &[&str], mut run: impl FnMut(&str) -> Result<(), String>) -> Result<String, String> {
    let failed: Vec<String> = parts.iter().filter_map(|part| run(part).err()).collect();
    if failed.is_empty() { Ok(String::new()) } else { Err(failed.join("\n")) }
}

fn add_all(plane: &mut ControlPlane, name: &str, ports: &[&str]) -> Result<String, String> {
    let instance = datapath(&plane.switch, Some(name))?;
    each(ports, |text| {
        let wanted = Wanted::parse(text)?;
        let port = wanted.name;
        let failed =
            |why: &dyn std::fmt::Display| format!("adding {port} to {} failed ({why})", instance.name());
        let options = plane.switch.supported().port_options(
            port,
            wanted.type_name,
            &wanted.options,
            instance.is_dummy(),
        )?;
        let known = instance.datapath.ports();
        if known.iter().any(|p| p.name == port) {
            return Err(failed(&"File exists"));
        }
        if wanted.number.is_some_and(|number| known.iter().any(|p| p.number == number)) {
            return Err(failed(&"Device or resource busy"));
        }
        let spec =
            PortSpec { name: options.port_name(port), options, mac: None, mtu: None, number: wanted.number };
        let added = instance.datapath.port_add(&spec).map_err(|e| failed(&e))?;
        if wanted.number.is_some_and(|number| number != added) {
            let _ = instance.datapath.port_del(added);
            return Err(failed(&"the port number is out of range"));
        }
        lock(&instance.port_options).insert(added, wanted.options);
        Ok(())
    })
}

/// A port by its name or number.
fn port(instance: &Instance, name: &str) -> Result<PortInfo, String> {
    let number = name.parse().ok().map(DpPort);
    let found = instance.datapath.ports().into_iter().find(|p| p.name == name || Some(p.number) == number);
    found.ok_or_else(|| format!("no port named {name}"))
}

/// `del-if NAME INTERFACE...`
fn remove_ports(plane: &mut ControlPlane, (dp, interfaces): (&str, Vec<&str>)) -> Reply {
    let removed = each(&interfaces, |name| remove_port(plane, dp, name));
    plane.switch.instances().close_devices();
    Reply::from(removed)
}

fn remove_port(plane: &mut ControlPlane, of: &str, name: &str) -> Result<(), String> {
    let instance = datapath(&plane.switch, Some(of))?;
    let failed =
        |name: &str, why: &str| format!("deleting port {name} from {} failed ({why})", instance.name());
    let is_number = name.parse::<u32>().is_ok();
    let found = port(instance, name);
    let PortInfo { name, number, .. } =
        found.map_err(|e| if is_number { failed(name, "No such device") } else { e })?;
    if number == dpif::LOCAL_PORT {
        return Err(failed(&name, "Invalid argument"));
    }
    let owners = plane.switch.owners(instance, number);
    if owners.is_empty() {
        lock(&instance.port_options).remove(&number);
        return instance.datapath.port_del(number).map_err(|e| failed(&name, &e.to_string()));
    }
    owners.iter().for_each(|owner| plane.switch.remove_port(owner, &mut plane.reactor));
    Ok(())
}

/// `set-if NAME INTERFACE[,OPTION=VALUE...]...`: changes options of ports. Options of an interface of the database last
/// until its own change there.
fn set_ports(plane: &mut ControlPlane, (dp, interfaces): (&str, Vec<&str>)) -> Reply {
    if let Err(why) = datapath(&plane.switch, Some(dp)) {
        return Reply::Error(why);
    }
    Reply::from(each(&interfaces, |text| set_port(plane, dp, text)))
}

fn set_port(plane: &mut ControlPlane, datapath_name: &str, text: &str) -> Result<(), String> {
    let instance = datapath(&plane.switch, Some(datapath_name))?;
    let words = text.split(',').skip(1);
    let port = port(instance, text.split(',').next().unwrap_or_default())?;
    for word in words.clone() {
        holds(&port, word).map_err(|e| format!("{}: {e}", port.name))?;
    }
    let mut changed = words.filter(|word| !is_identity(word)).peekable();
    match changed.peek() {
        None => return Ok(()),
        Some(_) if plane.switch.owners(instance, port.number).is_empty() => {
            return change(plane, instance, &port, changed);
        }
        Some(_) => {}
    }
    let is_dummy = instance.is_dummy();
    let replica = plane.db.client_ref().replica();
    let Some(row) = replica.rows("Interface").find(|row| row.str("name") == port.name) else {
        return Err(format!("{}: its options are those of its tunnels' interfaces", port.name));
    };
    let options = with(owned(row.string_map("options")), changed);
    let options = plane.switch.supported().port_options(&port.name, row.str("type"), &options, is_dummy)?;
    plane
        .switch
        .set_port_options(&port.name, options, &mut plane.reactor)
        .map_err(|why| format!("{}: failed to set configuration ({why})", port.name))
}

fn owned(map: BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    map.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Options with further ones.
fn with<'a>(
    mut options: BTreeMap<String, String>,
    words: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, String> {
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        options.insert(key.to_string(), value.to_string());
    }
    options
}

/// `change-port-number DP PORT NUMBER`, for dummies.
fn renumber(plane: &mut ControlPlane, (dp, port_name, new_number): (&str, &str, &str)) -> Reply {
    let mut renumber = || {
        let instance = plane.switch.instances().named(Some(dp)).ok().filter(|i| i.is_dummy());
        let instance = instance.ok_or("unknown datapath or not a dummy")?;
        let port = port(instance, port_name).map_err(|_| "unknown port")?;
        let number = new_number.parse().ok().filter(|n| (1..::datapath::PORT_NUMBERS).contains(n));
        let number = DpPort(number.ok_or("bad port number")?);
        if instance.datapath.ports().iter().any(|known| known.number == number) {
            return Err("port number already in use".to_string());
        }
        if port.number == dpif::LOCAL_PORT {
            return Err(format!("{}: the port of the datapath itself keeps its number", port.name));
        }
        if !plane.switch.owners(instance, port.number).is_empty() {
            return plane.switch.renumber_port(&port.name, number, &mut plane.reactor);
        }
        let options = lock(&instance.port_options).remove(&port.number).unwrap_or_default();
        let spec = |number| spec(plane, instance, &port, &options, number);
        let (old, new) = (spec(port.number)?, spec(number)?);
        exchange(instance, &port, &old, &new)?;
        lock(&instance.port_options).insert(number, options);
        Ok(())
    };
    Reply::from(renumber().map(|()| String::new()))
}

/// Whether a word is about type or number, which stay.
fn is_identity(word: &str) -> bool {
    matches!(word.split('=').next(), Some("type" | "port_no"))
}

/// Whether type and number are those of the port.
fn holds(port: &PortInfo, word: &str) -> Result<(), String> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    match key {
        "type" if value != port.type_name => {
            Err(format!("can't change type from {} to {value}", port.type_name))
        }
        "port_no" if value != port.number.to_string() => {
            Err(format!("can't change port number from {} to {value}", port.number))
        }
        "" => Err(format!("{word}: an option needs a name")),
        _ => Ok(()),
    }
}

/// Makes a port anew with further options; its flows end.
fn change<'a>(
    plane: &ControlPlane,
    instance: &Instance,
    port: &PortInfo,
    words: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let mut all = lock(&instance.port_options);
    let before = all.get(&port.number).cloned().unwrap_or_default();
    let after = with(before.clone(), words);
    let spec = |options| spec(plane, instance, port, options, port.number);
    let (old, new) = (spec(&before)?, spec(&after)?);
    exchange(instance, port, &old, &new)?;
    all.insert(port.number, after);
    Ok(())
}

/// The specification of a port made by command.
fn spec(
    plane: &ControlPlane,
    instance: &Instance,
    port: &PortInfo,
    options: &BTreeMap<String, String>,
    number: DpPort,
) -> Result<PortSpec, String> {
    let (supported, dummy) = (plane.switch.supported(), instance.is_dummy());
    let options = supported.port_options(&port.name, &port.type_name, options, dummy)?;
    let name = options.port_name(&port.name);
    Ok(PortSpec { name, options, mac: None, mtu: None, number: Some(number) })
}

/// Replaces a port; if that fails, it is as before.
fn exchange(instance: &Instance, port: &PortInfo, old: &PortSpec, new: &PortSpec) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: failed to set configuration ({why})", port.name);
    instance.datapath.port_del(port.number).map_err(|e| failed(&e))?;
    if let Err(why) = instance.datapath.port_add(new) {
        return match instance.datapath.port_add(old) {
            Ok(_) => Err(failed(&why)),
            Err(lost) => Err(format!("{}; the port is gone ({lost})", failed(&why))),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_number_of_a_port_stay() {
        let port = PortInfo { number: DpPort(3), name: "p3".to_string(), type_name: "system".to_string() };
        for word in ["type=system", "port_no=3", "mtu=9", "bogus"] {
            assert_eq!(holds(&port, word), Ok(()), "{word}");
        }
        assert_eq!(holds(&port, "type=tap"), Err("can't change type from system to tap".to_string()));
        assert_eq!(holds(&port, "port_no=x"), Err("can't change port number from 3 to x".to_string()));
        for word in ["", "=", "=5"] {
            assert!(holds(&port, word).is_err(), "{word}");
        }
    }
}
