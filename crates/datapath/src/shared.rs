//! [`DpShared`]: state shared by all forwarding cores of a datapath: meters, connections.

use crate::meter::{self, Meters};
use conntrack::Tracker;
use std::sync::OnceLock;

/// See the module.
pub struct DpShared {
    pub(crate) meters: Meters,
    /// Secret.
    seed: u64,
    /// Made when first used: it takes some megabytes.
    tracker: OnceLock<Tracker>,
}

impl DpShared {
    /// Without meters and connections; `seed` is secret.
    pub fn new(seed: u64) -> DpShared {
        DpShared { meters: meter::none(), seed, tracker: OnceLock::new() }
    }

    /// Its connection tracker.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        self.tracker.get_or_init(|| Tracker::new(self.seed))
    }

    /// The same, unless nothing was tracked or configured yet.
    pub fn tracker_in_use(&self) -> Option<&Tracker> {
        self.tracker.get()
    }
}
