//! Ports with many flows end, and all flows are deleted, in bounded slices, while packets of others pass.

use super::frames::{ipv4, l4};
use super::*;
use crate::upkeep::SLICE_SLOTS;
use std::collections::BTreeSet;

const FLOWS: u32 = 5_000;

fn frame(n: u32) -> Vec<u8> {
    let [a, b, c, d] = (0x0a00_0000 + n).to_be_bytes();
    ipv4(17, [a, b, c, d], [10, 200, 0, 1], 0, &l4(17, 7, 9, false))
}

fn by_source() -> KeyMask {
    let mut mask = least_mask();
    mask.base.nw_src = u32::MAX;
    mask
}

/// Flows from ports 1 and 3 in turn, each hit once, and an older one from port 4.
fn filled() -> Rig {
    let mut rig = Rig::new();
    rig.flow(4, &frame(0), by_source(), vec![out(2)]);
    for n in 0..FLOWS {
        for port in [1, 3] {
            rig.flow(port, &frame(n), by_source(), vec![out(2)]);
            rig.receive(port, &[frame(n)]);
        }
    }
    assert_eq!(rig.sent().len(), 2 * FLOWS as usize);
    rig
}

/// Slices needed for removing that many flows among `slots`.
fn slices(flows: u32, slots: u32) -> u32 {
    flows / SLICE_FLOWS as u32 + slots / SLICE_SLOTS + 2
}

#[test]
fn a_port_with_many_flows_ends_in_slices_and_no_packet_hits_them_meanwhile() {
    let mut rig = filled();
    rig.pmd.port_remove(DpPort(1), &mut rig.io);
    let (mut turns, mut gone) = (0, Vec::new());
    while let Some(some) = rig.pmd.upkeep() {
        assert!(some.len() <= SLICE_FLOWS);
        gone.extend(some);
        turns += 1;
        let left = u64::from(FLOWS) - gone.len() as u64;
        assert_eq!(rig.pmd.ending_flows(), left);
        assert_eq!(rig.pmd.stats().flows, 1 + u64::from(FLOWS) + left, "those that are left count");
        let of_removed = rig.drops(DropReason::PortRemoved);
        rig.receive(1, &[frame(turns)]);
        assert_eq!(rig.drops(DropReason::PortRemoved), of_removed + 1);
        rig.receive(3, &[frame(turns)]);
        assert_eq!(rig.sent(), [(2, frame(turns))], "others pass");
        assert!(turns <= slices(FLOWS, 2 * FLOWS + 512), "{turns} slices");
    }
    assert!(turns >= FLOWS / SLICE_FLOWS as u32);
    assert!(gone.iter().all(|flow| flow.key.base.in_port == 1 && flow.stats.packets == 1));
    let names: BTreeSet<Ufid> = gone.iter().map(|flow| flow.ufid).collect();
    assert_eq!(names.len(), FLOWS as usize, "each is reported once");
    assert!(rig.io.upcalls.is_empty());
}

#[test]
fn a_port_of_the_same_number_misses_until_the_old_flows_are_gone() {
    for cache_insert_inv_prob in [0, 1] {
        let mut rig = Rig::with(|c| c.tuning.cache_insert_inv_prob = cache_insert_inv_prob);
        let old = rig.flow(1, &frame(1), by_source(), vec![out(2)]);
        for n in 2..=100 {
            rig.flow(1, &frame(n), by_source(), vec![out(2)]);
        }
        rig.flow(3, &frame(1), by_source(), vec![out(4)]);
        // Cached, and remembered for whole bursts.
        rig.receive(1, &[frame(1), frame(1), frame(1), frame(1)]);
        rig.receive(3, &[frame(1)]);
        rig.sent();
        rig.pmd.port_remove(DpPort(1), &mut rig.io);
        rig.pmd.port_add(DpPort(1)).unwrap();
        rig.receive(1, &[frame(1), frame(1), frame(1), frame(1)]);
        assert_eq!((rig.sent(), rig.io.upcalls.len()), (vec![], 1), "no old flow is hit");
        rig.receive(3, &[frame(1)]);
        assert_eq!(rig.sent(), [(4, frame(1))]);
        let (_, put) = rig.put(key_of(1, &frame(1)), by_source(), vec![out(3)]);
        assert!(matches!(put, OpResult::Failed(DpifError::Busy(_))), "{put:?}");
        let change = FlowPut {
            ufid: old,
            key: key_of(1, &frame(1)),
            mask: by_source(),
            actions: Arc::from([out(3)]),
            mode: PutMode::Modify,
        };
        let changed = rig.apply(DpifOp::FlowPut(Box::new(change)));
        assert!(matches!(changed, OpResult::Failed(DpifError::NotFound(_))), "{changed:?}");
        // A flow deleted by its name is not reported twice.
        let OpResult::Flow(record) = rig.apply(DpifOp::FlowDel(old)) else { panic!("not deleted") };
        assert_eq!(record.stats.packets, 4);
        let gone: Vec<_> = std::iter::from_fn(|| rig.pmd.upkeep()).flatten().collect();
        assert_eq!(gone.len(), 99);
        assert!(!rig.pmd.is_ending(DpPort(1)) && gone.iter().all(|flow| flow.ufid != old));
        rig.flow(1, &frame(1), by_source(), vec![out(3)]);
        let upcall = rig.io.upcalls.remove(0);
        rig.execute(upcall.packet, upcall.key, vec![out(3)], upcall.ticket);
        rig.receive(1, &[frame(1)]);
        // Three packets waited behind the first, and hit the new flow.
        assert_eq!(rig.sent(), vec![(3, frame(1)); 5]);
    }
}

