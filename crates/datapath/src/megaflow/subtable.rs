//! The flows of one mask and shape: a hash table from masked key to slot.

use super::buckets::BucketTable;
use super::slab::Slab;
use flow::{FlowKey, KeyMask};

/// See the module documentation. Independent of ports: the ranked lists handle these.
pub(crate) struct Subtable {
    /// The mask, with the shape of its flows in `base.shape`: identifies the subtable.
    identity: KeyMask,
    /// The mask for matching: all ones in `base.shape`.
    mask: KeyMask,
    flows: BucketTable,
}

impl Subtable {
    /// An empty subtable for flows like `key` under `mask`; omits blocks that the key lacks.
    pub(crate) fn new(key: &FlowKey, mask: &KeyMask) -> Subtable {
        let mut kept = KeyMask::default();
        for i in key.present_blocks() {
            *kept.block_mut(i) = *mask.block(i);
        }
        let mut identity = kept;
        identity.base.shape = key.base.shape;
        Subtable { identity, mask: kept, flows: BucketTable::default() }
    }

    /// The mask for matching.
    #[inline]
    pub(crate) fn mask(&self) -> &KeyMask {
        &self.mask
    }

    /// The identity of this subtable: mask and shape, as one key.
    pub(crate) fn identity(&self) -> &KeyMask {
        &self.identity
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.flows.prefetch(hash);
    }

    /// A candidate slot for `key`, whose masked hash is `hash`.
    #[inline(always)]
    pub(crate) fn hint(&self, hash: u64) -> Option<u32> {
        self.flows.hint(hash)
    }

    /// The slot of the flow that matches `key`, whose masked hash is `hash`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey, slab: &Slab) -> Option<u32> {
        self.flows.find(hash, |id| slab.get(id).is_some_and(|s| s.matches(&self.mask, key)))
    }

    /// Adds a flow by the hash of its masked key. `hash_of` gives the hashes of existing flows, for moving them.
    pub(crate) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        self.flows.insert(hash, id, hash_of);
    }

    /// Frees a part of a subtable that is used no more; `false`: little is left.
    pub(crate) fn free_some(&mut self) -> bool {
        self.flows.free_some()
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) {
        self.flows.remove(hash, id);
    }
}
