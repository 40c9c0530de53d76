//! Learned addresses of bridges.

use super::Backer;
use super::revisions::count;
use crate::ids::{BridgeId, BundleId};
use sync::lock;

impl Backer {
    /// Flushes learned addresses and multicast groups of a bridge, or those of one bundle of it.
    pub fn flush_learned(&self, bridge: BridgeId, bundle: Option<BundleId>) {
        let view = self.view();
        let Some(b) = view.bridge(bridge) else { return };
        let flushed = lock(&b.macs).flush(bundle);
        match (bundle, &b.mcast) {
            (None, _) => self.flush_mcast(b),
            (Some(bundle), Some(groups)) => lock(groups).forget_bundle(bundle),
            (Some(_), None) => {}
        }
        if flushed || bundle.is_some() && b.mcast.is_some() {
            self.macs_changed();
        }
    }

    /// Moves the learned addresses of a bundle to another one.
    pub fn move_learned(&self, bridge: BridgeId, from: BundleId, to: BundleId) {
        let view = self.view();
        if view.bridge(bridge).is_some_and(|b| lock(&b.macs).move_bundle(from, to)) {
            self.macs_changed();
        }
    }

    /// Has every flow checked again, as learned addresses changed.
    pub fn macs_changed(&self) {
        count(&self.revisions.macs);
        self.bump_epoch();
    }
}
