//! Counters of events that are rare, or that a new connection causes anyway.

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
    pub(crate) created: Counter,
    pub(crate) ended: Counter,
    /// Not committed: all places are taken.
    pub(crate) full: Counter,
    /// Not committed: the zone is at its limit.
    pub(crate) zone_full: Counter,
    /// Not committed: no translated tuple is free.
    pub(crate) no_tuple: Counter,
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
    /// Connections created.
    pub created: u64,
    /// Connections ended.
    pub ended: u64,
    /// Not committed: all places were taken, or kept for other ports.
    pub full: u64,
    /// Not committed: the zone was at its limit.
    pub zone_full: u64,
    /// Not committed: no translated tuple was free.
    pub no_tuple: u64,
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
            created: self.created.get(),
            ended: self.ended.get(),
            full: self.full.get(),
            zone_full: self.zone_full.get(),
            no_tuple: self.no_tuple.get(),
            out_of_window: self.out_of_window.get(),
            invalid: self.invalid.get(),
            expectations_full: self.expectations_full.get(),
            not_rewritten: self.not_rewritten.get(),
        }
    }
}
