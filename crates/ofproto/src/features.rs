//! Features of a datapath as translations see them: those that it has, or fewer, as set by command.

use dpif::Capabilities;
use sync::{AtomicBool, Ordering, Snapshot};

/// Features set by command. While none is set, reading costs one load.
#[derive(Default)]
pub(crate) struct ChosenFeatures {
    any: AtomicBool,
    chosen: Snapshot<Option<Capabilities>>,
}

impl ChosenFeatures {
    /// The features in force, those of the datapath by default.
    pub(crate) fn of(&self, datapath: &Capabilities) -> Capabilities {
        match self.any.load(Ordering::Acquire) {
            true => self.chosen.load().unwrap_or(*datapath),
            false => *datapath,
        }
    }

    /// Sets them.
    pub(crate) fn set(&self, features: Capabilities) {
        self.chosen.store(Some(features).into());
        self.any.store(true, Ordering::Release);
    }
}
