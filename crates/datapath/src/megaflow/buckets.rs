//! A hash table from the hash of a key to a slot that grows incrementally, so that no packet waits for it.
//!
//! Extendible hashing (Fagin, Nievergelt, Pippenger, Strong 1979): the low bits of a hash select an entry of the
//! directory, which refers to a segment of sixteen [`Bucket`]s; other bits select the bucket there. A segment that is
//! three quarters full is split in two by the next bit of the hash, which moves about 144 entries for any size of
//! the table. The directory, four bytes for about ninety entries, doubles when a segment with a single directory
//! entry is split. The first segment begins with one bucket, since most masks have few flows.
//!
//! An entry whose bucket is full goes to the next bucket of its segment with space. Each bucket on the way counts it in
//! its note, so that a search knows where to stop. A count that reached 255 stays there.
//!
//! Segments are never merged: the memory of a table is freed when its last entry is removed.

use crate::bucket::{BUCKET_ENTRIES, Bucket};

/// Buckets of a segment before it is split.
const SEGMENT_BUCKETS: usize = 16;
/// The directory has at most 2^20 entries (4 MiB): a segment whose hashes agree in this many bits gets more buckets
/// instead.
const DEPTH_MAX: u32 = 20;

/// Segments freed at a time.
const FREED_AT_ONCE: usize = 64;

/// The entries whose hashes end in the same `depth` bits.
struct Segment {
    /// A power of two in number.
    buckets: Box<[Bucket]>,
    len: usize,
    depth: u32,
}

impl Segment {
    fn new(buckets: usize, depth: u32) -> Segment {
        Segment { buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(), len: 0, depth }
    }

    /// Other bits than those of the segment and the signature.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }

    fn is_full(&self) -> bool {
        (self.len + 1) * 4 > self.buckets.len() * BUCKET_ENTRIES * 3
    }

    fn place(&mut self, hash: u64, id: u32) {
        let mut at = self.home(hash);
        self.len += 1;
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(free) = bucket.free() {
                return bucket.set(free, Bucket::signature(hash), id);
            }
            bucket.note = bucket.note.saturating_add(1);
            at = self.after(at);
        }
    }

    fn remove(&mut self, hash: u64, id: u32) -> bool {
        let signature = Bucket::signature(hash);
        let mut at = self.home(hash);
        for passed in 0..self.buckets.len() {
            if let Some(entry) = self.buckets[at].position(signature, id) {
                self.buckets[at].clear(entry);
                self.len -= 1;
                self.forget_passing(hash, passed);
                return true;
            }
            at = self.after(at);
        }
        false
    }

    /// Removes an entry placed `passed` buckets behind its own from the counts of the buckets before it.
    fn forget_passing(&mut self, hash: u64, passed: usize) {
        let mut at = self.home(hash);
        for _ in 0..passed {
            let bucket = &mut self.buckets[at];
            if bucket.note != u8::MAX {
                bucket.note -= 1;
            }
            at = self.after(at);
        }
    }
}

/// See the module documentation. Ids are below [`crate::bucket::ID_LIMIT`]; the caller ensures that entries are
/// distinct.
#[derive(Default)]
pub(super) struct BucketTable {
    /// Segments by the low bits of a hash: empty, or a power of two of them.
    directory: Vec<u32>,
    segments: Vec<Segment>,
    len: usize,
}

impl BucketTable {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn segment_number(&self, hash: u64) -> Option<usize> {
        let at = hash as usize & self.directory.len().wrapping_sub(1);
        self.directory.get(at).map(|n| *n as usize)
    }

    #[inline(always)]
    fn segment(&self, hash: u64) -> Option<&Segment> {
        self.segments.get(self.segment_number(hash)?)
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.segment(hash).and_then(|s| s.buckets.get(s.home(hash))) {
            simd::prefetch(bucket);
        }
    }

    /// A candidate id for that hash.
    #[inline(always)]
    pub(super) fn hint(&self, hash: u64) -> Option<u32> {
        let segment = self.segment(hash)?;
        segment.buckets.get(segment.home(hash))?.first(Bucket::signature(hash))
    }

