//! Mask explosion: bounded, and only the port that causes it is slower. Tuning at run time.

use super::frames::{ipv4, l4};
use super::*;

/// Packet `n` of the attack, with a unique mask.
fn attack(n: u16) -> (Vec<u8>, KeyMask) {
    let frame = ipv4(17, [10, 9, (n >> 8) as u8, n as u8], [10, 1, 0, 1], 0, &l4(17, 7, 9, false));
    let mut mask = least_mask();
    mask.base.nw_src = u32::MAX;
    mask.base.tcp_flags = n;
    (frame, mask)
}

/// Earlier traffic of some port, and its mask.
fn victim() -> (Vec<u8>, KeyMask) {
    let mut mask = least_mask();
    mask.base.nw_proto = 0xff;
    mask.base.nw_dst = u32::MAX;
    (ipv4(6, [10, 0, 0, 1], [10, 1, 0, 9], 0, &l4(6, 5, 80, false)), mask)
}

/// Answers the miss of `frame` on `port` with a megaflow and the packet; returns whether the megaflow was accepted.
fn answer(rig: &mut Rig, port: u32, frame: &[u8], mask: KeyMask) -> bool {
    rig.receive(port, &[frame.to_vec()]);
    let upcall = rig.io.upcalls.pop().expect("a miss");
    let (_, result) = rig.put(upcall.key, mask, vec![out(2)]);
    rig.execute(upcall.packet, upcall.key, vec![out(2)], upcall.ticket);
    assert_eq!(rig.sent(), [(2, frame.to_vec())], "the packet goes on by the slow path");
    match result {
        OpResult::Done => true,
        OpResult::Failed(DpifError::Full(_)) => false,
        other => panic!("{other:?}"),
    }
}

/// Without the flow cache; a new mask never waits for demand.
fn all_free(config: &mut PmdConfig) {
    config.tuning.cache_insert_inv_prob = 0;
    config.tuning.masks_per_port_free = usize::MAX;
}

/// Subtables visited by one packet without the flow cache.
fn lookups(rig: &mut Rig, port: u32, frame: &[u8]) -> u64 {
    let before = *rig.pmd.stats();
    rig.receive(port, &[frame.to_vec()]);
    assert_eq!(rig.sent(), [(2, frame.to_vec())]);
    let stats = rig.pmd.stats();
    assert_eq!(stats.megaflow_hits, before.megaflow_hits + 1);
    stats.subtable_lookups - before.subtable_lookups
}

#[test]
fn masks_of_a_port_are_bounded_and_refusals_counted() {
    let mut rig = Rig::with(|c| c.tuning.masks_per_port_max = 16);
    let taken: Vec<bool> = (0..40).map(attack).map(|(f, mask)| answer(&mut rig, 1, &f, mask)).collect();
    assert_eq!(taken.iter().filter(|t| **t).count(), 16);
    assert_eq!(rig.pmd.stats().masks_refused, 24);
    assert_eq!(rig.pmd.stats().masks, 16);
    // An existing mask of the port takes more flows; another port has its own list.
    let (mut frame, mask) = attack(3);
    frame[26] ^= 1;
    assert!(answer(&mut rig, 1, &frame, mask));
    let (frame, mask) = attack(30);
    assert!(answer(&mut rig, 3, &frame, mask));
    assert_eq!(rig.pmd.stats().masks, 17);
    // Deleted flows free space.
    rig.apply(DpifOp::FlowFlush);
    assert!(answer(&mut rig, 1, &frame, mask));
}

#[test]
fn other_ports_and_older_traffic_do_not_pay() {
    let mut rig = Rig::with(all_free);
    let (frame, mask) = victim();
    rig.flow(4, &frame, mask, vec![out(2)]);
    rig.flow(1, &frame, mask, vec![out(2)]);
    for n in 0..1000 {
        let (frame, mask) = attack(n);
        answer(&mut rig, 1, &frame, mask);
    }
    assert_eq!(rig.pmd.stats().masks_refused, 1000 - 511, "512 masks: one was there before");
    assert_eq!(lookups(&mut rig, 4, &frame), 1, "another port");
    assert_eq!(lookups(&mut rig, 1, &frame), 1, "the same port, an older flow");
}

