//! Devices of the switch follow the links of the system: removed, added, changed, moved to another namespace.

use super::{LINK_READS, Switch};
use crate::devices::{Body, Device};
use crate::reactor::Reactor;
use flow::MacAddr;
use netdev::link::{LinkEvent, LinkInfo};

impl Switch {
    /// Processes the system's link events: devices removed, added, or changed.
    pub(super) fn follow_links(&mut self, reactor: &mut Reactor) {
        for _ in 0..LINK_READS {
            let events = match self.links.poll() {
                Ok(events) => events,
                Err(e) => {
                    log::warn!(target: "netdev_linux", "cannot read link events: {e}");
                    break;
                }
            };
            // No event reports the rest, so read to the end, or at the next turn.
            self.links_dirty = !events.is_empty();
            if events.is_empty() {
                break;
            }
            for event in events {
                self.link_event(event, reactor);
            }
        }
        let mut names = std::mem::take(&mut self.stale.links);
        names.extend(self.devices.silent().iter().cloned());
        self.facts.refresh_links(&self.devices, &names);
        names.append(&mut self.stale.ports);
        self.follow_carriers(&names);
    }

    /// Has the state of a device read again.
    pub(super) fn read_link(&mut self, name: String) {
        self.links_dirty = true;
        self.stale.links.insert(name);
    }

    fn link_event(&mut self, event: LinkEvent, reactor: &mut Reactor) {
        match event {
            LinkEvent::Changed(info) => self.link_changed(&info, reactor),
            LinkEvent::Deleted { ifindex, .. } => self.link_gone(|index| index == ifindex),
            LinkEvent::Resync(all) => {
                self.link_gone(|index| !all.iter().any(|l| l.ifindex == index));
                all.iter().for_each(|info| self.link_changed(info, reactor));
            }
        }
    }

    fn link_changed(&mut self, info: &LinkInfo, reactor: &mut Reactor) {
        // A device of the same name is a different one if its index differs.
        self.link_gone_named(&info.name, info.ifindex, reactor);
        if let Some(device) = self.devices.get(&info.name) {
            if matches!(device.body, Body::Kernel(ifindex) if ifindex != info.ifindex) {
                return;
            }
            self.stale.links.insert(info.name.clone());
            if let Some(mac) = info.mac {
                self.planner.device_changed(&info.name, MacAddr(mac), Some(info.mtu));
            }
        } else {
            self.planner.retry(&info.name);
        }
    }

    /// Has the planner follow address and MTU of a dummy.
    pub(super) fn dummy_changed(&mut self, name: &str) {
        let Some(Body::Dummy(dummy)) = self.devices.get(name).map(|device| &device.body) else { return };
        self.planner.device_changed(name, MacAddr(dummy.mac()), Some(dummy.mtu()));
    }

    fn link_gone_named(&mut self, name: &str, ifindex: u32, reactor: &mut Reactor) {
        let Some(device) = self.devices.get_mut(name) else { return };
        let Body::Kernel(known) = &mut device.body else { return };
        if *known == ifindex {
            return;
        }
        match device.datapath.own_device_index(device.dp_port) {
            // One of ours: here, possibly back from another namespace, or still there.
            Some(present) => *known = present,
            None => self.reopen(name, reactor),
        }
    }

    fn link_gone(&mut self, gone: impl Fn(u32) -> bool) {
        let lost = |d: &&Device| matches!(d.body, Body::Kernel(ifindex) if gone(ifindex));
        let names: Vec<String> = self.devices.values().filter(lost).map(|d| d.name.clone()).collect();
        for name in names {
            if let Some(device) = self.devices.get_mut(&name)
                && let Some(present) = device.datapath.own_device_index(device.dp_port)
            {
                let Body::Kernel(known) = &mut device.body else { continue };
                if std::mem::replace(known, present) != present && present == 0 {
                    log::info!(target: "netdev_linux", "device {name} was moved into another namespace; it stays a port");
                }
                continue;
            }
            log::info!(target: "netdev_linux", "device {name} is gone");
            self.planner.device_gone(&name);
        }
    }

    /// Finds devices of ours that were deleted in another namespace, without an event.
    pub(super) fn drop_lost_devices(&mut self) {
        let lost = |d: &&Device| d.own_exists() == Some(false);
        let names: Vec<String> = self.devices.values().filter(lost).map(|d| d.name.clone()).collect();
        for name in names {
            log::info!(target: "netdev_linux", "device {name} is gone");
            self.planner.device_gone(&name);
        }
    }
}
