//! Flows and packets of a core whose queues move to another one, and of one that ends.

use super::frames::{tcp, udp};
use super::*;

fn flows(rig: &mut Rig) -> Vec<FlowRecord> {
    match rig.apply(DpifOp::FlowDump { cursor: 0, max_flows: 100 }) {
        OpResult::Dump(flows, None) => flows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_waits_while_a_packet_of_it_is_translated() {
    let mut rig = Rig::new();
    assert!(!rig.pmd.waits(DpPort(1)));
    rig.receive(1, &[udp(1, 2), udp(1, 2)]);
    assert!(rig.pmd.waits(DpPort(1)) && !rig.pmd.waits(DpPort(2)));
    let upcall = rig.io.upcalls.remove(0);
    rig.execute(upcall.packet, upcall.key, vec![out(2)], upcall.ticket);
    let second = rig.io.upcalls.remove(0);
    assert!(!rig.pmd.waits(DpPort(1)), "packets that waited once have upcalls of their own");
    rig.execute(second.packet, second.key, vec![out(2)], second.ticket);
    assert_eq!(rig.sent().len(), 2);
}

#[test]
fn flows_are_taken_over_with_new_names_and_empty_counters() {
    let (mut giver, mut taker) = (Rig::new(), Rig::with(|c| (c.id, c.hash_seed) = (PmdId::Core(1), 8)));
    let ufid = giver.flow(1, &udp(1, 2), least_mask(), vec![out(2)]);
    giver.flow(3, &udp(1, 2), least_mask(), vec![out(4)]);
    giver.receive(1, &[udp(1, 2), udp(3, 4)]);
    let mut take = |max, how: Leaving| {
        let mut walk = FlowWalk::default();
        let taken = giver.pmd.take_flows(&mut walk, max, |port| (port == DpPort(1)).then_some(how));
        assert!(walk.is_done() && taken.iter().all(|(as_asked, _)| *as_asked == how));
        taken.into_iter().map(|(_, record)| record).collect::<Vec<_>>()
    };
    assert_eq!(take(10, Leaving::Copied).len(), 1);
    assert!(take(0, Leaving::Removed).is_empty());
    let gone = take(10, Leaving::Removed);
    assert_eq!(gone.iter().map(|f| (f.ufid, f.stats.packets)).collect::<Vec<_>>(), [(ufid, 2)]);
    assert_eq!(flows(&mut giver).len(), 1, "flows from other ports stay");
    let adopted = taker.pmd.adopt(&gone[0]).map(|put| put.ufid);
    assert!(taker.pmd.adopt(&gone[0]).is_none());
    let taken = flows(&mut taker);
    assert_eq!(adopted, Some(taken[0].ufid));
    assert_eq!(taken.len(), 1, "what matches already is not taken twice");
    assert!(taken[0].ufid != ufid && taken[0].stats == FlowStats::default());
    taker.receive(1, &[udp(5, 6)]);
    assert_eq!(taker.sent(), [(2, udp(5, 6))]);
    assert!(taker.io.upcalls.is_empty());
}

#[test]
fn the_end_accounts_for_every_packet_and_flow() {
    let mut rig = Rig::new();
    rig.flow(1, &tcp(1, 2), least_mask(), vec![out(2)]);
    rig.flow(2, &udp(1, 2), least_mask(), vec![out(1)]);
    rig.receive(3, &[udp(1, 2), udp(1, 2), udp(1, 2)]);
    assert_eq!(rig.pmd.ledger().parked, 2);
    let gone = rig.pmd.end(&mut rig.io);
    rig.settle();
    assert_eq!(gone.len(), 2);
    assert_eq!((rig.pmd.ledger().parked, rig.drops(DropReason::PortRemoved)), (0, 2));
    assert!(flows(&mut rig).is_empty());
    assert_eq!((rig.pmd.open_tickets(), rig.pmd.stats().flows), (0, 0));
}
