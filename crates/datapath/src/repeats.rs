//! [`Repeats`]: megaflows of whole bursts, as hints for the next bursts.
//!
//! Many connections often share one megaflow, above all after recirculation. The next burst from that port with that
//! recirculation id is compared with the megaflows of the last one first, without hashes of keys: with up to four if they
//! were those of all packets, with one if it was that of most. As in the cache, a hint counts if the megaflow
//! matches the packet: those of deleted ones are harmless.

use crate::burst::{Arrays, Burst, LaneMask};
use crate::megaflow::MegaflowTable;
use crate::stages::{MISS, WAITS};
use flow::FlowKey;
use packet::BATCH_MAX_PACKETS;
use simd::{Kernel, Lanes};

const ENTRIES_BITS: u32 = 6;

/// Megaflows of a burst at most.
const HINTS: usize = 4;

/// Megaflows that the packets of a burst may have. [`MISS`] is none; those before it are not.
pub(crate) type Hints = [u32; HINTS];

const NONE: Hints = [MISS; HINTS];

/// The hints, by port and recirculation id.
pub(crate) struct Repeats([Hints; 1 << ENTRIES_BITS]);

impl Repeats {
    /// No hints.
    pub(crate) fn new() -> Repeats {
        Repeats([NONE; 1 << ENTRIES_BITS])
    }

    #[inline]
    fn place(key: &FlowKey) -> usize {
        let both = key.base.in_port ^ key.base.recirc_id.rotate_left(16);
        (both.wrapping_mul(0x9e37_79b1) >> (u32::BITS - ENTRIES_BITS)) as usize
    }

    /// The megaflows that a burst with this first key may have.
    #[inline]
    pub(crate) fn hints(&self, first: &FlowKey) -> Hints {
        self.0[Self::place(first)]
    }

    /// Remembers the megaflows of a burst.
    #[inline]
    pub(crate) fn remember(&mut self, burst: &Burst) {
        self.0[Self::place(&burst.arrays.keys[0])] = of_burst(&burst.results, burst.arrays.packets.len());
    }
}

/// The megaflows of all packets, or that of most.
#[inline]
fn of_burst(results: &[u32; BATCH_MAX_PACKETS], packets: usize) -> Hints {
    let mut left = LaneMask::first(packets);
    let (mut hints, mut most) = (NONE, 0);
    for hint in &mut hints {
        let Some(lane) = left.lowest() else { return hints };
        let id = results[lane];
        if id >= WAITS {
            return NONE;
        }
        let same = LaneMask(simd::equal_u32(results, id)).and(left);
        left = left.without(same);
        *hint = id;
        let count = same.0.count_ones() as usize;
        if count * 4 >= packets * 3 {
            return [id, MISS, MISS, MISS];
        }
        most += count;
    }
    if most == packets { hints } else { NONE }
}

/// The burst → some megaflows; a single one only if the first packet matches it. Packets with a result keep it. Returns the
/// hits.
pub(crate) struct FindRepeated<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) table: &'a mut MegaflowTable,
    pub(crate) hints: Hints,
    pub(crate) now_ms: u64,
}

impl FindRepeated<'_> {
    /// Compares the packets without a result with the further megaflows; returns the hits.
    #[inline(never)]
    fn find_others(&mut self) -> u64 {
        let Burst { arrays, results, lists, .. } = &mut *self.burst;
        let Arrays { packets, keys, .. } = &**arrays;
        let mut all_hits = 0;
        for id in &self.hints[1..] {
            let Some((slot, mask)) = self.table.slot_and_mask(*id) else { break };
            let (mut hits, mut bytes, mut tcp_flags) = (0, 0, 0);
            for lane in LaneMask(simd::equal_u32(results, MISS)).and(LaneMask::first(packets.len())) {
                if slot.matches(mask, &keys[lane]) {
                    (results[lane], lists[lane]) = (*id, slot.list);
                    hits += 1;
                    bytes += packets[lane].len() as u64;
                    tcp_flags |= keys[lane].tcp_flags();
                }
            }
            if hits != 0 {
                slot.account(hits, bytes, tcp_flags, self.now_ms);
            }
            all_hits += hits;
        }
        all_hits
    }
}

impl Kernel for FindRepeated<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(mut self, _: L) -> u64 {
        let Burst { arrays, results, lists, .. } = &mut *self.burst;
        let Arrays { packets, keys, .. } = &**arrays;
        let [id, second, ..] = self.hints;
        let Some((slot, mask)) = self.table.slot_and_mask(id) else { return 0 };
        let (mut hits, mut bytes, mut tcp_flags) = (0, 0, 0);
        if slot.matches(mask, &keys[0]) || second != MISS {
            for (((packet, key), result), list) in packets.iter().zip(keys).zip(results).zip(lists) {
                if *result == MISS && slot.matches(mask, key) {
                    (*result, *list) = (id, slot.list);
                    hits += 1;
                    bytes += packet.len() as u64;
                    tcp_flags |= key.tcp_flags();
                }
            }
        }
        if hits != 0 {
            slot.account(hits, bytes, tcp_flags, self.now_ms);
        }
        if second == MISS || hits == self.burst.arrays.packets.len() as u64 {
            return hits;
        }
        hits + self.find_others()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[u32]) -> Hints {
        let mut results = [MISS; BATCH_MAX_PACKETS];
        results[..ids.len()].copy_from_slice(ids);
        of_burst(&results, ids.len())
    }

    #[test]
    fn hints_are_the_megaflows_of_all_packets_or_of_most() {
        assert_eq!(of(&[7; 32]), [7, MISS, MISS, MISS]);
        assert_eq!(of(&[7, 8, 9, 7, 8, 9, 9]), [7, 8, 9, MISS]);
        assert_eq!(of(&[7, 8]), [7, 8, MISS, MISS]);
        assert_eq!(of(&[7, 8, 9, 10, 11]), NONE);
        assert_eq!(of(&[7, 8, 9, 10, 7, 7, 7, 7, 7, 7, 7, 7, 7]), [7, MISS, MISS, MISS]);
        assert_eq!(of(&[MISS, 7, 7, 7]), NONE);
        assert_eq!(of(&[7, MISS, 7, 7, 8]), NONE);
        assert_eq!(of(&[]), NONE);
    }
}
