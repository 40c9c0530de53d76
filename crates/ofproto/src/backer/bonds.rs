//! Changes of bonds, and their recirculation ids.

use super::{Backer, count};
use crate::changes::Change;
use crate::ids::{BridgeId, BundleId};
use crate::recirc::FrozenState;
use flow::RecircId;
use sync::{Ordering, lock};

impl Backer {
    /// Has flows checked that depend on the members of a bond.
    pub fn bond_changed(&self, bridge: BridgeId, bundle: BundleId) {
        count(&self.revisions.bonds);
        self.changes.record(Some(vec![Change::Bond(bridge, bundle)]));
    }

    /// Holds the recirculation id of a bond; `None` if none is left.
    pub fn hold_bond(&self, bridge: BridgeId, bundle: BundleId) -> Option<RecircId> {
        lock(&self.recirc).hold_state(FrozenState::of_bond(bridge, bundle))
    }

    /// Begin of the last complete dump.
    pub fn dumped_ms(&self) -> u64 {
        self.dumped_ms.load(Ordering::Acquire)
    }
}
