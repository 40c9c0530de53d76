//! Barriers that cover the datapath: once one is reached, no packet that arrives later follows rules replaced before.
//!
//! A change of the tables starts an epoch. It is *covered* once no translation that began before it is under way, and
//! no flow in the datapath is affected by it. Often no flow is affected, which `Backer::covers` finds out at once
//! if there are few flows. Otherwise the revalidator checks all flows (`revalidate::cover`): it translates the
//! affected ones again and waits until the datapath has their new actions.
//!
//! Connections wait at most [`PATIENCE_MS`]; they do not wait while revalidation is held.

use std::collections::BTreeMap;
use sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// Maximum time that a barrier waits for the datapath, in milliseconds.
pub const PATIENCE_MS: u64 = 1000;

/// State of the barriers of one datapath.
#[derive(Debug, Default)]
pub struct DatapathBarrier {
    /// The datapath follows the tables of this epoch or a later one.
    covered: AtomicU64,
    /// A connection waits for this epoch.
    wanted: AtomicU64,
    /// Translations under way, by epoch.
    translating: Mutex<BTreeMap<u64, u32>>,
    /// The revalidator is paused (`revalidator/pause`).
    pub paused: AtomicBool,
    /// It rests until rules are restored (`flow-restore-wait`).
    pub resting: AtomicBool,
    /// Barriers that waited for the datapath.
    pub waits: AtomicU64,
    /// Barriers that were answered after [`PATIENCE_MS`], before the datapath was covered.
    pub timeouts: AtomicU64,
}

/// A batch of translations under way; ends when dropped.
pub(crate) struct Translating<'a> {
    barrier: &'a DatapathBarrier,
    /// Their epoch.
    pub(crate) epoch: u64,
}

impl Drop for Translating<'_> {
    fn drop(&mut self) {
        self.barrier.end(self.epoch);
    }
}

impl DatapathBarrier {
    /// Whether the revalidator changes no flows for now.
    pub fn is_held(&self) -> bool {
        self.paused.load(Ordering::Acquire) || self.resting.load(Ordering::Acquire)
    }

    /// The epoch that a connection waits for, unless it is covered.
    pub fn wanted(&self) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted > self.covered()).then_some(wanted)
    }

    /// The last covered epoch.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Records that an epoch is covered.
    pub fn set_covered(&self, epoch: u64) {
        self.covered.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Has the revalidator cover an epoch.
    pub fn want(&self, epoch: u64) {
        self.wanted.fetch_max(epoch, Ordering::AcqRel);
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether translations of an earlier epoch are under way.
    pub(crate) fn translates_before(&self, epoch: u64) -> bool {
        lock(&self.translating).first_key_value().is_some_and(|(first, _)| *first < epoch)
    }

    /// Begins a batch of translations at the epoch that `epoch` reads.
    pub(crate) fn begin(&self, epoch: impl FnOnce() -> u64) -> Translating<'_> {
        // Under the lock, so that a barrier after an epoch's start sees all batches that read an earlier one.
        let mut translating = lock(&self.translating);
        let epoch = epoch();
        *translating.entry(epoch).or_default() += 1;
        drop(translating);
        Translating { barrier: self, epoch }
    }

    fn end(&self, epoch: u64) {
        let mut translating = lock(&self.translating);
        if let Some(n) = translating.get_mut(&epoch) {
            *n -= 1;
            if *n == 0 {
                translating.remove(&epoch);
            }
        }
    }
}