    /// The id of that hash accepted by `confirm`, which is called for few others.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, mut confirm: impl FnMut(u32) -> bool) -> Option<u32> {
        let segment = self.segment(hash)?;
        let signature = Bucket::signature(hash);
        let mut at = segment.home(hash);
        for _ in 0..segment.buckets.len() {
            let bucket = segment.buckets.get(at)?;
            if let Some(id) = bucket.find(signature, &mut confirm) {
                return Some(id);
            }
            if bucket.note == 0 {
                return None;
            }
            at = segment.after(at);
        }
        None
    }

    /// Adds an entry. `hash_of` gives the hashes of existing entries, for moving them.
    pub(super) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        match self.segment_number(hash) {
            None => {
                self.directory.push(0);
                self.segments.push(Segment::new(1, 0));
            }
            Some(n) if self.segments[n].is_full() => self.make_room(n, hash, hash_of),
            Some(_) => {}
        }
        let n = self.segment_number(hash).expect("the directory is not empty");
        self.segments[n].place(hash, id);
        self.len += 1;
    }

    /// Removes an entry, if present.
    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        let Some(n) = self.segment_number(hash) else { return };
        if self.segments[n].remove(hash, id) {
            self.len -= 1;
            if self.len == 0 {
                *self = BucketTable::default();
            }
        }
    }

    /// Frees some segments of a table that is used no more; `false`: nothing is left.
    pub(super) fn free_some(&mut self) -> bool {
        self.segments.truncate(self.segments.len().saturating_sub(FREED_AT_ONCE));
        !self.segments.is_empty()
    }

    /// Doubles the buckets of a small segment, or splits it: afterwards it has space for at least one more.
    fn make_room(&mut self, n: usize, hash: u64, hash_of: impl Fn(u32) -> u64) {
        let segment = &mut self.segments[n];
        let (depth, buckets) = (segment.depth, segment.buckets.len());
        let splits = buckets >= SEGMENT_BUCKETS && depth < DEPTH_MAX;
        let kept = match splits {
            true => Segment::new(buckets, depth + 1),
            false => Segment::new(buckets * 2, depth),
        };
        let old = std::mem::replace(segment, kept);
        let entries = old.buckets.iter().flat_map(Bucket::ids).map(|id| (hash_of(id), id));
        if !splits {
            return entries.for_each(|(hash, id)| segment.place(hash, id));
        }
        let mut other = Segment::new(buckets, depth + 1);
        for (hash, id) in entries {
            let goes = hash >> depth & 1 == 1;
            if goes { &mut other } else { &mut *segment }.place(hash, id);
        }
        self.name_other_half(hash, depth);
        self.segments.push(other);
    }

    /// Assigns the directory entries that end as `hash` does in `depth` bits, and have the next bit set, to the
    /// segment about to be added.
    fn name_other_half(&mut self, hash: u64, depth: u32) {
        let bit = 1 << depth;
        if self.directory.len() == bit {
            self.directory.extend_from_within(..);
        }
        let first = hash as usize & (bit - 1) | bit;
        let number = self.segments.len() as u32;
        self.directory.iter_mut().skip(first).step_by(bit * 2).for_each(|n| *n = number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::split_mix;
    use proptest::prelude::*;

    /// A table and the hashes of its ids.
    #[derive(Default)]
    struct Model {
        table: BucketTable,
        hashes: Vec<u64>,
    }

    impl Model {
        fn add(&mut self, hash: u64) -> u32 {
            let id = self.hashes.len() as u32;
            self.hashes.push(hash);
            let hashes = &self.hashes;
            self.table.insert(hash, id, |id| hashes[id as usize]);
            id
        }

        fn has(&self, id: u32) -> bool {
            self.table.find(self.hashes[id as usize], |other| other == id) == Some(id)
        }
    }

    fn longest(table: &BucketTable) -> usize {
        table.segments.iter().map(|s| s.buckets.len()).max().unwrap_or(0)
    }

    #[test]
    fn grows_by_segments_and_finds_all() {
        let mut state = 1;
        let mut model = Model::default();
        for n in 0..50_000 {
            let before = model.table.segments.len();
            model.add(split_mix(&mut state));
            assert!(model.table.segments.len() <= before + 1, "more than one segment split at entry {n}");
        }
        assert!((0..50_000).all(|id| model.has(id)));
        assert_eq!((model.table.len(), longest(&model.table)), (50_000, SEGMENT_BUCKETS));
        // Between three eighths and three quarters of the space is used, with at least 40 ids per directory entry.
        let room = model.table.segments.len() * SEGMENT_BUCKETS * BUCKET_ENTRIES;
        assert!((room * 3 / 8..room * 3 / 4).contains(&50_000), "room for {room}");
        assert!(model.table.directory.len() * 40 <= 50_000, "{} entries", model.table.directory.len());
        (0..50_000).for_each(|id| model.table.remove(model.hashes[id as usize], id));
        assert_eq!((model.table.len(), model.table.segments.len(), model.table.directory.len()), (0, 0, 0));
    }

    #[test]
    fn few_entries_have_few_lines() {
        let mut model = Model::default();
        (0..9).for_each(|n| {
            model.add(n << 32);
        });
        assert_eq!(longest(&model.table), 1);
        model.add(9 << 32);
        assert_eq!(longest(&model.table), 2);
    }

    #[test]
    fn hashes_that_agree_are_kept_apart_by_buckets() {
        let mut model = Model::default();
        (0..2_000).for_each(|n| {
            model.add(n << 20);
        });
        assert!((0..2_000).all(|id| model.has(id)));
        assert!(model.table.directory.len() <= 1 << DEPTH_MAX);
        assert!(longest(&model.table) > SEGMENT_BUCKETS);
        let same: Vec<u32> = (0..2_000).map(|_| model.add(7)).collect();
        assert!(same.iter().all(|id| model.has(*id)));
        (0..4_000).for_each(|id| model.table.remove(model.hashes[id as usize], id));
        assert_eq!(model.table.len(), 0);
    }

    proptest! {
        #[test]
        fn is_a_set(ops in prop::collection::vec((any::<bool>(), 0u64..400, 0u32..12), 0..4_000)) {
            let mut model = Model::default();
            let mut there: Vec<u32> = Vec::new();
            for (add, n, shift) in ops {
                if add || there.is_empty() {
                    let hash = split_mix(&mut { n }) << shift;
                    there.push(model.add(hash));
                } else {
                    let id = there.swap_remove(n as usize % there.len());
                    model.table.remove(model.hashes[id as usize], id);
                    prop_assert!(!model.has(id));
                }
                prop_assert_eq!(model.table.len(), there.len());
            }
            prop_assert!(there.iter().all(|id| model.has(*id)));
        }
    }
}
