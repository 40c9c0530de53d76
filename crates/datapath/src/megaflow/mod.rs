//! The megaflow table of one forwarding core: flows by mask, looked up through a ranked list of masks per input
//! port.
//!
//! Flows of one mask and shape share a [`Subtable`], a hash table of masked keys. The input port of a mask is always
//! exact, so each port has its own list of the subtables with flows from it, sorted by hits about once a second;
//! before the first sort in order of insertion. A lookup tries the subtables of the packet's shape in that order and
//! takes the first hit: overlapping flows are equivalent, because the slow path makes them from one translation.
//!
//! A port that ends loses its list at once, so no lookup finds its flows; they are removed in slices ([`ending`]). No
//! operation moves or frees an amount of memory that grows with the number of flows.
//!
//! Invariants: a flow's slot id is stable while it lives; every live flow is in exactly one subtable, in the ufid
//! index and counted in its port's list, or among the flows that end with their port; a subtable without flows is in no
//! list.

mod action_lists;
mod buckets;
mod ending;
mod slab;
mod subtable;
mod wanted;

pub(crate) use action_lists::{ActionList, ActionLists, NO_LIST};
pub(crate) use ending::Budget;
pub(crate) use slab::{Slab, Slot};
pub(crate) use subtable::Subtable;

use crate::hash::KeyHasher;
use buckets::BucketTable;
use dpif::{DpAction, FlowRecord};
use ending::{Ending, Retired};
use flow::{FlowKey, KeyMask, Ufid};
use hashbrown::HashTable;
use std::sync::Arc;
use wanted::Wanted;

/// Maximum number of flows (512 KiB) that fit a processor's second-level cache.
const NEAR_FLOWS: usize = 4096;

/// New masks a second that a port's list takes beyond its free places before they are in demand.
const SPARE_MASKS: usize = 4;

/// A subtable in the list of a port.
///
/// Most lookups of a long list find nothing in most subtables. The list itself, which is read in order, tells so: a
/// subtable takes three more cache lines.
struct Ranked {
    /// The mask of the base block.
    base: [u64; 8],
    /// Bits of the flows' base blocks: a packet whose bit is not set matches none of them.
    filter: u64,
    subtable: u32,
    shape: u16,
    flows: u32,
    hits: u64,
}

/// The bit of a hash in a filter.
#[inline(always)]
fn filter_bit(base_hash: u64) -> u64 {
    1 << (base_hash >> 58)
}

struct PortRank {
    port: u32,
    list: Vec<Ranked>,
    /// Masks that the list refuses.
    wanted: Wanted,
    /// New masks that it takes before they are in demand; more each time that the lists are sorted.
    spare: usize,
    /// The next new mask is in demand, so that many packets of it follow.
    is_next_first: bool,
}

/// Bounds of a port's masks, see [`PmdTuning`](crate::PmdTuning).
#[derive(Clone, Copy)]
struct MaskBounds {
    max: usize,
    free: usize,
}

/// Subtables by number; growth does not move the masks, more than a kilobyte each.
type Subtables = Vec<Box<Subtable>>;

/// See the module documentation.
pub(crate) struct MegaflowTable {
    hasher: KeyHasher,
    slab: Slab,
    subtables: Subtables,
    free_subtables: Vec<u32>,
    by_mask: BucketTable,
    by_ufid: BucketTable,
    ranks: HashTable<PortRank>,
    ending: Ending,
    retired: Retired,
    flow_limit: usize,
    mask_bounds: MaskBounds,
}

/// The first subtable that a lookup visits, and the packet's hash there.
#[derive(Clone, Copy)]
pub(crate) struct First {
    subtable: u32,
    hash: u64,
}

impl First {
    /// Unknown.
    pub(crate) const NONE: First = First { subtable: u32::MAX, hash: 0 };
}

/// Result of a lookup.
pub(crate) struct Found {
    /// The flow's slot.
    pub(crate) id: Option<u32>,
    /// Subtables visited.
    pub(crate) visited: u32,
}

