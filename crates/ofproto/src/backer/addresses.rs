//! Learned addresses after a change of ports.
//!
//! As in OVS, a bundle with other VLAN settings loses its addresses, static ones included, and its multicast groups. A removed bundle also takes
//! the same VLANs and addresses from all other bridges, which learned them through patch ports.

use crate::ids::BridgeId;
use crate::ports::PortTable;
use crate::view::View;
use sync::lock;

/// Forgets addresses that are invalid once the bridge has these ports.
pub(super) fn follow(view: &View, id: BridgeId, ports: &PortTable) {
    let Some(bridge) = view.bridges.get(&id) else { return };
    let mut gone = Vec::new();
    for (number, old) in &bridge.ports.bundles {
        match ports.bundles.get(number) {
            Some(new) if new.keeps_macs(old) => continue,
            Some(_) => drop(lock(&bridge.macs).forget_bundle(*number)),
            None => gone.extend(lock(&bridge.macs).forget_bundle(*number)),
        }
        if let Some(groups) = &bridge.mcast {
            lock(groups).forget_bundle(*number);
        }
    }
    if let Some(groups) = &bridge.mcast {
        ports.flag(groups);
    }
    for other in view.bridges.values().filter(|other| !gone.is_empty() && other.id != id) {
        let mut macs = lock(&other.macs);
        for (vlan, mac) in &gone {
            macs.remove(*vlan, *mac);
        }
    }
}

#[cfg(test)]
mod tests;
