//! The flows of one mask and shape: a hash table from masked key to slot.

use super::slab::Slab;
use flow::{FlowKey, KeyMask};
use hashbrown::HashTable;

struct Entry {
    /// Hash of the masked key: tells most foreign entries apart without a look at their flow.
    hash: u64,
    id: u32,
}

/// See the module. Deliberately does not know about ports: the ranked lists do.
pub(crate) struct Subtable {
    /// The mask, with the shape of its flows in `base.shape`: what names the subtable.
    identity: KeyMask,
    /// The mask to match with: all ones in `base.shape`.
    mask: KeyMask,
    entries: HashTable<Entry>,
}

impl Subtable {
    /// An empty subtable for flows like `key` under `mask`; blocks that the key does not have are left out.
    pub(crate) fn new(key: &FlowKey, mask: &KeyMask) -> Subtable {
        let mut kept = KeyMask::default();
        for i in key.present_blocks() {
            *kept.block_mut(i) = *mask.block(i);
        }
        let mut identity = kept;
        identity.base.shape = key.base.shape;
        Subtable { identity, mask: kept, entries: HashTable::new() }
    }

    /// The mask to match with.
    #[inline]
    pub(crate) fn mask(&self) -> &KeyMask {
        &self.mask
    }

    /// What tells this subtable from others: mask and shape, as one key.
    pub(crate) fn identity(&self) -> &KeyMask {
        &self.identity
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The slot of the flow that `key`, whose masked hash is `hash`, matches.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey, slab: &Slab) -> Option<u32> {
        let hit = |e: &Entry| e.hash == hash && slab.get(e.id).is_some_and(|s| s.matches(&self.mask, key));
        self.entries.find(hash, hit).map(|e| e.id)
    }

    /// Adds a flow by the hash of its masked key.
    pub(crate) fn insert(&mut self, hash: u64, id: u32) {
        self.entries.insert_unique(hash, Entry { hash, id }, |e| e.hash);
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) {
        if let Ok(entry) = self.entries.find_entry(hash, |e| e.id == id) {
            entry.remove();
        }
    }
}
