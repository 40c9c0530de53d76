//! [`Repeats`]: megaflows of whole bursts, as hints for the next bursts.
//!
//! Many connections often share one megaflow, above all after recirculation. The next burst from that port with that
//! recirculation id is compared with the megaflows of the last ones first, without hashes of keys: with up to eight if the
//! last burst had no more, with one if it was that of most. Packets of others are looked up. As in the cache, a hint counts
//! if the megaflow matches the packet: those of deleted ones are harmless.

use crate::burst::{Arrays, Burst, LaneMask};
use crate::megaflow::MegaflowTable;
use crate::stages::{MISS, WAITS};
use flow::FlowKey;
use packet::BATCH_MAX_PACKETS;
use simd::{Kernel, Lanes};

const ENTRIES_BITS: u32 = 6;

/// Megaflows of a burst at most.
const HINTS: usize = 8;
/// This many must be those of a quarter of its packets: else a hint costs more than a lookup.
const HALF: usize = HINTS / 2;

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
        let hints = &mut self.0[Self::place(&burst.arrays.keys[0])];
        *hints = of_burst(&burst.results, burst.arrays.packets.len(), hints);
    }
}

/// The megaflows of all packets, those of many first, and behind them those of earlier bursts; or that of most.
#[inline]
fn of_burst(results: &[u32; BATCH_MAX_PACKETS], packets: usize, before: &Hints) -> Hints {
    let (mut left, mut hints, mut known) = (LaneMask::first(packets), NONE, 0);
    let mut counts = [0; HINTS];
    while let Some(lane) = left.lowest() {
        let id = results[lane];
        let same = LaneMask(simd::equal_u32(results, id)).and(left);
        if id >= WAITS {
            // A packet without a megaflow says nothing about the others.
            left = left.without(same);
            continue;
        }
        let rare = known == HALF && left.count() * 4 > packets * 3;
        if known == HINTS || rare {
            return NONE;
        }
        left = left.without(same);
        if same.count() * 4 >= packets * 3 {
            hints = NONE;
            hints[0] = id;
            return hints;
        }
        let at = counts[..known].partition_point(|count| *count >= same.count());
        hints[at..=known].rotate_right(1);
        counts[at..=known].rotate_right(1);
        (hints[at], counts[at]) = (id, same.count());
        known += 1;
    }
    for id in before {
        if known == HINTS {
            break;
        }
        if *id != MISS && !hints.contains(id) {
            hints[known] = *id;
            known += 1;
        }
    }
    hints
}

/// The burst → some megaflows; a single one only if the first packet matches it. Packets with a result keep it. Returns the
/// hits.
pub(crate) struct FindRepeated<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) table: &'a mut MegaflowTable,
    pub(crate) hints: Hints,
    pub(crate) now_ms: u64,
}

impl Kernel for FindRepeated<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> u64 {
        let FindRepeated { burst, table, hints, now_ms } = self;
        if hints[1] == MISS {
            find_one(burst, table, hints[0], now_ms)
        } else {
            find_some(burst, table, hints, now_ms)
        }
    }
}

/// Compares a burst whose packets probably all have one megaflow.
#[inline(always)]
fn find_one(burst: &mut Burst, table: &mut MegaflowTable, id: u32, now_ms: u64) -> u64 {
    let Burst { arrays, results, lists, .. } = burst;
    let Arrays { packets, keys, .. } = &**arrays;
    let Some((slot, mask)) = table.slot_and_mask(id) else { return 0 };
    let (mut hits, mut bytes, mut tcp_flags) = (0, 0, 0);
    if slot.matches(mask, &keys[0]) {
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
        slot.account(hits, bytes, tcp_flags, now_ms);
    }
    hits
}

/// Compares each packet of a burst with each of several megaflows. Which packets match can't be predicted, so the first
/// blocks are compared without a branch; nearly all that match there do so in the others.
#[inline(always)]
fn find_some(burst: &mut Burst, table: &mut MegaflowTable, hints: Hints, now_ms: u64) -> u64 {
    let without = burst.without_result();
    let Burst { arrays, results, lists, .. } = burst;
    let Arrays { packets, keys, .. } = &**arrays;
    let mut left = without;
    for id in hints {
        let Some((slot, mask)) = table.slot_and_mask(id) else { continue };
        let mut alike = LaneMask::NONE;
        for lane in left {
            alike.0 |= u32::from(slot.base_matches(mask, &keys[lane])) << lane;
        }
        let (mut hits, mut bytes, mut tcp_flags) = (0, 0, 0);
        for lane in alike {
            if slot.extensions_match(mask, &keys[lane]) {
                (results[lane], lists[lane]) = (id, slot.list);
                hits += 1;
                bytes += packets[lane].len() as u64;
                tcp_flags |= keys[lane].tcp_flags();
                left = left.without(LaneMask::one(lane));
            }
        }
        if hits != 0 {
            slot.account(hits, bytes, tcp_flags, now_ms);
        }
        if left.is_empty() {
            break;
        }
    }
    without.without(left).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[u32], before: &[u32]) -> Vec<u32> {
        let (mut results, mut hints) = ([MISS; BATCH_MAX_PACKETS], NONE);
        results[..ids.len()].copy_from_slice(ids);
        hints[..before.len()].copy_from_slice(before);
        let hints = of_burst(&results, ids.len(), &hints);
        let known = hints.iter().position(|id| *id == MISS).unwrap_or(HINTS);
        assert!(hints[known..].iter().all(|id| *id == MISS), "{hints:?}");
        hints[..known].to_vec()
    }

    #[test]
    fn hints_are_the_megaflows_of_all_packets_or_of_most() {
        assert_eq!(of(&[7; 32], &[]), [7]);
        assert_eq!(of(&[7, 8, 9, 7, 8, 9, 9], &[]), [9, 7, 8]);
        assert_eq!(of(&[7, 8], &[]), [7, 8]);
        assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8, 1, 2], &[]), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], &[1]), [0_u32; 0]);
        assert_eq!(of(&[7, 8, 9, 10, 7, 7, 7, 7, 7, 7, 7, 7, 7], &[8]), [7]);
        assert_eq!(of(&[MISS, 7, 7, 7], &[7]), [7]);
        assert_eq!(of(&[7, MISS, 7, 7, 8], &[7]), [7, 8]);
        // Packets without a megaflow leave the hints of others.
        assert_eq!(of(&[MISS, MISS], &[7, 8]), [7, 8]);
        assert_eq!(of(&[], &[]), [0_u32; 0]);
        // Each packet has its own.
        let own: Vec<u32> = (0..32).collect();
        assert_eq!(of(&own, &[1]), [0_u32; 0]);
    }

    #[test]
    fn hints_of_earlier_bursts_follow_as_long_as_there_is_room() {
        assert_eq!(of(&[7, 8, 9], &[1, 8, 2]), [7, 8, 9, 1, 2]);
        assert_eq!(of(&[7, 8, 9], &[1, 2, 3, 4, 5, 6]), [7, 8, 9, 1, 2, 3, 4, 5]);
        assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8], &[9]), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
