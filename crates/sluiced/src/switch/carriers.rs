//! Carriers and speeds of ports, for translation, controllers, link protocols and bonds.

use super::Switch;
use flow::OfPort;
use ofproto::ports::{BridgeId, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Switch {
    /// Reports state, carrier and speed of these ports to translation and controllers.
    pub(super) fn follow_carriers(&mut self, names: &BTreeSet<String>) {
        let facts = &self.facts;
        let known =
            |name: &str| Some((facts.admin_down(name)?, facts.link_down(name)?, facts.features(name)?));
        let mut changed: BTreeMap<BridgeId, BTreeSet<OfPort>> = BTreeMap::new();
        for name in names {
            let Some((bridge, port)) = self.port_in_view(name) else { continue };
            // Links of the kernel are the business of the thread.
            if !self.bonds.is_empty()
                && self.devices.silent().contains(name)
                && let Some(down) = facts.link_down(name)
            {
                self.bonds.set_carrier(bridge, name, !down);
            }
            if known(name).is_some_and(|now| now != (port.config.port_down, port.link_down, port.features)) {
                changed.entry(bridge).or_default().insert(port.of_port);
            }
        }
        for (id, numbers) in changed {
            let Some(instance) = self.instances.of_bridge(id) else { continue };
            let Some(before) = instance.backer.view().bridge(id).map(|b| b.ports.clone()) else { continue };
            let after = instance.backer.change_bridge(id, |b| {
                let table = Arc::make_mut(&mut b.ports);
                for number in numbers {
                    let Some(port) = table.ports.get_mut(&number) else { continue };
                    if let Some(now) = known(&port.name) {
                        let port = Arc::make_mut(port);
                        (port.config.port_down, port.link_down, port.features) = now;
                    }
                }
                b.ports.clone()
            });
            if let Some(after) = after {
                self.link_protocols.ports_changed(id, instance, &after);
                self.openflow.ports_changed(id, &before, &after, sys::clock::monotonic_ms());
            }
        }
    }

    /// A port as translation has it; one that it has not with its number is new in the next table.
    fn port_in_view(&self, name: &str) -> Option<(BridgeId, Arc<Port>)> {
        let open = self.planner.open_port(name)?;
        let view = self.instances.of_bridge(open.bridge)?.backer.view();
        let port = view.bridge(open.bridge)?.ports.port(open.of_port)?;
        (port.name == name).then(|| (open.bridge, port.clone()))
    }
}
