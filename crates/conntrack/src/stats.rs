//! Counters of rare events. Counters of new and ended connections are by zone ([`crate::zones`]).

use sync::{AtomicU64, CachePadded, Ordering};

/// A counter that no other shares a cache line with.
#[derive(Default)]
pub(crate) struct Counter(CachePadded<AtomicU64>);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a tracker.
#[derive(Default)]
pub(crate) struct Stats {
    /// Segments outside of the window.
    pub(crate) out_of_window: Counter,
    /// Other invalid packets.
    pub(crate) invalid: Counter,
    /// Announced connections that are not expected: too many are.
    pub(crate) expectations_full: Counter,
    /// Announced addresses that were not rewritten: no room.
    pub(crate) not_rewritten: Counter,
}

/// Values of a tracker's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrackerStats {
    /// TCP segments outside of the window.
    pub out_of_window: u64,
    /// Other invalid packets.
    pub invalid: u64,
    /// Announced connections that are not expected, because too many are.
    pub expectations_full: u64,
    /// Announced addresses that were not rewritten, because the packet or the sum of changes has no room.
    pub not_rewritten: u64,
}

impl Stats {
    pub(crate) fn values(&self) -> TrackerStats {
        TrackerStats {
            out_of_window: self.out_of_window.get(),
            invalid: self.invalid.get(),
            expectations_full: self.expectations_full.get(),
            not_rewritten: self.not_rewritten.get(),
        }
    }
}
