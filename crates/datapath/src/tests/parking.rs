//! Misses: one upcall for each exact key, packets parked behind it, order and bounds.

use super::frames::{tcp, udp};
use super::*;

fn numbered(n: u8) -> Vec<u8> {
    let mut frame = udp(1, 2);
    let last = frame.len() - 1;
    frame[last] = n;
    frame
}

fn answer(rig: &mut Rig, upcall: Upcall, mask: Option<KeyMask>, actions: Vec<DpAction>) {
    let mut ops = Vec::new();
    if let Some(mask) = mask {
        let actions: Arc<[DpAction]> = actions.clone().into();
        let put = FlowPut { ufid: upcall.ufid, key: upcall.key, mask, actions, mode: PutMode::Create };
        ops.push(DpifOp::FlowPut(Box::new(put)));
    }
    let Upcall { packet, key, ticket, .. } = upcall;
    ops.push(DpifOp::Execute(Box::new(Execute {
        packet,
        key,
        actions: actions.into(),
        ticket,
        upcall: 0,
        went_on: false,
    })));
    let results = rig.pmd.apply(ops, rig.now_us, &mut rig.io);
    assert!(results.iter().all(|r| matches!(r, OpResult::Done)), "{results:?}");
    rig.settle();
}

fn last_bytes(sent: &[(u32, Vec<u8>)]) -> Vec<u8> {
    sent.iter().map(|(_, f)| *f.last().unwrap()).collect()
}

#[test]
fn followers_wait_and_leave_in_order_through_the_new_megaflow() {
    let mut rig = Rig::new();
    rig.receive(1, &[numbered(0), numbered(1)]);
    rig.receive(1, &[numbered(2), tcp(9, 9)]);
    assert_eq!(rig.io.upcalls.len(), 2, "one for each key");
    assert_eq!((rig.pmd.ledger().parked, rig.pmd.open_tickets()), (2, 2));
    let first = rig.io.upcalls.remove(0);
    let ufid = first.ufid;
    answer(&mut rig, first, Some(least_mask()), vec![out(2)]);
    assert_eq!(last_bytes(&rig.sent()), [0, 1, 2]);
    let OpResult::Flow(flow) = rig.apply(DpifOp::FlowGet(ufid)) else { panic!() };
    assert_eq!(flow.stats.packets, 2, "the packet that missed is not counted, the followers are");
    assert_eq!(rig.pmd.open_tickets(), 1);
}

#[test]
fn a_flow_put_by_another_does_not_let_newer_packets_overtake() {
    let mut rig = Rig::new();
    let (a, b) = (tcp(1, 1), numbered(0));
    rig.receive(1, &[a.clone(), b.clone()]);
    let first = rig.io.upcalls.remove(0);
    answer(&mut rig, first, Some(least_mask()), vec![out(2)]);
    assert_eq!(rig.sent(), vec![(2, a)]);
    rig.receive(1, &[numbered(1)]);
    assert!(rig.sent().is_empty(), "its older packet is still being translated");
    let second = rig.io.upcalls.remove(0);
    answer(&mut rig, second, None, vec![out(2)]);
    assert_eq!(last_bytes(&rig.sent()), [0, 1]);
}

#[test]
fn parked_packets_that_miss_again_become_upcalls_in_order() {
    let mut rig = Rig::new();
    rig.receive(1, &[numbered(0), numbered(1), numbered(2)]);
    let first = rig.io.upcalls.remove(0);
    answer(&mut rig, first, None, vec![out(2)]);
    let upcalls = std::mem::take(&mut rig.io.upcalls);
    let order: Vec<u8> = upcalls.iter().map(|u| *u.packet.data().last().unwrap()).collect();
    assert_eq!(order, [1, 2]);
    assert!(upcalls.iter().all(|u| u.ticket.is_none()));
    assert_eq!((rig.pmd.ledger().parked, rig.pmd.open_tickets()), (0, 0));
}

