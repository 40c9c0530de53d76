//! The ports of a bridge, for translation and controllers.

use super::{Switch, deleted, restore};
use crate::port_changes::differing;
use ofproto::ports::BridgeId;
use std::collections::BTreeSet;
use vswitch::plan::PortSet;

/// Names of devices and ports whose links are to be followed.
#[derive(Default)]
pub(super) struct Stale {
    /// Devices of the kernel whose state is to be read again, or that are gone.
    pub(super) links: BTreeSet<String>,
    /// Ports whose carrier translation does not know yet.
    pub(super) ports: BTreeSet<String>,
}

impl Switch {
    /// Replaces the ports of a bridge.
    pub(super) fn set_ports(&mut self, bridge: BridgeId, name: &str, ports: &PortSet) {
        let Some(instance) = self.instances.of_bridge(bridge) else { return };
        let view = instance.backer.view();
        let previous = view.bridge(bridge).map(|b| b.ports.clone()).unwrap_or_default();
        let mut table = ports.table(&previous);
        let differing = differing(&previous, &table).into_iter();
        let added = differing.filter_map(|(before, now)| {
            now.filter(|now| before.is_none_or(|before| before.name != now.name))
        });
        self.stale.ports.extend(added.map(|port| port.name.clone()));
        deleted::log(name, &previous, &table);
        self.link_protocols.attach(bridge, instance, ports, &mut table);
        self.bonds.attach(bridge, instance, ports, &mut table, &self.devices);
        self.openflow.ports_changed(bridge, &previous, &table, sys::clock::monotonic_ms());
        instance.backer.set_ports(bridge, table);
        restore::learn(&instance.backer, bridge, &mut self.state.macs);
        let mirrors = view.bridge(bridge).and_then(|b| b.mirrors.clone());
        if mirrors.is_some() || !ports.mirrors.is_empty() {
            let mirrors = ports.mirrors(mirrors.as_deref());
            instance.backer.change_bridge(bridge, |b| b.mirrors = mirrors);
        }
        self.refresh_sampling(bridge);
        self.links_dirty = true;
    }
}
