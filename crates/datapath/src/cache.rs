//! The signature cache, first stage of a lookup: 16 bits of a packet's hash → the id of a megaflow.
//!
//! A 64-byte bucket holds twelve entries. Some bits of the whole key's hash select the bucket, sixteen others the entry.
//! An entry is only a hint: a hit counts if the megaflow of that id, under its own mask, matches the packet. So
//! entries of deleted or replaced megaflows are harmless and never invalidated: the next insertion of the same
//! signature overwrites them.
//!
//! The size adapts to the traffic: it doubles while more than 1 % of lookups evict, and halves if so few lookups
//! occur that an eighth of the entries could not be in use. A resized cache starts empty; megaflow lookups fill it
//! again.

use crate::bucket::{BUCKET_ENTRIES, Bucket};

const WINDOW_LOOKUPS: u64 = 16 * 1024;
const BUCKETS_MIN: usize = 256;
/// Maximum number of buckets (64 KiB) that fit a processor's second-level cache.
const NEAR_BUCKETS: usize = 1024;
const IDLE_TICKS: u32 = 10;

/// The cache of one forwarding core, for a single thread.
pub(crate) struct SignatureCache {
    buckets: Box<[Bucket]>,
    buckets_max: usize,
    window_lookups: u64,
    window_evictions: u64,
    idle_lookups: u64,
    idle_ticks: u32,
    /// Evictions since the start.
    pub(crate) evictions: u64,
}

impl SignatureCache {
    /// A cache that grows up to `entries_max` entries (rounded to a power of two of buckets); 0 switches it off.
    pub(crate) fn new(entries_max: usize) -> SignatureCache {
        let buckets_max = match entries_max / BUCKET_ENTRIES {
            0 => 0,
            n => n.next_power_of_two().max(BUCKETS_MIN),
        };
        let buckets = if buckets_max == 0 { 0 } else { BUCKETS_MIN };
        SignatureCache {
            buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(),
            buckets_max,
            window_lookups: 0,
            window_evictions: 0,
            idle_lookups: 0,
            idle_ticks: 0,
            evictions: 0,
        }
    }

    /// Enables it, empty, or disables it and frees its memory.
    pub(crate) fn set_on(&mut self, on: bool) {
        let on = on && self.buckets_max != 0;
        if on != self.is_on() {
            self.resize(if on { BUCKETS_MIN } else { 0 });
        }
    }

    /// Whether it is enabled.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Its current capacity in entries.
    pub(crate) fn entries(&self) -> usize {
        self.buckets.len() * BUCKET_ENTRIES
    }

    /// Whether it is large enough to benefit from prefetching.
    #[inline(always)]
    pub(crate) fn worth_prefetching(&self) -> bool {
        self.buckets.len() > NEAR_BUCKETS
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        simd::prefetch(&self.buckets[self.bucket_of(hash)]);
    }

    /// The first megaflow of the packet's signature, unconfirmed: any id, or none.
    #[inline(always)]
    pub(crate) fn hint(&self, hash: u64) -> Option<u32> {
        self.buckets[self.bucket_of(hash)].first(Bucket::signature(hash))
    }

    /// The megaflow that `confirm` accepts among those of the packet's signature.
    #[inline]
    pub(crate) fn find(&self, hash: u64, confirm: impl FnMut(u32) -> bool) -> Option<u32> {
        self.buckets[self.bucket_of(hash)].find(Bucket::signature(hash), confirm)
    }

    /// Counts lookups, for the sizing.
    #[inline]
    pub(crate) fn count_lookups(&mut self, lookups: u64) {
        self.window_lookups += lookups;
        if self.window_lookups >= WINDOW_LOOKUPS {
            self.end_window();
        }
    }

    /// Inserts megaflow `id` for a packet of this hash, with probability one in `one_in`. A skipped insertion counts
    /// as an eviction where it would have evicted.
    pub(crate) fn insert(&mut self, hash: u64, id: u32, one_in: u32) {
        let (signature, at) = (Bucket::signature(hash), self.bucket_of(hash));
        let bucket = &mut self.buckets[at];
        let same = bucket.probe(signature);
        let entry = if same != 0 {
            same.trailing_zeros() as usize
        } else if let Some(free) = bucket.free() {
            free
        } else {
            // The bucket's note is the entry to evict next.
            let victim = usize::from(bucket.note);
            bucket.note = ((victim + 1) % BUCKET_ENTRIES) as u8;
            self.window_evictions += u64::from(one_in);
            self.evictions += 1;
            victim
        };
        bucket.set(entry, signature, id);
    }

    fn end_window(&mut self) {
        let thrashes = self.window_evictions * 100 > self.window_lookups;
        self.idle_lookups += self.window_lookups;
        self.window_lookups = 0;
        self.window_evictions = 0;
        if thrashes && self.is_on() && self.buckets.len() < self.buckets_max {
            self.resize(self.buckets.len() * 2);
        }
    }

    fn resize(&mut self, buckets: usize) {
        self.buckets = vec![Bucket::EMPTY; buckets].into_boxed_slice();
        self.idle_lookups = 0;
        self.idle_ticks = 0;
    }

    /// Call about once a second: shrinks a rarely used cache.
    pub(crate) fn tick(&mut self) {
        self.idle_ticks += 1;
        if self.idle_ticks < IDLE_TICKS {
            return;
        }
        let lookups = self.idle_lookups + self.window_lookups;
        self.idle_ticks = 0;
        self.idle_lookups = 0;
        self.window_lookups = 0;
        self.window_evictions = 0;
        if lookups < self.entries() as u64 / 8 && self.buckets.len() > BUCKETS_MIN {
            self.resize(self.buckets.len() / 2);
        }
    }
}