#[test]
fn many_ports_end_in_one_pass() {
    let mut rig = Rig::new();
    for n in 0..4_000 {
        rig.flow(100 + n % 1_000, &frame(n), by_source(), vec![out(2)]);
    }
    (100..1_100).for_each(|port| rig.pmd.port_remove(DpPort(port), &mut rig.io));
    assert_eq!(rig.pmd.ending_flows(), 4_000);
    let turns = std::iter::from_fn(|| rig.pmd.upkeep()).count() as u32;
    assert!(turns <= slices(4_000, 4_000 + 256), "{turns} slices");
    assert_eq!((rig.pmd.stats().flows, rig.pmd.stats().masks), (0, 0));
}

#[test]
fn all_flows_are_deleted_at_once_and_freed_in_slices() {
    let mut rig = filled();
    assert!(matches!(rig.apply(DpifOp::FlowFlush), OpResult::Done));
    assert_eq!(rig.pmd.stats().flows, 0);
    rig.receive(1, &[frame(1)]);
    assert_eq!((rig.sent(), rig.io.upcalls.len()), (vec![], 1));
    rig.flow(1, &frame(1), by_source(), vec![out(2)]);
    let mut turns = 0;
    while let Some(gone) = rig.pmd.upkeep() {
        assert!(gone.is_empty());
        turns += 1;
        assert!(turns < 1_000);
    }
    assert!(turns >= 2 * FLOWS / 1024, "{turns} slices");
    rig.receive(1, &[frame(1)]);
    assert_eq!(rig.pmd.stats().flows, 1);
}

#[test]
fn flows_of_leaving_queues_are_taken_in_slices() {
    let mut rig = filled();
    let (mut walk, mut taken, mut turns) = (FlowWalk::default(), Vec::new(), 0);
    while !walk.is_done() && taken.len() < 1_000 {
        let some = rig.pmd.take_flows(&mut walk, 1_000 - taken.len(), |port| match port {
            DpPort(1) => Some(Leaving::Removed),
            DpPort(3) => Some(Leaving::Copied),
            _ => None,
        });
        assert!(some.len() <= SLICE_FLOWS);
        taken.extend(some);
        turns += 1;
    }
    assert!(taken.len() == 1_000 && turns >= 1_000 / SLICE_FLOWS);
    let removed = taken.iter().filter(|(how, _)| *how == Leaving::Removed).count() as u64;
    assert!(taken.iter().all(|(how, flow)| (*how == Leaving::Removed) == (flow.key.base.in_port == 1)));
    assert_eq!(rig.pmd.stats().flows, 1 + 2 * u64::from(FLOWS) - removed);
}

#[test]
fn lists_are_ranked_in_slices() {
    let mut rig = Rig::with(|c| {
        (c.tuning.cache_insert_inv_prob, c.tuning.masks_per_port_free) = (0, usize::MAX);
    });
    for port in 1..=4u32 {
        for n in 0..300u16 {
            let mut mask = by_source();
            mask.base.tcp_flags = n;
            rig.flow(port, &frame(n.into()), mask, vec![out(2)]);
        }
    }
    for port in 100..160u32 {
        for n in 0..40u16 {
            let mut mask = by_source();
            mask.base.tcp_flags = n;
            rig.flow(port, &frame(n.into()), mask, vec![out(2)]);
        }
    }
    (0..100).for_each(|_| (1..=4).for_each(|port| rig.receive(port, &[frame(299)])));
    rig.pmd.tick(rig.now_us);
    let slices = std::iter::from_fn(|| rig.pmd.upkeep()).count();
    assert!((1..4).contains(&slices), "{slices} slices after the first");
    for port in 1..=4 {
        let before = rig.pmd.stats().subtable_lookups;
        rig.receive(port, &[frame(299)]);
        assert_eq!(rig.pmd.stats().subtable_lookups, before + 1, "ranked first on port {port}");
    }
}
