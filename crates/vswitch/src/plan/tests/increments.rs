//! All that the planner keeps about interfaces is what a look at all of them finds.

use std::collections::{BTreeMap, BTreeSet};

use super::super::address::{self, may_represent};
use super::super::interfaces::Interfaces;
use super::super::state::{Bridge, Interface};
use super::*;
use crate::config::InterfaceConfig;

/// Checks a settled planner.
pub(crate) fn check(planner: &Planner) {
    for (name, bridge) in planner.bridges.iter().filter(|(_, bridge)| bridge.failed.is_none()) {
        let mut kept = bridge.clone();
        kept.refresh();
        assert_eq!(kept.mac(), kept.config.options.hwaddr.unwrap_or_else(|| lowest_address(bridge, None)));
        let derived = kept.derived();
        assert_eq!(bridge.derived.as_ref(), Some(&derived));
        let of_port = |port: &Arc<PortConfig>| {
            let interface = port.interfaces.first().filter(|interface| interface.is_internal())?;
            Some((interface.name.clone(), lowest_address(bridge, Some(port.tag))))
        };
        let fakes = bridge.config.ports.values().filter(|port| port.fake_bridge);
        let fakes: BTreeMap<String, MacAddr> = fakes.filter_map(of_port).collect();
        let mtu = bridge.interfaces.values().filter_map(outside_mtu).min().unwrap_or(1500).min(65_521);
        assert_eq!((derived.fakes(), derived.least_mtu()), (&fakes, mtu));
        let names = |is_in: fn(&Interface) -> bool| -> BTreeSet<String> {
            let found = bridge.interfaces.iter().filter(|(_, interface)| is_in(interface));
            found.map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(kept.misplaced, names(Interface::is_misplaced));
        assert_eq!(kept.failed_interfaces(), Vec::from_iter(names(Interface::has_failed)));
        assert!(names(|interface| interface.state == State::Wanted).is_empty());
        for interface in bridge.interfaces.values().filter(|i| !i.config.is_patch() && i.open().is_some()) {
            let sent = interface.sent.as_ref().expect("settings were sent");
            assert!(derived.is_sent(sent, &interface.config), "{interface:?}");
            assert!(Arc::ptr_eq(&interface.port, &bridge.config.ports[&interface.port.name]));
        }
        let wanted: BTreeMap<&String, &Arc<InterfaceConfig>> =
            bridge.config.ports.values().flat_map(|p| p.all_interfaces()).map(|i| (&i.name, i)).collect();
        assert!(wanted.into_iter().eq(bridge.interfaces.iter().map(|(name, i)| (name, &i.config))));
        assert_eq!(*bridge.ports, ports_anew(planner, name));
    }
}

/// The ports of a bridge, made with a look at all of them.
fn ports_anew(planner: &Planner, name: &str) -> PortSet {
    let mut fresh = planner.clone();
    let bridge = fresh.bridges.get_mut(name).expect("it is there");
    bridge.ports = Arc::default();
    bridge.patches.clear();
    let all: Vec<Interface> = bridge.interfaces.values().cloned().collect();
    bridge.interfaces = Interfaces::default();
    all.into_iter().for_each(|interface| bridge.interfaces.insert(interface));
    fresh.port_set(name).expect("it is there")
}

fn outside_mtu(interface: &Interface) -> Option<u32> {
    let config = &interface.config;
    let counts = !config.is_internal() && !config.is_patch() || config.mtu_request.is_some();
    interface.open().filter(|_| counts)?.mtu
}

/// The lowest address of ports, or of those with this tag, else that of the bridge's row.
fn lowest_address(bridge: &Bridge, tag: Option<u16>) -> MacAddr {
    let mut seen = BTreeSet::new();
    let mut of_interface = |interface: &Interface| {
        let open = interface.open().filter(|open| open.number != OfPort::LOCAL)?;
        (!interface.config.is_of_bond).then_some(())?;
        let port = &interface.port;
        (port.interfaces.len() < 2 || seen.insert(port.name.clone())).then_some(())?;
        let may = |mac: &MacAddr| tag.is_none_or(|tag| tag == port.tag) && may_represent(*mac);
        Some(port.mac.unwrap_or(open.mac)).filter(may)
    };
    let addresses = bridge.interfaces.values().filter_map(&mut of_interface);
    addresses.min().unwrap_or_else(|| address::of_row(bridge.config.row))
}

/// Brings the facts of a former state up to date with the changed ones alone; they are all of the present ones.
pub(crate) fn follow(planner: &mut Planner, facts: &mut Facts) {
    let changed = planner.take_changed();
    let all = planner.facts();
    if changed.all {
        *facts = all;
        return;
    }
    let Facts { interfaces, ports, bridges, controllers, .. } = planner.changed_facts(&changed);
    (facts.bridges, facts.controllers) = (bridges, controllers);
    facts.interfaces.retain(|row, _| !changed.interfaces.contains_key(row));
    facts.ports.retain(|row, _| !changed.ports.iter().any(|(changed, ..)| changed == row));
    facts.interfaces.extend(interfaces);
    facts.ports.extend(ports);
    assert_eq!(*facts, all);
}
