//! Commands about learned addresses.

use super::datapath::of_bridge;
use super::{Json, Optional, Reply, Rows, Several, TypedReply, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::switch::Switch;
use flow::{MacAddr, OfPort};
use ofproto::mac_table::{MacEntry, MacStats};
use ofproto::ports::{BundleId, PortTable};
use ofproto::view::BridgeView;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use sync::lock;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "fdb/add",
        (Word("bridge"), Word("port"), Word("vlan"), Word("mac")),
        "add a static MAC address",
        add,
    ),
    &command("fdb/del", (Word("bridge"), Word("vlan"), Word("mac")), "remove a static MAC address", delete),
    &command(
        "fdb/flush",
        Optional(Word("bridge")),
        "remove the learned MAC addresses of all bridges or one",
        flush,
    ),
    &command(
        "fdb/show",
        Several("[bridge...]", 0, 64),
        "list the MAC addresses of all or some bridges",
        show,
    ),
    &command(
        "fdb/stats-clear",
        Optional(Word("bridge")),
        "reset the MAC learning counters of all bridges or one",
        clear_stats,
    ),
    &command("fdb/stats-show", Word("bridge"), "show the MAC learning counters of a bridge", stats),
];

/// A learned or static address.
struct Address {
    /// The first port of its bundle, if there is one.
    port: Option<OfPort>,
    vlan: u16,
    mac: MacAddr,
    /// `None` for a static one.
    age_s: Option<u64>,
}

fn addresses(b: &BridgeView) -> Vec<Address> {
    let now_ms = sys::clock::monotonic_ms();
    let address = |e: &MacEntry| Address {
        port: b.ports.bundles.get(&e.bundle).and_then(|bundle| bundle.members.first()).copied(),
        vlan: e.vlan,
        mac: e.mac,
        age_s: e.seen_ms.map(|seen| now_ms.saturating_sub(seen) / 1000),
    };
    lock(&b.macs).entries().into_iter().map(address).collect()
}

impl Address {
    fn port(&self) -> String {
        match self.port {
            Some(OfPort::LOCAL) => "LOCAL".to_string(),
            Some(port) => port.to_string(),
            None => "?".to_string(),
        }
    }

    fn line(&self) -> String {
        let age = self.age_s.map_or("static".to_string(), |age| age.to_string());
        format!("{:>5}  {:>4}  {}  {age:>3}", self.port(), self.vlan, self.mac)
    }

    fn json(&self) -> Value {
        let port = match self.port {
            Some(port) if port != OfPort::LOCAL => Value::from(port.0),
            _ => self.port().into(),
        };
        let age = self.age_s.map_or("static".into(), Value::from);
        json!({ "port": port, "vlan": self.vlan, "mac": self.mac.to_string(), "age": age })
    }
}

/// The bridges named, or all, in order of their names.
fn several(switch: &Switch, names: &[&str]) -> Result<BTreeMap<String, Arc<BridgeView>>, String> {
    let named = names.iter().map(|name| of_bridge(switch, name));
    let bridges = match names.is_empty() {
        true => switch.instances().bridges(),
        false => named.collect::<Result<_, _>>()?,
    };
    Ok(bridges.into_iter().map(|(_, b)| (b.name.to_string(), b)).collect())
}

/// The addresses of bridges, by name.
struct AddressTable(BTreeMap<String, Vec<Address>>);

impl TypedReply for AddressTable {
    /// As in OVS 4.0, several bridges get a column for their names.
    fn text(&self) -> String {
        const HEAD: &str = " port  VLAN  MAC                Age";
        if let (1, Some(addresses)) = (self.0.len(), self.0.values().next()) {
            let lines = addresses.iter().map(|a| a.line() + "\n").collect::<String>();
            return format!("{HEAD}\n{lines}");
        }
        let width = self.0.keys().map(String::len).chain(["Bridge".len()]).max().unwrap_or_default() + 1;
        let mut out = format!("{:<width$}{HEAD}\n", "Bridge");
        for (name, addresses) in &self.0 {
            let lines: Vec<String> = addresses.iter().map(Address::line).collect();
            // A bridge without addresses has a line, too.
            let first = format!("{name:<width$}{}", lines.first().map_or("", String::as_str));
            let _ = writeln!(out, "{}", first.trim_end());
            lines.iter().skip(1).for_each(|line| out += &format!("{:<width$}{line}\n", ""));
        }
        out
    }

    /// Lists of addresses by bridge.
    fn json(&self) -> Json<'_> {
        let listed = |all: &Vec<Address>| all.iter().map(Address::json).collect::<Value>();
        let lists = self.0.iter().map(|(name, addresses)| (name.clone(), listed(addresses)));
        Json::Whole(lists.collect::<Map<_, _>>().into())
    }
}

