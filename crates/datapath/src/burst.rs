//! A burst as a structure of arrays, and the queue of packets to recirculate.
//!
//! Invariants: entry `i` of each array belongs to packet `i`; a key has zeros in the blocks that its shape does not
//! name, also in entries without a packet.

use crate::actions::re_extract;
use crate::megaflow::NO_LIST;
use crate::park::Origin;
use crate::stages::MISS;
use conntrack::PacketInfo;
use flow::extract::Layout;
use flow::{DpPort, FlowKey};
use packet::{BATCH_MAX_PACKETS, Packet};
use std::collections::VecDeque;

/// Maximum packets waiting for recirculation, in arrays and queue.
pub(crate) const RECIRCULATED_MAX: usize = 1024;

/// Packets and their metadata.
pub(crate) struct Arrays {
    pub(crate) packets: Vec<Packet>,
    pub(crate) origins: [Origin; BATCH_MAX_PACKETS],
    pub(crate) keys: [FlowKey; BATCH_MAX_PACKETS],
    pub(crate) layouts: [Layout; BATCH_MAX_PACKETS],
    /// The headers of the frame changed in a way that key and layout do not reflect yet.
    pub(crate) dirty: [bool; BATCH_MAX_PACKETS],
    /// For trackers. They stay, because it costs time to clear them.
    infos: [PacketInfo; BATCH_MAX_PACKETS],
}

impl Arrays {
    pub(crate) fn new() -> Box<Arrays> {
        Box::new(Arrays {
            packets: Vec::with_capacity(BATCH_MAX_PACKETS),
            origins: [Origin::fresh(DpPort(0), 0); BATCH_MAX_PACKETS],
            keys: [FlowKey::default(); BATCH_MAX_PACKETS],
            layouts: [Layout { l3: Layout::NONE, l4: Layout::NONE }; BATCH_MAX_PACKETS],
            dirty: [false; BATCH_MAX_PACKETS],
            infos: [PacketInfo::default(); BATCH_MAX_PACKETS],
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= BATCH_MAX_PACKETS
    }

    /// The headers of packet `i`, for actions.
    #[inline(always)]
    pub(crate) fn headers(&mut self, i: usize, vlan_limit: u8) -> HeaderCtx<'_> {
        let Arrays { keys, layouts, dirty, .. } = self;
        HeaderCtx { key: &mut keys[i], layout: &mut layouts[i], dirty: &mut dirty[i], vlan_limit }
    }

    /// Packet `i` and its headers, for actions.
    #[inline(always)]
    pub(crate) fn packet_and_headers(&mut self, i: usize, vlan_limit: u8) -> (&mut Packet, HeaderCtx<'_>) {
        let Arrays { packets, keys, layouts, dirty, .. } = self;
        let ctx = HeaderCtx { key: &mut keys[i], layout: &mut layouts[i], dirty: &mut dirty[i], vlan_limit };
        (&mut packets[i], ctx)
    }

    /// Packet `i` and its headers for a tracker, with its view of the packet.
    #[inline(always)]
    pub(crate) fn tracked(
        &mut self,
        i: usize,
        vlan_limit: u8,
    ) -> (&mut Packet, HeaderCtx<'_>, &mut PacketInfo) {
        let Arrays { packets, keys, layouts, dirty, infos, .. } = self;
        let ctx = HeaderCtx { key: &mut keys[i], layout: &mut layouts[i], dirty: &mut dirty[i], vlan_limit };
        (&mut packets[i], ctx, &mut infos[i])
    }

    /// Packet `i` and its headers, read-only.
    #[inline]
    pub(crate) fn parsed(&self, i: usize) -> Parsed<'_> {
        Parsed { key: &self.keys[i], layout: self.layouts[i], dirty: self.dirty[i] }
    }

    /// Appends a packet. The caller has checked for space.
    pub(crate) fn push(&mut self, packet: Packet, state: Parsed<'_>, origin: Origin) {
        let i = self.packets.len();
        copy_key(state.key, &mut self.keys[i]);
        self.layouts[i] = state.layout;
        self.dirty[i] = state.dirty;
        self.origins[i] = origin;
        self.packets.push(packet);
    }

    /// Parses changed headers again.
    pub(crate) fn refresh(&mut self, vlan_limit: u8) {
        for (i, packet) in self.packets.iter().enumerate() {
            if self.dirty[i] {
                self.layouts[i] = re_extract(&mut self.keys[i], packet.data(), vlan_limit);
                self.dirty[i] = false;
            }
        }
    }
}

/// Header metadata of a packet.
#[derive(Clone, Copy)]
pub(crate) struct Parsed<'a> {
    pub(crate) key: &'a FlowKey,
    pub(crate) layout: Layout,
    /// As in [`Arrays::dirty`].
    pub(crate) dirty: bool,
}

/// Headers of a packet for actions, which update them or mark them dirty.
pub(crate) struct HeaderCtx<'a> {
    pub(crate) key: &'a mut FlowKey,
    pub(crate) layout: &'a mut Layout,
    pub(crate) dirty: &'a mut bool,
    /// As in [`crate::PmdConfig`].
    pub(crate) vlan_limit: u8,
}

impl HeaderCtx<'_> {
    pub(crate) fn parsed(&self) -> Parsed<'_> {
        Parsed { key: self.key, layout: *self.layout, dirty: *self.dirty }
    }

    /// Parses the headers of the packet again if they changed.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, packet: &Packet) {
        if *self.dirty {
            *self.layout = re_extract(self.key, packet.data(), self.vlan_limit);
            *self.dirty = false;
        }
    }
}

