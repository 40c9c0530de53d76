//! The flows of one mask and shape: a hash table from masked key to slot.
//!
//! The table is lines of twelve entries. An entry that finds its line full goes to the next line with room; each line on
//! the way counts it in its note, so that a search knows where it may stop. A count that reached 255 stays there.

use super::slab::Slab;
use crate::line::{LINE_ENTRIES, Line};
use flow::{FlowKey, KeyMask};

/// See the module. Deliberately does not know about ports: the ranked lists do.
pub(crate) struct Subtable {
    /// The mask, with the shape of its flows in `base.shape`: what names the subtable.
    identity: KeyMask,
    /// The mask to match with: all ones in `base.shape`.
    mask: KeyMask,
    lines: Vec<Line>,
    len: usize,
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
        Subtable { identity, mask: kept, lines: Vec::new(), len: 0 }
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
        self.len
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// Asks for the line of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(self.home(hash)) {
            simd::prefetch(line);
        }
    }

    /// A slot that `key`, whose masked hash is `hash`, may match.
    #[inline(always)]
    pub(crate) fn hint(&self, hash: u64) -> Option<u32> {
        self.lines.get(self.home(hash))?.first(Line::signature(hash))
    }

    /// The slot of the flow that `key`, whose masked hash is `hash`, matches.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey, slab: &Slab) -> Option<u32> {
        let signature = Line::signature(hash);
        let mut at = self.home(hash);
        for _ in 0..self.lines.len() {
            let line = self.lines.get(at)?;
            let confirm = |id| slab.get(id).is_some_and(|s| s.matches(&self.mask, key));
            if let Some(id) = line.find(signature, confirm) {
                return Some(id);
            }
            if line.note == 0 {
                return None;
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
        None
    }

    /// Adds a flow by the hash of its masked key. `hash_of` gives the hashes of those that are there, when they have to move.
    pub(crate) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 4 > self.lines.len() * LINE_ENTRIES * 3 {
            let size = (self.lines.len() * 2).max(1);
            let old = std::mem::replace(&mut self.lines, vec![Line::EMPTY; size]);
            old.iter().flat_map(Line::ids).for_each(|id| self.place(hash_of(id), id));
        }
        self.place(hash, id);
        self.len += 1;
    }

    fn place(&mut self, hash: u64, id: u32) {
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            if let Some(free) = line.free() {
                return line.set(free, Line::signature(hash), id);
            }
            line.note = line.note.saturating_add(1);
            at = (at + 1) & (self.lines.len() - 1);
        }
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) {
        let signature = Line::signature(hash);
        let mut at = self.home(hash);
        for passed in 0..self.lines.len() {
            if let Some(entry) = self.lines[at].position(signature, id) {
                self.lines[at].clear(entry);
                self.len -= 1;
                return self.forget_passing(hash, passed);
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
    }

    /// Takes an entry that was put `passed` lines behind its own out of the counts of those before.
    fn forget_passing(&mut self, hash: u64, passed: usize) {
        let home = self.home(hash);
        for n in 0..passed {
            let at = (home + n) & (self.lines.len() - 1);
            let line = &mut self.lines[at];
            if line.note != u8::MAX {
                line.note -= 1;
            }
        }
    }
}
