//! [`Index`]: from the hash of a key to the place of its record, read by all forwarding threads without a lock.
//!
//! A linear hash table of buckets of one cache line: a head word and seven entries. An entry holds 31 bits of the hash
//! and a 33-bit tag of the caller (place and direction); the caller compares keys. It grows by one bucket at a time, when an
//! insertion finds more entries than [`LOAD`] per bucket, so no insertion waits for a copy of the table. Buckets never
//! move and are never freed: a reader needs no pin.
//!
//! - A reader scans the bucket and its overflow chain. An entry that the caller accepts is the result. Without one, it
//!   scans again if the bucket's entries moved meanwhile (a split or a shortened chain); insertions and removals do not
//!   disturb it.
//! - A writer locks the bucket: a bit in the head, held for some tens of nanoseconds.
//! - Two entries are inserted together, under the locks of both buckets, so either both are new or none is inserted.

use crate::lookups;
use simd::Pages;
use std::ops::Deref;
use sync::{AtomicU32, AtomicU64, Backoff, Mutex, OnceLock, Ordering, lock};

/// Entries of a bucket.
const ENTRIES: usize = 7;
/// Average entries per bucket at which the table grows, times two. A bucket that is not split yet holds twice
/// the entries of a split one, so at 3 up to 1.8 % of the entries are in overflow buckets (at 4.5: 7.2 %). These are not
/// prefetched.
const LOAD_TIMES_2: u64 = 6;
/// Buckets of an allocated part: 2 MB, a large page.
const PART: usize = 1 << 15;
/// Maximum buckets; they hold 100 million entries at [`LOAD_TIMES_2`].
const BUCKETS_MAX: u64 = 1 << 25;
/// Buckets at first.
const BUCKETS_MIN: u64 = 64;
/// Maximum overflow buckets.
const OVERFLOW_MAX: usize = 1 << 22;

const LOCKED: u64 = 1;
/// Counts moves of entries, by two: odd while they move.
const VERSION: u64 = 1 << 1;
const VERSION_BITS: u64 = 0xffff_fffe;
const LINK_SHIFT: u32 = 32;

/// Place and direction of a record, as the caller packs them: 33 bits, not zero.
pub(crate) type Tag = u64;

const TAG_BITS: u32 = 33;

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Bucket {
    /// Lock, version of moves, and the number of the first overflow bucket. Overflow buckets use the last alone.
    head: AtomicU64,
    entries: [AtomicU64; ENTRIES],
}

impl Bucket {
    /// A bit for each entry with that signature, empty ones included.
    ///
    /// Without a branch for each entry: the place of the right one is hard to predict.
    #[inline(always)]
    fn probe(&self, signature: u64) -> u32 {
        let bit = |n: usize| u32::from(self.entry(n) >> TAG_BITS == signature) << n;
        (0..ENTRIES).fold(0, |hits, n| hits | bit(n))
    }

    /// An entry; it may have changed since it was probed.
    #[inline(always)]
    fn entry(&self, n: usize) -> u64 {
        self.entries[n].load(Ordering::Acquire)
    }

    fn link(&self) -> u32 {
        (self.head.load(Ordering::Acquire) >> LINK_SHIFT) as u32
    }

    /// Holder of the chain's lock only.
    fn set_link(&self, to: u32) {
        let head = self.head.load(Ordering::Relaxed);
        let new = head & !(u64::from(u32::MAX) << LINK_SHIFT) | u64::from(to) << LINK_SHIFT;
        self.head.store(new, Ordering::Release);
    }

    fn lock(&self) {
        let backoff = Backoff::new();
        loop {
            let head = self.head.load(Ordering::Relaxed) & !LOCKED;
            let taken =
                self.head.compare_exchange_weak(head, head | LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return;
            }
            backoff.snooze();
        }
    }

    fn unlock(&self) {
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(head & !LOCKED, Ordering::Release);
    }

    /// Begins or ends a move of entries. Holder of the lock only.
    fn step_version(&self) {
        let head = self.head.load(Ordering::Relaxed);
        let version = head.wrapping_add(VERSION) & VERSION_BITS;
        // An acquiring exchange: the moves that follow are not seen before it.
        self.head.swap(head & !VERSION_BITS | version, Ordering::AcqRel);
    }
}

type Part = OnceLock<Pages<Bucket, PART>>;

#[inline(always)]
fn part_of(parts: &[Part], at: u64) -> &Bucket {
    let part = &parts[at as usize / PART];
    &part.get().map_or_else(|| new_part(part), Deref::deref)[at as usize % PART]
}

#[cold]
fn new_part(part: &Part) -> &[Bucket; PART] {
    part.get_or_init(|| Pages::new(Bucket::default))
}