/// Packets of a flow whose mask the full list refused take the slow path only until it is in demand, also among as many
/// crafted packets.
#[test]
fn a_mask_in_demand_enters_a_full_list() {
    let mut rig = Rig::with(all_free);
    for n in 0..1000 {
        let (frame, mask) = attack(n);
        answer(&mut rig, 1, &frame, mask);
    }
    let (frame, mask) = victim();
    let mut refused = 0;
    while !answer(&mut rig, 1, &frame, mask) {
        refused += 1;
        let (frame, mask) = attack(1000 + refused);
        answer(&mut rig, 1, &frame, mask);
    }
    assert!((8..40).contains(&refused), "{refused}");
    assert_eq!(rig.pmd.stats().masks, 513);
    assert_eq!(lookups(&mut rig, 1, &frame), 1, "it comes first");
}

/// Masks in demand are bounded, too.
#[test]
fn demand_exceeds_the_limit_by_an_eighth() {
    let mut rig = Rig::with(|c| c.tuning.masks_per_port_max = 16);
    for n in (0..40).flat_map(|n| [n; 50]) {
        let (mut frame, mask) = attack(n);
        frame[26] = rig.ufids as u8;
        frame[27] = (rig.ufids >> 8) as u8;
        answer(&mut rig, 1, &frame, mask);
    }
    assert_eq!(rig.pmd.stats().masks, 16 + 2);
}

#[test]
fn ranking_brings_traffic_in_front_of_idle_masks() {
    let mut rig = Rig::with(all_free);
    for n in 0..300 {
        let (frame, mask) = attack(n);
        answer(&mut rig, 1, &frame, mask);
    }
    let (frame, mask) = victim();
    rig.flow(1, &frame, mask, vec![out(2)]);
    assert_eq!(lookups(&mut rig, 1, &frame), 301);
    rig.pmd.tick(2_000_000);
    assert_eq!(lookups(&mut rig, 1, &frame), 1);
}

#[test]
fn the_cache_can_be_disabled_at_run_time() {
    let mut rig = Rig::new();
    let (frame, mask) = attack(1);
    rig.flow(1, &frame, mask, vec![out(2)]);
    let cached = |rig: &mut Rig| {
        let before = rig.pmd.stats().cache_hits;
        (0..3).for_each(|_| rig.receive(1, std::slice::from_ref(&frame)));
        assert_eq!(rig.sent().len(), 3);
        rig.pmd.stats().cache_hits - before
    };
    assert_eq!(cached(&mut rig), 2);
    rig.pmd.set_tuning(PmdTuning::from_settings(Some(0), Some(false)));
    assert_eq!(rig.pmd.cache_stats().entries, 0, "its memory is given back");
    assert_eq!(cached(&mut rig), 0);
    rig.pmd.set_tuning(PmdTuning::from_settings(Some(0), Some(true)));
    assert_eq!(cached(&mut rig), 2);
}

#[test]
fn settings_of_the_stock_switch() {
    let inv_prob = |emc, smc| PmdTuning::from_settings(emc, smc).cache_insert_inv_prob;
    assert_eq!(inv_prob(None, None), 1);
    assert_eq!(inv_prob(None, Some(false)), 1);
    assert_eq!(inv_prob(Some(0), None), 0);
    assert_eq!(inv_prob(Some(0), Some(false)), 0);
    assert_eq!(inv_prob(Some(0), Some(true)), 1);
    assert_eq!(inv_prob(Some(100), None), 100);
    assert_eq!(inv_prob(Some(100), Some(true)), 1);
}

/// Beyond its free places a list takes few masks a second, and those in demand at once, in front of the others.
#[test]
fn masks_of_single_packets_stay_few() {
    let mut rig = Rig::with(|c| c.tuning.cache_insert_inv_prob = 0);
    for n in 0..1000 {
        let (frame, mask) = attack(n);
        answer(&mut rig, 1, &frame, mask);
    }
    assert_eq!(rig.pmd.stats().masks, 64);
    for second in 1..=3 {
        rig.pmd.tick(second * 2_000_000);
        for n in 0..100 {
            let (frame, mask) = attack(1000 * second as u16 + n);
            answer(&mut rig, 1, &frame, mask);
        }
        assert_eq!(rig.pmd.stats().masks, 64 + 4 * second);
    }
    let (frame, mask) = victim();
    let refused = (0..100).take_while(|_| !answer(&mut rig, 1, &frame, mask)).count();
    assert!((8..40).contains(&refused), "{refused}");
    assert_eq!(lookups(&mut rig, 1, &frame), 1, "it comes first");
    // Another port has its own places.
    let (frame, mask) = attack(7);
    assert!(answer(&mut rig, 3, &frame, mask));
}
