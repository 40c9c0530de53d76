//! `lb_output`: members by hash, changes in place, counters.

use super::frames::{tcp, udp};
use super::*;
use dpif::actions::{CloneAction, LbOutput};

fn rig() -> (Rig, Arc<DpShared>) {
    let shared = Arc::new(DpShared::new(7));
    let mut rig = Rig::new();
    rig.pmd = Pmd::new(PmdConfig::new(PmdId::Core(0), 1), shared.clone());
    (1..=3).for_each(|port| rig.pmd.port_add(DpPort(port)).unwrap());
    (rig, shared)
}

/// Hash values of even numbers belong to the first port.
fn members(even: u32, odd: u32) -> Vec<DpPort> {
    (0..256).map(|n| DpPort(if n % 2 == 0 { even } else { odd })).collect()
}

fn frames() -> Vec<Vec<u8>> {
    (0..40).flat_map(|n| [tcp(1000 + n, 80), udp(2000 + n, 53)]).collect()
}

#[test]
fn each_packet_leaves_by_the_member_of_its_hash() {
    let list = vec![DpAction::from(LbOutput(5))];
    let nested = vec![DpAction::Clone(CloneAction(list.clone())), out(1)];
    for (actions, copies) in [(list.clone(), 0), ([list.clone(), vec![out(1)]].concat(), 1), (nested, 1)] {
        let (mut rig, shared) = rig();
        let bonds = shared.bond_balancer();
        bonds.set_bond(5, &members(2, 3));
        rig.flow(1, &tcp(1000, 80), least_mask(), actions);
        let frames = frames();
        rig.receive(1, &frames);
        let sent = rig.sent();
        assert_eq!(sent.len(), frames.len() * (1 + copies));
        for frame in &frames {
            let hash = flow::flow_hash::five_tuple(&key_of(1, frame), 0);
            let port = if hash.is_multiple_of(2) { 2 } else { 3 };
            let times = |port| sent.iter().filter(|(to, bytes)| (*to, bytes) == (port, frame)).count();
            assert_eq!((times(port), times(5 - port), times(1)), (1, 0, copies));
        }
        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        assert_eq!(bonds.bond_bytes(5).unwrap().iter().sum::<u64>(), bytes);
        // Another member takes all, without a change of flows.
        bonds.set_bond(5, &members(3, 3));
        rig.receive(1, &frames);
        assert!(rig.sent().iter().all(|(to, _)| matches!(to, 1 | 3)));
        assert_eq!(bonds.bonds(), [(5, members(3, 3))]);
        bonds.set_bond(5, &[]);
        rig.receive(1, &frames);
        assert!(rig.sent().iter().all(|(to, _)| *to == 1));
        assert_eq!(rig.drops(DropReason::BadAction), frames.len() as u64);
        assert!(rig.pmd.ledger().balances());
    }
}

#[test]
fn bytes_of_all_cores_count_and_stay_when_one_ends() {
    let shared = Arc::new(DpShared::new(7));
    let bonds = shared.bond_balancer();
    bonds.set_bond(5, &members(2, 3));
    let mut sent = 0;
    let total = || bonds.bond_bytes(5).unwrap().iter().sum::<u64>();
    for core in 0..3 {
        let mut rig = Rig::new();
        rig.pmd = Pmd::new(PmdConfig::new(PmdId::Core(core), 1), shared.clone());
        (1..=3).for_each(|port| rig.pmd.port_add(DpPort(port)).unwrap());
        rig.flow(1, &tcp(1000, 80), least_mask(), vec![DpAction::from(LbOutput(5))]);
        for _ in 0..2 {
            rig.receive(1, &frames());
            sent += frames().iter().map(|frame| frame.len() as u64).sum::<u64>();
            assert_eq!(total(), sent);
        }
        // Another bond comes and goes meanwhile.
        bonds.set_bond(6 + u32::from(core), &members(2, 2));
        drop(rig);
        assert_eq!(total(), sent);
    }
    assert_eq!(bonds.bonds().len(), 4);
}