impl MegaflowTable {
    /// An empty table that takes at most `flow_limit` flows.
    pub(crate) fn new(hasher: KeyHasher, flow_limit: usize) -> MegaflowTable {
        MegaflowTable {
            slab: Slab::new(hasher.number(0)),
            hasher,
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            by_mask: BucketTable::default(),
            by_ufid: BucketTable::default(),
            ranks: HashTable::new(),
            ending: Ending::default(),
            retired: Retired::default(),
            flow_limit: flow_limit.min(crate::bucket::ID_LIMIT as usize - 1),
            mask_bounds: MaskBounds { max: usize::MAX, free: usize::MAX },
        }
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Number of masks.
    pub(crate) fn masks(&self) -> usize {
        self.by_mask.len()
    }

    /// Whether the table is full.
    pub(crate) fn is_full(&self) -> bool {
        self.slab.len() >= self.flow_limit
    }

    /// Sets the mask limits of a port; masks above them stay.
    pub(crate) fn set_masks_per_port(&mut self, max: usize, free: usize) {
        self.mask_bounds = MaskBounds { max, free };
    }

    /// Whether the list of the input port takes a flow of that mask. Beyond its free places it takes some new masks a
    /// second, up to its limit, and counts how often it refuses a mask. It takes those in demand, beyond its limit an
    /// eighth of it at most.
    pub(crate) fn admits(&mut self, key: &FlowKey, mask: &KeyMask) -> bool {
        let (port, MaskBounds { max, free }) = (key.base.in_port, self.mask_bounds);
        let by_port = self.hasher.number(port.into());
        let rank = self.ranks.find(by_port, |r| r.port == port);
        let Some(rank) = rank.filter(|r| r.list.len() >= free.min(max)) else { return true };
        let wanted = Subtable::new(key, mask);
        if self.subtable_like(&wanted).is_some_and(|n| rank.list.iter().any(|e| e.subtable == n)) {
            return true;
        }
        let len = rank.list.len();
        if len >= max + max / 8 {
            return false;
        }
        let hash = self.hasher.key(wanted.identity());
        let Some(rank) = self.ranks.find_mut(by_port, |r| r.port == port) else { return true };
        if len < max && rank.spare > 0 {
            rank.spare -= 1;
            return true;
        }
        rank.is_next_first = rank.wanted.add(hash);
        rank.is_next_first
    }

    /// The slots, for accounting and actions of a flow just found.
    #[inline]
    pub(crate) fn slab(&mut self) -> &mut Slab {
        &mut self.slab
    }

    /// The actions of all flows.
    #[inline]
    pub(crate) fn lists(&self) -> &ActionLists {
        self.slab.lists()
    }

    /// The slots, read-only.
    #[inline]
    pub(crate) fn slots(&self) -> &Slab {
        &self.slab
    }

    /// Whether the flow in slot `id`, if any, matches the packet: confirms a hint of the cache.
    #[inline]
    pub(crate) fn confirms(&self, id: u32, key: &FlowKey) -> bool {
        let Some(slot) = self.slab.get(id) else { return false };
        match self.subtables.get(slot.subtable as usize) {
            Some(subtable) => slot.matches(subtable.mask(), key),
            None => false,
        }
    }

    /// Whether there are enough slots to benefit from prefetching.
    #[inline(always)]
    pub(crate) fn worth_prefetching(&self) -> bool {
        self.slab.len() > NEAR_FLOWS
    }

    /// Prefetches slot `id`, if it exists.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(slot) = self.slab.get(id) {
            simd::prefetch(slot);
        }
    }

    /// Prefetches the extension blocks of slot `id`, itself prefetched before.
    #[inline(always)]
    pub(crate) fn prefetch_extensions(&self, id: u32) {
        if let Some(slot) = self.slab.get(id) {
            slot.prefetch_extensions();
        }
    }

    /// Slot `id` and the mask of its flow, if there is one.
    #[inline(always)]
    pub(crate) fn slot_and_mask(&mut self, id: u32) -> Option<(&mut Slot, &KeyMask)> {
        let slot = self.slab.get_mut(id)?;
        let mask = self.subtables.get(slot.subtable as usize)?.mask();
        Some((slot, mask))
    }

    /// If the flow in slot `id` matches the packet, counts it there and returns the id of its actions.
    #[inline(always)]
    pub(crate) fn hit(&mut self, id: u32, key: &FlowKey, bytes: u64, now_ms: u64) -> Option<u32> {
        let (slot, mask) = self.slot_and_mask(id)?;
        if !slot.matches(mask, key) {
            return None;
        }
        slot.account(1, bytes, key.tcp_flags(), now_ms);
        Some(slot.list)
    }

    /// Looks a packet up.
    pub(crate) fn lookup(&mut self, key: &FlowKey) -> Found {
        match self.rank_of(key.base.in_port) {
            Some(rank) => self.lookup_in(rank, key, First::NONE),
            None => Found { id: None, visited: 0 },
        }
    }

    /// The index of a port's list for [`MegaflowTable::lookup_in`]; valid until flows are added or removed.
    #[inline]
    pub(crate) fn rank_of(&self, port: u32) -> Option<usize> {
        self.ranks.find_bucket_index(self.hasher.number(port.into()), |r| r.port == port)
    }

    /// Prefetches the first line read by a lookup of the packet; returns its handle.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, rank: usize, key: &FlowKey) -> First {
        let entry =
            self.ranks.get_bucket(rank).and_then(|r| r.list.iter().find(|e| e.shape == key.base.shape));
        let Some(entry) = entry else { return First::NONE };
        let Some(subtable) = self.subtables.get(entry.subtable as usize) else { return First::NONE };
        let hash = self.hasher.masked(key, subtable.mask());
        subtable.prefetch(hash);
        First { subtable: entry.subtable, hash }
    }

    /// Prefetches the first slot read by a lookup of the packet.
    #[inline(always)]
    pub(crate) fn prefetch_slot(&self, first: First) {
        if let Some(id) = self.subtables.get(first.subtable as usize).and_then(|s| s.hint(first.hash)) {
            self.prefetch(id);
        }
    }

    /// Looks a packet up in the list of its input port. `first` saves a hash, if it is known.
    #[inline(always)]
    pub(crate) fn lookup_in(&mut self, rank: usize, key: &FlowKey, first: First) -> Found {
        let mut visited = 0;
        let Some(rank) = self.ranks.get_bucket_mut(rank) else { return Found { id: None, visited } };
        for entry in &mut rank.list {
            if entry.shape != key.base.shape {
                continue;
            }
            visited += 1;
            let known = entry.subtable == first.subtable;
            // Many flows set all bits, and then the filter rules out none.
            let may_rule_out = !known && entry.filter != u64::MAX;
            if may_rule_out && entry.filter & filter_bit(self.hasher.masked_base(key, &entry.base)) == 0 {
                continue;
            }
            let subtable = &self.subtables[entry.subtable as usize];
            let hash = if known { first.hash } else { self.hasher.masked(key, subtable.mask()) };
            if let Some(id) = subtable.find(hash, key, &self.slab) {
                entry.hits += 1;
                return Found { id: Some(id), visited };
            }
        }
        Found { id: None, visited }
    }

    /// The slot of the flow of that name.
    pub(crate) fn by_ufid(&self, ufid: Ufid) -> Option<u32> {
        self.by_ufid.find(self.hasher.wide(ufid.0), |id| self.slab.ufid(id) == Some(ufid))
    }

    /// Adds a flow; `run` are its actions as [`crate::actions::validate`] returns them. The caller has checked that there is
    /// space, that no flow matches and that the ufid is new.
    pub(crate) fn insert(
        &mut self,
        ufid: Ufid,
        key: &FlowKey,
        mask: &KeyMask,
        actions: Arc<[DpAction]>,
        run: Arc<[DpAction]>,
    ) -> u32 {
        let subtable = self.subtable_for(key, mask);
        let hash = self.hasher.masked(key, mask);
        let id = self.slab.insert(ufid, key, mask, hash, subtable, actions, run);
        let slab = &self.slab;
        self.subtables[subtable as usize].insert(hash, id, |id| slab.place(id).map_or(0, |(_, hash)| hash));
        let (hasher, slab) = (&self.hasher, &self.slab);
        self.by_ufid.insert(hasher.wide(ufid.0), id, |id| hasher.wide(slab.ufid(id).map_or(0, |u| u.0)));
        self.rank_add(key, subtable);
        id
    }

    /// Removes the flow in slot `id` and returns its last record; `None` if the slot is empty.
    pub(crate) fn remove(&mut self, id: u32) -> Option<FlowRecord> {
        let record = self.record(id)?;
        let (subtable, hash) = self.slab.place(id)?;
        self.by_ufid.remove(self.hasher.wide(record.ufid.0), id);
        self.subtables[subtable as usize].remove(hash, id);
        self.rank_remove(record.key.base.in_port, subtable);
        if self.subtables[subtable as usize].len() == 0 {
            self.drop_subtable(subtable);
        }
        self.slab.remove(id);
        Some(record)
    }

    /// The flow in slot `id` in the form of dumps.
    pub(crate) fn record(&self, id: u32) -> Option<FlowRecord> {
        let subtable = self.slab.get(id)?.subtable;
        let mask = *self.subtables.get(subtable as usize)?.mask();
        self.slab.record(id, mask)
    }

    /// Sorts the lists of ports by hits, with most weight on recent ones: all of them about once a second. Begins with
    /// list `at`, and sorts some of that number of entries; returns the list to go on with.
    pub(crate) fn rank(&mut self, mut at: usize, entries: usize) -> Option<usize> {
        let mut left = entries;
        while at < self.ranks.num_buckets() {
            if left == 0 {
                return Some(at);
            }
            if let Some(rank) = self.ranks.get_bucket_mut(at) {
                left = left.saturating_sub(rank.list.len());
                rank.list.sort_by_key(|e| std::cmp::Reverse(e.hits));
                rank.list.iter_mut().for_each(|entry| entry.hits /= 2);
                rank.wanted.age();
                rank.spare = SPARE_MASKS;
            }
            at += 1;
            left = left.saturating_sub(1);
        }
        None
    }

    /// The subtable of the same mask and shape.
    fn subtable_like(&self, wanted: &Subtable) -> Option<u32> {
        let same = |n: u32| self.subtables[n as usize].identity() == wanted.identity();
        self.by_mask.find(self.hasher.key(wanted.identity()), same)
    }

    fn subtable_for(&mut self, key: &FlowKey, mask: &KeyMask) -> u32 {
        let wanted = Subtable::new(key, mask);
        if let Some(n) = self.subtable_like(&wanted) {
            return n;
        }
        let hash = self.hasher.key(wanted.identity());
        let n = match self.free_subtables.pop() {
            Some(n) => {
                *self.subtables[n as usize] = wanted;
                n
            }
            None => {
                self.subtables.push(Box::new(wanted));
                self.subtables.len() as u32 - 1
            }
        };
        let (hasher, subtables) = (&self.hasher, &self.subtables);
        self.by_mask.insert(hash, n, |n| hasher.key(subtables[n as usize].identity()));
        n
    }

    fn drop_subtable(&mut self, n: u32) {
        let hash = self.hasher.key(self.subtables[n as usize].identity());
        self.by_mask.remove(hash, n);
        self.free_subtables.push(n);
    }

    fn rank_add(&mut self, key: &FlowKey, subtable: u32) {
        let port = key.base.in_port;
        let hasher = &self.hasher;
        let base = *self.subtables[subtable as usize].mask().block(0);
        let filter = filter_bit(hasher.masked_base(key, &base));
        let hash = hasher.number(port.into());
        let rank = self
            .ranks
            .entry(hash, |r| r.port == port, |r| hasher.number(r.port.into()))
            .or_insert_with(|| PortRank {
                port,
                list: Vec::new(),
                wanted: Wanted::default(),
                spare: 0,
                is_next_first: false,
            })
            .into_mut();
        let new = Ranked { base, filter, subtable, shape: key.base.shape, flows: 1, hits: 0 };
        let is_first = std::mem::take(&mut rank.is_next_first);
        match rank.list.iter_mut().find(|e| e.subtable == subtable) {
            Some(entry) => {
                entry.flows += 1;
                entry.filter |= filter;
            }
            None if is_first => rank.list.insert(0, new),
            None => rank.list.push(new),
        }
    }

    fn rank_remove(&mut self, port: u32, subtable: u32) {
        if self.ending.forget_one(port) {
            return;
        }
        let hash = self.hasher.number(port.into());
        let Ok(mut rank) = self.ranks.find_entry(hash, |r| r.port == port) else { return };
        let list = &mut rank.get_mut().list;
        if let Some(at) = list.iter().position(|e| e.subtable == subtable) {
            list[at].flows -= 1;
            if list[at].flows == 0 {
                list.remove(at);
            }
        }
        if rank.get().list.is_empty() {
            rank.remove();
        }
    }
}
