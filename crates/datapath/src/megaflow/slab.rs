//! The slots of the flows: two cache lines each for packet processing, the rest behind a pointer.
//!
//! Invariants: slots never move and ids are reused; slots are allocated in chunks so that growth never copies flows.
//! An empty slot has a base block unequal to any packet's key (an impossible shape), so a stale id is harmless.

use super::action_lists::{ActionLists, NO_LIST};
use dpif::{DpAction, FlowRecord, FlowStats, Offloaded};
use flow::{BaseBlock, FlowKey, KeyMask, PackedKey, Ufid, shape};
use std::sync::Arc;

const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;
const NO_SUBTABLE: u32 = u32::MAX;
/// Offset of the input port in the base block.
const IN_PORT_AT: usize = std::mem::offset_of!(BaseBlock, in_port);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// The part of a flow used for packets.
#[repr(C, align(64))]
pub(crate) struct Slot {
    base: Line,
    packets: u64,
    bytes: u64,
    used_ms: u64,
    tcp_flags: u16,
    /// Extension blocks that its mask covers ([`shape`]).
    compared: u16,
    /// Its actions.
    pub(crate) list: u32,
    /// Its subtable.
    pub(crate) subtable: u32,
    /// The blocks of `compared`.
    extensions: Box<[Line]>,
    cold: Option<Box<Cold>>,
}

const _: () = assert!(size_of::<Slot>() == 128);

struct Cold {
    ufid: Ufid,
    /// The unmasked key.
    key: PackedKey,
    hash: u64,
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            base: Line([u64::MAX; 8]),
            packets: 0,
            bytes: 0,
            used_ms: 0,
            tcp_flags: 0,
            compared: 0,
            list: NO_LIST,
            subtable: NO_SUBTABLE,
            extensions: Box::new([]),
            cold: None,
        }
    }

    /// Whether the masked key of this slot equals the key under `mask`. Reads only the blocks that both have.
    #[inline(always)]
    pub(crate) fn matches(&self, mask: &KeyMask, key: &FlowKey) -> bool {
        self.base_matches(mask, key) && self.extensions_match(mask, key)
    }

    /// Compares the first block as [`Self::matches`] does, without a branch.
    #[inline(always)]
    pub(crate) fn base_matches(&self, mask: &KeyMask, key: &FlowKey) -> bool {
        let (k, m) = (key.block(0), mask.block(0));
        let mut differs = 0;
        for w in 0..8 {
            differs |= (k[w] & m[w]) ^ self.base.0[w];
        }
        differs == 0
    }

    /// Compares the extension blocks, if the first block matches: the packet has those of this slot.
    #[inline(always)]
    pub(crate) fn extensions_match(&self, mask: &KeyMask, key: &FlowKey) -> bool {
        self.compared == 0 || self.compared_match(mask, key)
    }

    #[inline(always)]
    fn compared_match(&self, mask: &KeyMask, key: &FlowKey) -> bool {
        shape::blocks(self.compared).zip(self.extensions.iter()).all(|(i, own)| {
            let (k, m) = (key.block(i), mask.block(i));
            (0..8).fold(0, |d, w| d | (k[w] & m[w]) ^ own.0[w]) == 0
        })
    }

    /// Prefetches the extension blocks.
    #[inline(always)]
    pub(crate) fn prefetch_extensions(&self) {
        self.extensions.iter().for_each(simd::prefetch);
    }

    /// Accounts packets.
    #[inline(always)]
    pub(crate) fn account(&mut self, packets: u64, bytes: u64, tcp_flags: u16, now_ms: u64) {
        self.packets += packets;
        self.bytes += bytes;
        self.used_ms = now_ms;
        self.tcp_flags |= tcp_flags;
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> FlowStats {
        FlowStats {
            packets: self.packets,
            bytes: self.bytes,
            used_ms: self.used_ms,
            tcp_flags: self.tcp_flags,
        }
    }

    /// Its input port.
    #[inline]
    pub(crate) fn in_port(&self) -> u32 {
        let bytes = self.base.0[IN_PORT_AT / 8].to_ne_bytes();
        let at = IN_PORT_AT % 8;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }
}

/// All slots of a table.
pub(crate) struct Slab {
    chunks: Vec<Box<[Slot]>>,
    free: Vec<u32>,
    len: usize,
    lists: ActionLists,
}