/// A refused insertion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// An entry of the first or second key exists.
    Exists(usize, Tag),
    /// No overflow bucket is free.
    Full,
}

/// See the module.
pub(crate) struct Index {
    parts: Box<[Part]>,
    /// Buckets in use.
    buckets: AtomicU64,
    entries: AtomicU64,
    /// Held while the table grows by a bucket.
    growth: Mutex<()>,
    overflow: Box<[Part]>,
    free: Mutex<Vec<u32>>,
    overflow_used: AtomicU32,
}

impl Index {
    pub(crate) fn new() -> Index {
        let parts = |buckets: usize| (0..buckets / PART).map(|_| Part::new()).collect();
        Index {
            parts: parts(BUCKETS_MAX as usize),
            buckets: AtomicU64::new(BUCKETS_MIN),
            entries: AtomicU64::new(0),
            growth: Mutex::new(()),
            overflow: parts(OVERFLOW_MAX),
            free: Mutex::new(Vec::new()),
            // Number 0 is "none".
            overflow_used: AtomicU32::new(1),
        }
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Panics unless each overflow bucket is free or in one chain, and each entry is in the bucket of its hash.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut numbers = lock(&self.free).clone();
        for at in 0..self.buckets() {
            let (mut of, mut chain) = (self.bucket(at), 0);
            assert_eq!(of.head.load(Ordering::Relaxed) & (LOCKED | VERSION), 0, "bucket {at} is locked");
            loop {
                for entry in &of.entries {
                    let entry = entry.load(Ordering::Relaxed);
                    assert!(entry == 0 || self.address(entry >> TAG_BITS) == at, "an entry of bucket {at}");
                }
                match of.link() {
                    0 => break,
                    link => {
                        chain += 1;
                        assert!(chain < OVERFLOW_MAX, "the chain of bucket {at} has no end");
                        numbers.push(link);
                        of = part_of(&self.overflow, link.into());
                    }
                }
            }
        }
        numbers.sort_unstable();
        let used = self.overflow_used.load(Ordering::Relaxed);
        assert!(numbers.iter().copied().eq(1..used), "of {used} overflow buckets: {numbers:?}");
    }

