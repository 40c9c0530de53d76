//! [`SharedTable`]: a hash table that forwarding threads read for each packet while other threads change it.
//!
//! A reader pins the table, for one lookup or for a burst, and then looks entries up without waiting: a lookup takes no
//! lock, writes no memory and allocates nothing. A pin is a write and an atomic exchange in memory of its own thread. A
//! removed or replaced value stays valid for all pins of that moment. It is dropped exactly once, after the last of them.
//!
//! The library is papaya, which reclaims in batches that count their readers (seize). Consequences for callers:
//!
//! - The thread whose pin ends last drops a batch of values, be it a forwarding thread. Let values drop cheaply.
//! - A thread collects [`BATCH`] removed values before it offers them for reclamation; [`Pinned::flush`] offers them
//!   at once. A long pin retains all values that others remove meanwhile: pin for a burst or a slice.
//! - Each batch costs a membarrier(2), an interrupt for the forwarding threads. So a batch is larger than the library's
//!   default.
//! - An insert may copy 64 entries of a growing shard. Until the copy is complete, a lookup in this shard may read both
//!   places; a walk completes it, so tables without a walk for expiry stay slower after growth.
//!
//! The hash spreads entries over shards, so that a table grows and is walked in slices. The caller chooses the hash
//! function: seeded at random against chosen keys, or fixed for a simulation that repeats itself.

use papaya::{Equivalent, HashMap};
use seize::{Collector, Guard, LocalGuard};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

/// Removed values that a thread collects before it offers them for reclamation, at least. The library waits for as many
/// as there are pinned threads.
pub const BATCH: usize = 128;

/// Expected entries of a shard, and so of a walk's slice.
const SHARD_ENTRIES: usize = 4096;

/// Most shards: the empty ones cost memory, 128 bytes for each processor.
const MAX_SHARDS: usize = 1024;

/// A stored key with its hash, which growth and comparisons reuse.
struct Hashed<K> {
    hash: u64,
    key: K,
}

impl<K> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K: Eq> PartialEq for Hashed<K> {
    fn eq(&self, other: &Hashed<K>) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl<K: Eq> Eq for Hashed<K> {}

impl<K: Eq> Equivalent<Hashed<K>> for Hashed<&K> {
    fn equivalent(&self, stored: &Hashed<K>) -> bool {
        self.hash == stored.hash && *self.key == stored.key
    }
}

/// Passes the hash of a [`Hashed`] on.
#[derive(Default)]
struct PassHash(u64);

impl Hasher for PassHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hashed key writes one word");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type Shard<K, V> = HashMap<Hashed<K>, V, BuildHasherDefault<PassHash>>;

/// See the module.
pub struct SharedTable<K, V, S> {
    /// A power of two of them. They share one collector, so that one pin covers all. No pin outlives the table: the
    /// library frees removed values of the whole collector when the first shard is dropped.
    shards: Box<[Shard<K, V>]>,
    collector: Arc<Collector>,
    hasher: S,
}

/// Access to a table. All references that it returns are valid until it ends.
pub struct Pinned<'t, K, V, S> {
    table: &'t SharedTable<K, V, S>,
    guard: LocalGuard<'t>,
}

/// The refusal to insert a second value for a key.
#[derive(Debug)]
pub struct Conflict<'p, V> {
    /// The value in the table, perhaps of another thread that was faster.
    pub current: &'p V,
    /// The value that was to be inserted.
    pub rejected: V,
}

/// The place where a walk continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
}

impl<K, V, S> SharedTable<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// An empty table with shards and room for `expected` entries, some 20 bytes for each. They set no limit, which is
    /// the caller's task.
    pub fn new(expected: usize, hasher: S) -> SharedTable<K, V, S> {
        let collector = Arc::new(Collector::new().batch_size(BATCH));
        let shards = expected.div_ceil(SHARD_ENTRIES).clamp(1, MAX_SHARDS).next_power_of_two();
        let room = expected.div_ceil(shards).min(SHARD_ENTRIES);
        let shard = |_| {
            let shard = HashMap::builder().hasher(BuildHasherDefault::new()).capacity(room);
            shard.shared_collector(collector.clone()).build()
        };
        SharedTable { shards: (0..shards).map(shard).collect(), collector, hasher }
    }

    /// Gives access. Cheap, but not free: pin once for a burst. Threads may pin several times.
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned { table: self, guard: self.collector.enter() }
    }

    /// Number of entries, exact while no thread changes the table. Sums counters of all shards and processors.
    pub fn len(&self) -> usize {
        self.shards.iter().map(HashMap::len).sum()
    }

    /// Whether no entry is in it, as [`SharedTable::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shard of a hash. The shard's own table uses the lowest and the highest bits.
    fn shard(&self, hash: u64) -> &Shard<K, V> {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value of a key. Never waits.
    pub fn get(&self, key: &K) -> Option<&V> {
        let hash = self.table.hasher.hash_one(key);
        self.table.shard(hash).get(&Hashed { hash, key }, &self.guard)
    }

    /// Inserts or replaces a value; returns the replaced one.
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        let hash = self.table.hasher.hash_one(&key);
        self.table.shard(hash).insert(Hashed { hash, key }, value, &self.guard)
    }

    /// Inserts a value for a new key. If several threads insert at once, one succeeds; the others get its value.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, Conflict<'_, V>> {
        let hash = self.table.hasher.hash_one(&key);
        let inserted = self.table.shard(hash).try_insert(Hashed { hash, key }, value, &self.guard);
        inserted.map_err(|e| Conflict { current: e.current, rejected: e.not_inserted })
    }

    /// Removes an entry. If several threads remove it at once, one gets the value.
    pub fn remove(&self, key: &K) -> Option<&V> {
        let hash = self.table.hasher.hash_one(key);
        self.table.shard(hash).remove(&Hashed { hash, key }, &self.guard)
    }

    /// Removes an entry if its value fulfils `condition`, which may run several times; returns the removed value. So
    /// expiry removes the value that it judged, not a newer one.
    pub fn remove_if(&self, key: &K, mut condition: impl FnMut(&V) -> bool) -> Option<&V> {
        let hash = self.table.hasher.hash_one(key);
        let removed =
            self.table.shard(hash).remove_if(&Hashed { hash, key }, |_, v| condition(v), &self.guard);
        removed.ok().flatten().map(|(_, value)| value)
    }

    /// Visits one slice: whole shards until `at_least` entries (at least one) were seen. Returns the place of the next
    /// slice, or `None` at the end. A walk begins at `Cursor::default()`, and each slice may have its own pin.
    ///
    /// A walk visits each entry exactly once that stays in the table throughout; a replaced one with its old or new
    /// value. It may or may not visit entries inserted or removed meanwhile.
    pub fn walk(&self, from: Cursor, at_least: usize, mut visit: impl FnMut(&K, &V)) -> Option<Cursor> {
        let mut seen = 0;
        for shard in from.shard..self.table.shards.len() {
            if seen >= at_least.max(1) {
                return Some(Cursor { shard });
            }
            for (hashed, value) in self.table.shards[shard].iter(&self.guard) {
                visit(&hashed.key, value);
                seen += 1;
            }
        }
        None
    }

    /// Offers the values that this thread has removed for reclamation without waiting for a whole [`BATCH`], as after
    /// a slice of expiry. Fewer values than there are pinned threads stay for the next time.
    pub fn flush(&self) {
        self.guard.flush();
    }
}

#[cfg(test)]
mod tests;