/// Copies the blocks of `from`; clears those of `to` alone.
#[inline]
pub(crate) fn copy_key(from: &FlowKey, to: &mut FlowKey) {
    if (from.base.shape | to.base.shape) != 0 {
        to.clear();
        from.extension_blocks().for_each(|i| *to.block_mut(i) = *from.block(i));
    }
    *to.block_mut(0) = *from.block(0);
}

/// Bit `i` stands for packet `i` of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneMask(pub(crate) u32);

const _: () = assert!(BATCH_MAX_PACKETS <= u32::BITS as usize);

impl LaneMask {
    pub(crate) const NONE: LaneMask = LaneMask(0);

    /// The first packets of a burst.
    pub(crate) fn first(packets: usize) -> LaneMask {
        LaneMask(u32::MAX.checked_shr(u32::BITS.saturating_sub(packets as u32)).unwrap_or(0))
    }

    pub(crate) fn one(lane: usize) -> LaneMask {
        LaneMask(1 << lane)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their number; not that of an iterator, which ends it.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first of them in order of arrival.
    pub(crate) fn lowest(mut self) -> Option<usize> {
        self.next()
    }

    pub(crate) fn has(self, lane: usize) -> bool {
        self.0 >> lane & 1 != 0
    }

    pub(crate) fn and(self, other: LaneMask) -> LaneMask {
        LaneMask(self.0 & other.0)
    }

    pub(crate) fn without(self, other: LaneMask) -> LaneMask {
        LaneMask(self.0 & !other.0)
    }

    pub(crate) fn add(&mut self, other: LaneMask) {
        self.0 |= other.0;
    }
}

/// In order of arrival.
impl Iterator for LaneMask {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = (self.0 != 0).then(|| self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        lane
    }
}

/// The burst that the stages process.
pub(crate) struct Burst {
    pub(crate) arrays: Box<Arrays>,
    /// Origin of the first packet of a newly received burst: the others' origins follow from it.
    pub(crate) received: Option<Origin>,
    pub(crate) hashes: [u64; BATCH_MAX_PACKETS],
    /// Slot of the megaflow, [`MISS`] or [`crate::stages::WAITS`].
    pub(crate) results: [u32; BATCH_MAX_PACKETS],
    /// Actions of the megaflow, or [`NO_LIST`].
    pub(crate) lists: [u32; BATCH_MAX_PACKETS],
    pub(crate) misses: Vec<u32>,
}

impl Burst {
    pub(crate) fn new() -> Burst {
        Burst {
            arrays: Arrays::new(),
            received: None,
            hashes: [0; BATCH_MAX_PACKETS],
            results: [MISS; BATCH_MAX_PACKETS],
            lists: [NO_LIST; BATCH_MAX_PACKETS],
            misses: Vec::with_capacity(BATCH_MAX_PACKETS),
        }
    }
}

impl Burst {
    /// The packets without a result.
    #[inline(always)]
    pub(crate) fn without_result(&self) -> LaneMask {
        LaneMask(simd::equal_u32(&self.results, MISS)).and(LaneMask::first(self.arrays.packets.len()))
    }

    /// Writes the origins of a newly received burst, which most bursts do not need.
    pub(crate) fn write_origins(&mut self, first: Origin) {
        self.arrays.dirty = [false; BATCH_MAX_PACKETS];
        for (i, origin) in self.arrays.origins.iter_mut().enumerate() {
            *origin = Origin { number: first.number.wrapping_add(i as u64), ..first };
        }
    }
}

/// A recirculated packet beyond the size of the arrays.
struct Queued {
    packet: Packet,
    key: Box<FlowKey>,
    layout: Layout,
    dirty: bool,
    origin: Origin,
}

/// Recirculated packets in FIFO order: a burst of them in arrays, the following ones in a queue.
pub(crate) struct Recirculated {
    next: Box<Arrays>,
    queue: VecDeque<Queued>,
}

impl Recirculated {
    pub(crate) fn new() -> Recirculated {
        Recirculated { next: Arrays::new(), queue: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next.packets.is_empty() && self.queue.is_empty()
    }

    /// Adds a packet under a recirculation id, or returns it if [`RECIRCULATED_MAX`] wait.
    pub(crate) fn push(
        &mut self,
        packet: Packet,
        state: Parsed<'_>,
        origin: Origin,
        recirc_id: u32,
    ) -> Result<(), Packet> {
        let waiting = self.next.packets.len();
        if self.queue.is_empty() && waiting < BATCH_MAX_PACKETS {
            self.next.push(packet, state, origin);
            self.next.keys[waiting].base.recirc_id = recirc_id;
        } else if waiting + self.queue.len() < RECIRCULATED_MAX {
            let Parsed { key, layout, dirty } = state;
            let mut key = Box::new(*key);
            key.base.recirc_id = recirc_id;
            self.queue.push_back(Queued { packet, key, layout, dirty, origin });
        } else {
            return Err(packet);
        }
        Ok(())
    }

    /// Makes the first of them the current burst, whose own packets are done.
    pub(crate) fn take_burst(&mut self, arrays: &mut Box<Arrays>) {
        debug_assert!(arrays.packets.is_empty(), "the former burst is done");
        std::mem::swap(arrays, &mut self.next);
        while !arrays.is_full() {
            let Some(queued) = self.queue.pop_front() else { break };
            let Queued { packet, key, layout, dirty, origin } = queued;
            arrays.push(packet, Parsed { key: &key, layout, dirty }, origin);
        }
    }
}
