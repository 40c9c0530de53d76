//! Carriers and speeds of ports, for translation, controllers, link protocols and bonds.

use super::Switch;
use crate::devices::Body;
use std::sync::Arc;

impl Switch {
    /// Reports port state, carrier and speed to translation and controllers.
    pub(super) fn follow_carriers(&mut self) {
        let facts = &self.facts;
        let known =
            |name: &str| Some((facts.admin_down(name)?, facts.link_down(name)?, facts.features(name)?));
        for (instance, b) in self.instances.bridges() {
            if !self.bonds.is_empty() {
                // Links of the kernel are the business of the thread.
                let is_bare = |name: &&String| {
                    self.devices.get(*name).is_some_and(|d| !matches!(d.body, Body::Kernel(_)))
                };
                for name in b.ports.ports.values().map(|port| &port.name).filter(is_bare) {
                    if let Some(down) = facts.link_down(name) {
                        self.bonds.set_carrier(b.id, name, !down);
                    }
                }
            }
            let differs = |p: &ofproto::ports::Port| {
                known(&p.name).is_some_and(|now| now != (p.config.port_down, p.link_down, p.features))
            };
            if !b.ports.ports.values().any(|p| differs(p)) {
                continue;
            }
            let before = b.ports.clone();
            let after = instance.backer.change_bridge(b.id, |b| {
                let table = Arc::make_mut(&mut b.ports);
                for port in table.ports.values_mut() {
                    if let Some(now) = known(&port.name) {
                        let port = Arc::make_mut(port);
                        (port.config.port_down, port.link_down, port.features) = now;
                    }
                }
                b.ports.clone()
            });
            if let Some(after) = after {
                self.link_protocols.ports_changed(b.id, instance, &after);
                self.openflow.ports_changed(b.id, &before, &after, sys::clock::monotonic_ms());
            }
        }
    }
}
