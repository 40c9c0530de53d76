//! [`Repeats`]: megaflows of whole bursts, as hints for the next bursts.
//!
//! Many connections often share one megaflow, above all after recirculation. If most packets of a burst had one
//! megaflow, the next burst from that port with that recirculation id is compared with it first, without hashes of
//! keys. As in the cache, a hint counts if the megaflow matches the packet: those of deleted ones are harmless.

use crate::burst::{Arrays, Burst};
use crate::megaflow::MegaflowTable;
use crate::stages::{MISS, WAITS};
use flow::FlowKey;
use simd::{Kernel, Lanes};

const ENTRIES_BITS: u32 = 6;

/// The hints, by port and recirculation id.
pub(crate) struct Repeats([u32; 1 << ENTRIES_BITS]);

impl Repeats {
    /// No hints.
    pub(crate) fn new() -> Repeats {
        Repeats([MISS; 1 << ENTRIES_BITS])
    }

    #[inline]
    fn place(key: &FlowKey) -> usize {
        let both = key.base.in_port ^ key.base.recirc_id.rotate_left(16);
        (both.wrapping_mul(0x9e37_79b1) >> (u32::BITS - ENTRIES_BITS)) as usize
    }

    /// The megaflow that a burst with this first key may have, or [`MISS`].
    #[inline]
    pub(crate) fn hint(&self, first: &FlowKey) -> u32 {
        self.0[Self::place(first)]
    }

    /// Remembers the megaflow of a burst, if most of its packets have that of the first.
    #[inline]
    pub(crate) fn remember(&mut self, burst: &Burst) {
        let (id, packets) = (burst.results[0], burst.arrays.packets.len());
        // Most bursts of several megaflows differ in these already.
        let seems_same = [packets / 2, packets.saturating_sub(1)].iter().any(|n| burst.results[*n] == id);
        let same = || simd::equal_u32(&burst.results, id).count_ones() as usize;
        let most = id < WAITS && seems_same && same() * 4 >= packets * 3;
        self.0[Self::place(&burst.arrays.keys[0])] = if most { id } else { MISS };
    }
}

/// The burst → one megaflow, if the first packet matches it. Packets with a result keep it. Returns the hits.
pub(crate) struct FindRepeated<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) table: &'a mut MegaflowTable,
    pub(crate) id: u32,
    pub(crate) now_ms: u64,
}

impl Kernel for FindRepeated<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> u64 {
        let Burst { arrays, results, lists, .. } = self.burst;
        let Arrays { packets, keys, .. } = &**arrays;
        let Some((slot, mask)) = self.table.slot_and_mask(self.id) else { return 0 };
        if !slot.matches(mask, &keys[0]) {
            return 0;
        }
        let (mut hits, mut bytes, mut tcp_flags) = (0, 0, 0);
        for (((packet, key), result), list) in packets.iter().zip(keys).zip(results).zip(lists) {
            if *result == MISS && slot.matches(mask, key) {
                (*result, *list) = (self.id, slot.list);
                hits += 1;
                bytes += packet.len() as u64;
                tcp_flags |= key.tcp_flags();
            }
        }
        if hits != 0 {
            slot.account(hits, bytes, tcp_flags, self.now_ms);
        }
        hits
    }
}