/// `[BRIDGE...]`
fn show(plane: &mut ControlPlane, bridges: Vec<&str>) -> Reply {
    let table = |bridges: BTreeMap<String, Arc<BridgeView>>| {
        let lists = bridges.into_iter().map(|(name, b)| (name, addresses(&b)));
        Reply::Value(Box::new(AddressTable(lists.collect())))
    };
    Reply::or_error(several(&plane.switch, &bridges).map(table))
}

/// The bridge named, or all.
pub(super) fn chosen<'a>(
    switch: &'a Switch,
    name: Option<&str>,
) -> Result<Vec<(&'a Instance, Arc<BridgeView>)>, String> {
    match name {
        None => Ok(switch.instances().bridges()),
        Some(name) => Ok(vec![of_bridge(switch, name)?]),
    }
}

fn flush(plane: &mut ControlPlane, bridge: Option<&str>) -> Reply {
    let bridges = match chosen(&plane.switch, bridge) {
        Ok(bridges) => bridges,
        Err(e) => return Reply::Error(e),
    };
    for (instance, b) in bridges {
        lock(&b.macs).flush(None);
        instance.backer.macs_changed();
    }
    "table successfully flushed\n".to_string().into()
}

fn stats(plane: &mut ControlPlane, bridge: &str) -> Reply {
    let (_, b) = match of_bridge(&plane.switch, bridge) {
        Ok(found) => found,
        Err(e) => return Reply::Error(e),
    };
    let macs = lock(&b.macs);
    let fixed = macs.entries().iter().filter(|e| e.seen_ms.is_none()).count();
    let s = macs.stats;
    format!(
        "Statistics for bridge \"{}\":\n  Current/maximum MAC entries in the table: {}/{}\n  Current static MAC entries in the table : {fixed}\n  Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  Total number of evicted MAC entries     : {}\n  Total number of port moved MAC entries  : {}\n",
        b.name,
        macs.len(),
        macs.max_entries(),
        s.learned,
        s.expired,
        s.evicted,
        s.moved
    )
    .into()
}

fn clear_stats(plane: &mut ControlPlane, bridge: Option<&str>) -> Reply {
    match chosen(&plane.switch, bridge) {
        Ok(bridges) => {
            bridges.iter().for_each(|(_, b)| lock(&b.macs).stats = MacStats::default());
            "statistics successfully cleared\n".to_string().into()
        }
        Err(e) => Reply::Error(e),
    }
}

/// The number of a VLAN.
pub(super) fn vlan(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|v| *v < 4096).ok_or_else(|| format!("{text}: a VLAN has a number of 0 to 4095"))
}

/// An Ethernet address.
pub(super) fn mac(text: &str) -> Result<MacAddr, String> {
    MacAddr::parse(text).ok_or_else(|| "bad MAC address".to_string())
}

/// Displayed name of a bundle with addresses: the number of its first port.
fn shown(ports: &PortTable, bundle: BundleId) -> String {
    let first = ports.bundles.get(&bundle).and_then(|b| b.members.first());
    first.map_or("?".to_string(), OfPort::to_string)
}

/// `BRIDGE PORT VLAN MAC`: adds a static address.
fn add(
    plane: &mut ControlPlane,
    (bridge, port_name, vlan_text, mac_text): (&str, &str, &str, &str),
) -> Reply {
    let add = || {
        let (instance, b) = of_bridge(&plane.switch, bridge)?;
        let port =
            b.ports.by_name(port_name).ok_or_else(|| format!("{port_name}: no such port of {}", b.name))?;
        let (vlan, mac) = (vlan(vlan_text)?, mac(mac_text)?);
        if b.ports.bundles.get(&port.bundle).is_some_and(|bundle| !bundle.includes_vlan(vlan)) {
            return Err(format!("port {port_name} of {} does not carry VLAN {vlan}", b.name));
        }
        let mut macs = lock(&b.macs);
        let before = macs.entry(vlan, mac).map(|e| (e.bundle, e.seen_ms.is_none()));
        if before == Some((port.bundle, true)) {
            return Ok(String::new());
        }
        macs.add_static(vlan, mac, port.bundle);
        drop(macs);
        instance.backer.macs_changed();
        Ok(before.map_or(String::new(), |(bundle, was_static)| {
            let kind = if was_static { "static" } else { "dynamic" };
            format!("Overriding already existing {kind} entry on {}\n", shown(&b.ports, bundle))
        }))
    };
    Reply::from(add())
}

/// `BRIDGE VLAN MAC`: removes a static address.
fn delete(plane: &mut ControlPlane, (bridge, vlan_text, mac_text): (&str, &str, &str)) -> Reply {
    let delete = || {
        let (instance, b) = of_bridge(&plane.switch, bridge)?;
        let (vlan, mac) = (vlan(vlan_text)?, mac(mac_text)?);
        let mut macs = lock(&b.macs);
        if macs.entry(vlan, mac).is_none_or(|e| e.seen_ms.is_some()) {
            return Err("could not find static mac entry".to_string());
        }
        macs.remove(vlan, mac);
        drop(macs);
        instance.backer.macs_changed();
        Ok(String::new())
    };
    Reply::from(delete())
}