#[test]
fn a_full_upcall_queue_leaves_nothing_behind() {
    let mut rig = Rig::new();
    rig.io.full = true;
    rig.receive(1, &[numbered(0), numbered(1)]);
    assert_eq!(rig.drops(DropReason::UpcallQueueFull), 2);
    assert_eq!((rig.pmd.stats().upcalls_lost, rig.pmd.open_tickets()), (2, 0));
    rig.io.full = false;
    rig.receive(1, &[numbered(2)]);
    assert_eq!(rig.io.upcalls.len(), 1);
}

#[test]
fn parking_is_bounded_for_each_ticket_each_port_and_in_all() {
    let mut rig = Rig::with(|c| {
        c.parked_per_ticket_max = 3;
        c.parked_max = 8;
    });
    rig.receive(1, &vec![udp(1, 1); 6]);
    assert_eq!((rig.pmd.ledger().parked, rig.drops(DropReason::ParkedOverflow)), (3, 2), "a ticket's bound");
    rig.receive(1, &vec![udp(1, 2); 4]);
    assert_eq!((rig.pmd.ledger().parked, rig.drops(DropReason::ParkedOverflow)), (4, 4), "half for one port");
    rig.receive(2, &vec![udp(1, 1); 4]);
    assert_eq!((rig.pmd.ledger().parked, rig.drops(DropReason::ParkedOverflow)), (6, 5), "half of the rest");
    rig.receive(3, &vec![udp(1, 1); 4]);
    assert_eq!((rig.pmd.ledger().parked, rig.drops(DropReason::ParkedOverflow)), (7, 7));
    rig.pmd.tick(rig.now_us + 10_000_000);
    assert_eq!(rig.pmd.ledger().parked, 0);
    rig.receive(2, &vec![udp(1, 1); 4]);
    assert_eq!(rig.pmd.ledger().parked, 3, "room again");
}

#[test]
fn tickets_are_bounded_and_expire() {
    let mut rig = Rig::new();
    for n in 0..10_000u32 {
        let mut frame = udp(1, 1);
        frame[0..4].copy_from_slice(&(n << 1).to_le_bytes());
        rig.receive(1, &[frame]);
    }
    let with = rig.io.upcalls.iter().filter(|u| u.ticket.is_some()).count();
    assert_eq!((with, rig.pmd.open_tickets(), rig.io.upcalls.len()), (8192, 8192, 10_000));
    let late = rig.io.upcalls.remove(0);
    rig.receive(1, &[late.packet.data().to_vec()]);
    assert_eq!(rig.pmd.ledger().parked, 1);
    rig.pmd.tick(rig.now_us + 4_999_999);
    assert_eq!(rig.pmd.open_tickets(), 8192);
    rig.pmd.tick(rig.now_us + 5_000_000);
    assert_eq!((rig.pmd.open_tickets(), rig.pmd.ledger().parked), (0, 0));
    assert_eq!(rig.drops(DropReason::UpcallError), 1);
    answer(&mut rig, late, None, vec![out(2)]);
    assert_eq!(rig.sent().len(), 1, "a late answer just executes");
}

#[test]
fn removing_a_port_drops_its_packets_and_flows() {
    let mut rig = Rig::new();
    rig.flow(1, &tcp(1, 1), least_mask(), vec![out(2)]);
    rig.flow(3, &tcp(1, 1), least_mask(), vec![out(1)]);
    let mut other = udp(1, 1);
    other[12] = 9;
    rig.receive(1, &vec![other; 3]);
    assert_eq!(rig.pmd.ledger().parked, 2);
    rig.pmd.port_remove(DpPort(1), &mut rig.io);
    rig.settle();
    let finals = rig.pmd.upkeep().unwrap();
    assert!(rig.pmd.upkeep().is_none());
    assert_eq!(finals.len(), 1);
    assert_eq!(finals[0].key.base.in_port, 1);
    assert_eq!((rig.pmd.ledger().parked, rig.pmd.open_tickets()), (0, 0));
    assert_eq!((rig.drops(DropReason::PortRemoved), rig.pmd.stats().flows), (2, 1));
    rig.receive(3, &[tcp(1, 1)]);
    assert_eq!(rig.drops(DropReason::NoPort), 1, "the flow to it stays and drops");
    rig.receive(1, &[tcp(1, 1)]);
    assert_eq!(rig.drops(DropReason::PortRemoved), 3);
}