impl Slab {
    /// No slots. `seed` is that of [`ActionLists::new`].
    pub(crate) fn new(seed: u64) -> Slab {
        Slab { chunks: Vec::new(), free: Vec::new(), len: 0, lists: ActionLists::new(seed) }
    }

    /// The action lists of all flows.
    #[inline]
    pub(crate) fn lists(&self) -> &ActionLists {
        &self.lists
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Upper bound of the ids in use.
    pub(crate) fn ids(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// The slot of that id, empty or not; `None` if it never existed.
    #[inline(always)]
    pub(crate) fn get(&self, id: u32) -> Option<&Slot> {
        self.chunks.get((id >> CHUNK_BITS) as usize).and_then(|c| c.get(id as usize % CHUNK))
    }

    /// As [`Self::get`], mutable.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Slot> {
        self.chunks.get_mut((id >> CHUNK_BITS) as usize).and_then(|c| c.get_mut(id as usize % CHUNK))
    }

    fn cold(&self, id: u32) -> Option<&Cold> {
        self.get(id)?.cold.as_deref()
    }

    /// Name of the flow in slot `id`.
    pub(crate) fn ufid(&self, id: u32) -> Option<Ufid> {
        self.cold(id).map(|c| c.ufid)
    }

    /// Subtable and masked hash of the flow in slot `id`.
    pub(crate) fn place(&self, id: u32) -> Option<(u32, u64)> {
        let slot = self.get(id)?;
        slot.cold.as_ref().map(|c| (slot.subtable, c.hash))
    }

    /// Fills a free slot; returns its id.
    pub(crate) fn insert(
        &mut self,
        ufid: Ufid,
        key: &FlowKey,
        mask: &KeyMask,
        hash: u64,
        subtable: u32,
        actions: Arc<[DpAction]>,
        run: Arc<[DpAction]>,
    ) -> u32 {
        if self.free.is_empty() {
            let first = self.ids();
            self.chunks.push((0..CHUNK).map(|_| Slot::empty()).collect());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let id = self.free.pop().expect("a chunk was just added");
        self.len += 1;
        let masked = key.masked(mask);
        let covered = |i: &usize| *mask.block(*i) != [0; 8];
        let slot = self.get_mut(id).expect("free ids name slots");
        *slot = Slot {
            base: Line(*masked.block(0)),
            subtable,
            compared: masked.extension_blocks().filter(covered).map(shape::of_block).sum(),
            extensions: masked.extension_blocks().filter(covered).map(|i| Line(*masked.block(i))).collect(),
            cold: Some(Box::new(Cold { ufid, key: PackedKey::new(key), hash })),
            ..Slot::empty()
        };
        self.set_actions(id, actions, run);
        id
    }

    /// Empties a slot.
    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(slot) = self.get_mut(id).filter(|s| s.cold.is_some()) {
            let gone = std::mem::replace(slot, Slot::empty());
            self.lists.release(gone.list);
            self.free.push(id);
            self.len -= 1;
        }
    }

    /// Frees a chunk of slots, or some action lists, of a slab that is used no more; `false`: little is left.
    pub(super) fn free_some(&mut self) -> bool {
        self.chunks.pop().is_some() || self.lists.free_some()
    }

    /// Replaces a flow's actions.
    pub(crate) fn set_actions(&mut self, id: u32, actions: Arc<[DpAction]>, run: Arc<[DpAction]>) {
        if self.cold(id).is_none() {
            return;
        }
        let list = self.lists.intern(actions, run);
        if let Some(slot) = self.get_mut(id) {
            let former = std::mem::replace(&mut slot.list, list);
            self.lists.release(former);
        }
    }

    /// The flow in slot `id` in the form of dumps.
    pub(crate) fn record(&self, id: u32, mask: KeyMask) -> Option<FlowRecord> {
        let slot = self.get(id)?;
        let cold = slot.cold.as_ref()?;
        let key = cold.key.unpack();
        let actions = self.lists.get(slot.list)?.actions.clone();
        let offloaded = Offloaded::No;
        Some(FlowRecord { ufid: cold.ufid, key, mask, actions, stats: slot.stats(), offloaded })
    }

    /// Name and counters of the flow in slot `id`, if it was used at that time or later.
    pub(crate) fn counters(&self, id: u32, since_ms: u64) -> Option<(Ufid, FlowStats)> {
        let slot = self.get(id).filter(|slot| slot.used_ms >= since_ms)?;
        Some((slot.cold.as_ref()?.ufid, slot.stats()))
    }
}
