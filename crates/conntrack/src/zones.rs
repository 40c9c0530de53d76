//! Counts and limits of zones.
//!
//! A zone has one cache line; commits, ends and refusals write it, established connections do not. Lines of 64 zones
//! are allocated together when the first of them is used, so 65,536 zones take 4 MB. Readers visit zones in use only.

use dpif::{CtCounts, CtRefusal};
use sync::{AtomicU32, AtomicU64, OnceLock, Ordering};

/// Zones of an allocated part.
const PART: usize = 64;
const PARTS: usize = (1 << 16) / PART;
/// Stored for "no limit is set".
pub(crate) const NO_LIMIT: u32 = u32::MAX;

/// A limit that is set.
pub(crate) fn load_limit(slot: &AtomicU32) -> Option<u32> {
    Some(slot.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
}

pub(crate) fn store_limit(slot: &AtomicU32, limit: Option<u32>) {
    slot.store(limit.map_or(NO_LIMIT, |limit| limit.min(NO_LIMIT - 1)), Ordering::Relaxed);
}

/// A zone: connections, counters and its own limit.
#[repr(align(64))]
pub(crate) struct Zone {
    connections: AtomicU32,
    limit: AtomicU32,
    created: AtomicU64,
    ended: AtomicU64,
    refused: [AtomicU64; CtRefusal::COUNT],
}

impl Zone {
    fn new() -> Zone {
        Zone {
            connections: AtomicU32::new(0),
            limit: AtomicU32::new(NO_LIMIT),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            refused: Default::default(),
        }
    }

    /// Takes a place below the limit.
    pub(crate) fn take(&self, limit: Option<u32>) -> Result<(), CtRefusal> {
        if self.connections.fetch_add(1, Ordering::Relaxed) < limit.unwrap_or(u32::MAX) {
            return Ok(());
        }
        self.give_back();
        Err(CtRefusal::ZoneLimit)
    }

    /// Takes a place, below the limit or not.
    pub(crate) fn take_anyway(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_created(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn count_refused(&self, why: CtRefusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Its own limit.
    pub(crate) fn limit(&self) -> Option<u32> {
        load_limit(&self.limit)
    }

    pub(crate) fn set_limit(&self, limit: Option<u32>) {
        store_limit(&self.limit, limit);
    }

    /// Its counters, or `None` while all are 0.
    pub(crate) fn counts(&self) -> Option<CtCounts> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read first: each connection counts as created before it can end.
        let ended = self.ended.load(Ordering::Acquire);
        let counts = CtCounts {
            connections: self.connections(),
            created: value(&self.created),
            ended,
            refused: self.refused.each_ref().map(value),
        };
        Some(counts).filter(|counts| *counts != CtCounts::default())
    }
}

/// All zones.
pub(crate) struct Zones(Box<[OnceLock<Box<[Zone]>>]>);

impl Zones {
    pub(crate) fn new() -> Zones {
        Zones((0..PARTS).map(|_| OnceLock::new()).collect())
    }

    /// A zone, which is in use from now on.
    pub(crate) fn used(&self, zone: u16) -> &Zone {
        let part = || (0..PART).map(|_| Zone::new()).collect();
        &self.0[usize::from(zone) / PART].get_or_init(part)[usize::from(zone) % PART]
    }

    /// A zone, unless none of its part is in use.
    pub(crate) fn get(&self, zone: u16) -> Option<&Zone> {
        self.0[usize::from(zone) / PART].get().map(|part| &part[usize::from(zone) % PART])
    }

    /// All zones of allocated parts, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Zone)> {
        let parts = self.0.iter().enumerate().filter_map(|(n, part)| Some((n * PART, part.get()?)));
        parts.flat_map(|(first, part)| (first..).zip(part).map(|(n, zone)| (n as u16, zone)))
    }
}

#[cfg(test)]
mod tests;
