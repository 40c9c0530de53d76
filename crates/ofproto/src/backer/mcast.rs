//! Multicast groups of bridges: aging, flushing, and the flows that a change affects.

use super::{Backer, count};
use crate::changes::Change;
use crate::ids::BridgeId;
use crate::mcast::McastChange;
use crate::view::BridgeView;
use sync::lock;

impl Backer {
    /// Ages the groups and routers of a bridge.
    pub(super) fn expire_mcast(&self, bridge: &BridgeView, now_ms: u64) {
        if let Some(groups) = &bridge.mcast {
            let changes = lock(groups).expire(now_ms);
            self.mcast_changed(bridge.id, &changes);
        }
    }

    /// Has flows checked that looked at these groups and routers of a bridge.
    pub fn mcast_changed(&self, bridge: BridgeId, changes: &[McastChange]) {
        if changes.is_empty() {
            return;
        }
        count(&self.revisions.mcast);
        let change = |change: &McastChange| match change {
            McastChange::Group(key) => Change::MulticastGroup(bridge, *key),
            McastChange::Routers(vlan) => Change::MulticastRouters(bridge, *vlan),
        };
        self.changes.record(Some(changes.iter().map(change).collect()));
    }

    /// Forgets all multicast groups of a bridge.
    pub fn flush_mcast(&self, bridge: &BridgeView) {
        if bridge.mcast.as_ref().is_some_and(|groups| lock(groups).flush()) {
            count(&self.revisions.mcast);
            self.bump_epoch();
        }
    }
}