    /// Number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed)
    }

    /// Buckets that the two entries of each of that many connections take.
    pub(crate) fn buckets_of(connections: u32) -> u64 {
        u64::from(connections) * 2 * 2 / LOAD_TIMES_2
    }

    /// Takes the memory of that many further buckets.
    pub(crate) fn prepare(&self, ahead: u64) {
        let end = (self.buckets() + ahead).min(BUCKETS_MAX);
        (self.buckets()..end).step_by(PART).chain(end.checked_sub(1)).for_each(|at| {
            self.bucket(at);
        });
    }

    /// Entries that `counts_tag` accepts by bucket, or by groups of buckets if there are more than `most`.
    pub(crate) fn entries_by_bucket(&self, most: u64, counts_tag: impl Fn(Tag) -> bool) -> Vec<u32> {
        let buckets = self.buckets();
        let group = buckets.div_ceil(most).max(1);
        let mut counts = vec![0; buckets.div_ceil(group) as usize];
        for at in 0..buckets {
            let mut of = self.bucket(at);
            let mut left = OVERFLOW_MAX;
            loop {
                let values = of.entries.iter().map(|e| e.load(Ordering::Relaxed)).filter(|value| *value != 0);
                let there = values.filter(|value| counts_tag(tag_of(*value))).count();
                counts[(at / group) as usize] += there as u32;
                left -= 1;
                match of.link() {
                    0 => break,
                    _ if left == 0 => break,
                    link => of = part_of(&self.overflow, link.into()),
                }
            }
        }
        counts
    }

    /// The bucket of a hash.
    #[inline(always)]
    pub(crate) fn address(&self, hash: u64) -> u64 {
        address(hash, self.buckets.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn bucket(&self, at: u64) -> &Bucket {
        part_of(&self.parts, at)
    }

    /// Fetches the present bucket of a hash into the processor's cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> &Bucket {
        let bucket = self.bucket(self.address(hash));
        simd::prefetch(bucket);
        bucket
    }

    /// An entry of a hash in its bucket, without the overflow chain. It may be another key's, changes meanwhile, and
    /// may be in another bucket since.
    #[inline(always)]
    pub(crate) fn first(bucket: &Bucket, hash: u64) -> Option<Tag> {
        lookups::count();
        let hits = bucket.probe(signature(hash));
        let entry = if hits == 0 { 0 } else { bucket.entry(hits.trailing_zeros() as usize) };
        (entry != 0).then(|| tag_of(entry))
    }

    /// The first entry of a hash that `accept` takes.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u64, mut accept: impl FnMut(Tag) -> Option<R>) -> Option<R> {
        lookups::count();
        let wanted = signature(hash);
        let backoff = Backoff::new();
        loop {
            let at = self.address(hash);
            let bucket = self.bucket(at);
            let head = bucket.head.load(Ordering::Acquire);
            let (mut of, mut link) = (bucket, (head >> LINK_SHIFT) as u32);
            loop {
                let mut hits = of.probe(wanted);
                while hits != 0 {
                    let entry = of.entry(hits.trailing_zeros() as usize);
                    if entry != 0
                        && let Some(result) = accept(tag_of(entry))
                    {
                        return Some(result);
                    }
                    hits &= hits - 1;
                }
                // A chain that changes while it is read may lead into another one, or back; the version tells.
                if link == 0 || has_moved(head, bucket) {
                    break;
                }
                of = part_of(&self.overflow, link.into());
                link = of.link();
            }
            if !has_moved(head, bucket) && self.address(hash) == at {
                return None;
            }
            backoff.snooze();
        }
    }

    /// Locks the buckets of two hashes; returns their places.
    fn lock_both(&self, hashes: [u64; 2]) -> [u64; 2] {
        loop {
            let at = hashes.map(|hash| self.address(hash));
            let (low, high) = (at[0].min(at[1]), at[0].max(at[1]));
            self.bucket(low).lock();
            if high != low {
                self.bucket(high).lock();
            }
            // A split holds the lock of the bucket while it publishes the new number of buckets.
            if hashes.map(|hash| self.address(hash)) == at {
                return at;
            }
            self.unlock_both(at);
        }
    }

    fn unlock_both(&self, at: [u64; 2]) {
        self.bucket(at[0]).unlock();
        if at[0] != at[1] {
            self.bucket(at[1]).unlock();
        }
    }

    /// Inserts two entries, unless `same` says of an entry that it has the first (0) or second (1) key. Entries of
    /// records that end are no obstacle.
    pub(crate) fn insert_both(
        &self,
        hashes: [u64; 2],
        tags: [Tag; 2],
        mut same: impl FnMut(Tag, usize) -> bool,
    ) -> Result<(), Refused> {
        let at = self.lock_both(hashes);
        let mut result = Ok(());
        for (n, hash) in hashes.into_iter().enumerate() {
            let exists = self.find(hash, |tag| same(tag, n).then_some(tag));
            if let Some(tag) = exists {
                result = Err(Refused::Exists(n, tag));
                break;
            }
        }
        if result.is_ok() {
            result = match self.put(at[1], hashes[1], tags[1]) {
                false => Err(Refused::Full),
                true if tags[0] == tags[1] || self.put(at[0], hashes[0], tags[0]) => Ok(()),
                true => {
                    self.take(at[1], hashes[1], tags[1]);
                    Err(Refused::Full)
                }
            };
        }
        self.unlock_both(at);
        if result.is_ok() {
            let added = if tags[0] == tags[1] { 1 } else { 2 };
            let entries = self.entries.fetch_add(added, Ordering::Relaxed) + added;
            if entries * 2 > self.buckets() * LOAD_TIMES_2 {
                self.grow();
            }
        }
        result
    }

    /// Removes an entry; returns whether it was there.
    pub(crate) fn remove(&self, hash: u64, tag: Tag) -> bool {
        let at = self.lock_both([hash, hash]);
        let removed = self.take(at[0], hash, tag);
        self.unlock_both(at);
        if removed {
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Writes an entry into a locked bucket.
    fn put(&self, at: u64, hash: u64, tag: Tag) -> bool {
        let value = signature(hash) << TAG_BITS | tag;
        let mut of = self.bucket(at);
        loop {
            if let Some(entry) = of.entries.iter().find(|e| e.load(Ordering::Relaxed) == 0) {
                entry.store(value, Ordering::Release);
                return true;
            }
            match of.link() {
                0 => break,
                link => of = part_of(&self.overflow, link.into()),
            }
        }
        let Some(number) = self.new_overflow() else { return false };
        let added = part_of(&self.overflow, number.into());
        // Releasing: a reader that is here from the bucket's former chain sees that chain's version moved.
        added.head.store(0, Ordering::Release);
        added.entries[0].store(value, Ordering::Release);
        of.set_link(number);
        true
    }

    /// Clears an entry of a locked bucket, and frees overflow buckets that become empty.
    fn take(&self, at: u64, hash: u64, tag: Tag) -> bool {
        let value = signature(hash) << TAG_BITS | tag;
        let first = self.bucket(at);
        let mut before: Option<&Bucket> = None;
        let (mut of, mut number) = (first, 0);
        loop {
            if let Some(entry) = of.entries.iter().find(|e| e.load(Ordering::Relaxed) == value) {
                entry.store(0, Ordering::Release);
                if let Some(before) = before
                    && of.entries.iter().all(|e| e.load(Ordering::Relaxed) == 0)
                {
                    first.step_version();
                    before.set_link(of.link());
                    first.step_version();
                    self.give_back(&[number]);
                }
                return true;
            }
            number = of.link();
            if number == 0 {
                return false;
            }
            before = Some(of);
            of = part_of(&self.overflow, number.into());
        }
    }

    /// Frees overflow buckets, empty but for values that a split has moved.
    fn give_back(&self, numbers: &[u32]) {
        for number in numbers {
            let entries = &part_of(&self.overflow, u64::from(*number)).entries;
            entries.iter().for_each(|entry| entry.store(0, Ordering::Release));
        }
        lock(&self.free).extend(numbers);
    }

    fn new_overflow(&self) -> Option<u32> {
        if let Some(number) = lock(&self.free).pop() {
            return Some(number);
        }
        let next = self.overflow_used.fetch_add(1, Ordering::Relaxed);
        if next as usize >= OVERFLOW_MAX {
            self.overflow_used.store(OVERFLOW_MAX as u32, Ordering::Relaxed);
            return None;
        }
        Some(next)
    }

    /// Splits one bucket, unless another thread does.
    fn grow(&self) {
        let Ok(_guard) = self.growth.try_lock() else { return };
        let new = self.buckets();
        if new >= BUCKETS_MAX {
            return;
        }
        let bit = 1 << new.ilog2();
        let (from, to) = (self.bucket(new & !bit), self.bucket(new));
        let (mut values, mut chain) = (Vec::with_capacity(2 * ENTRIES), Vec::new());
        from.lock();
        to.lock();
        let mut of = from;
        loop {
            let there = of.entries.iter().map(|entry| entry.load(Ordering::Relaxed));
            values.extend(there.filter(|value| *value != 0));
            match of.link() {
                0 => break,
                link => {
                    chain.push(link);
                    of = part_of(&self.overflow, link.into());
                }
            }
        }
        // Together the new chains need no more overflow buckets than the old one has: there is one more first bucket.
        let (moving, staying): (Vec<u64>, Vec<u64>) =
            values.into_iter().partition(|value| (value >> TAG_BITS) & bit != 0);
        // From here on readers of the bucket wait, so only stores follow.
        from.step_version();
        self.fill(from, &staying, &mut chain);
        self.fill(to, &moving, &mut chain);
        self.buckets.store(new + 1, Ordering::Release);
        from.step_version();
        to.unlock();
        from.unlock();
        self.give_back(&chain);
    }

    /// Writes the entries of a locked bucket over those it has; takes overflow buckets from `chain`.
    fn fill(&self, first: &Bucket, values: &[u64], chain: &mut Vec<u32>) {
        let mut of = first;
        of.set_link(0);
        if values.is_empty() {
            of.entries.iter().for_each(|entry| entry.store(0, Ordering::Release));
        }
        for (n, some) in values.chunks(ENTRIES).enumerate() {
            if n != 0 {
                let number =
                    chain.pop().expect("a chain has an overflow bucket for each part of its entries");
                of.set_link(number);
                of = part_of(&self.overflow, number.into());
                of.set_link(0);
            }
            let padded = some.iter().copied().chain(std::iter::repeat(0));
            for (entry, value) in of.entries.iter().zip(padded) {
                entry.store(value, Ordering::Release);
            }
        }
    }
}

/// Whether entries of a bucket moved since its head was read, or were moving then.
fn has_moved(head: u64, bucket: &Bucket) -> bool {
    head & VERSION != 0 || (head ^ bucket.head.load(Ordering::Acquire)) & VERSION_BITS != 0
}

/// The low bits of a hash: an entry's signature, whose lowest bits also address the bucket.
#[inline(always)]
fn signature(hash: u64) -> u64 {
    hash & ((1 << (64 - TAG_BITS)) - 1)
}

/// The tag of an entry.
#[inline(always)]
fn tag_of(entry: u64) -> Tag {
    entry & ((1 << TAG_BITS) - 1)
}

/// The bucket of a hash among `buckets`: by as many bits as address all of them, or one bit less.
#[inline]
fn address(hash: u64, buckets: u64) -> u64 {
    let mask = buckets.next_power_of_two() - 1;
    let at = signature(hash) & mask;
    // Without a branch, which could not be predicted.
    at & (mask >> u32::from(at >= buckets))
}

#[cfg(test)]
mod tests;
