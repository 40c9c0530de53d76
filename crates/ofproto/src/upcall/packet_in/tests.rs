//! Tests of packet-ins made during translation.

use crate::backer::Backer;
use crate::events::PacketInEvent;
use crate::upcall::handle;
use crate::upcall::tests::{add_rule, backer_with, counted, miss_of};
use dpif::actions::{Output, PushVlan, Rewrite, Userspace};
use dpif::{DpAction, DpifOp, Execute, PmdId, Upcall, UpcallKind, UserCookie};
use flow::DpPort;
use packet::{GsoKind, Packet};
use sync::Ordering;

/// The datapath actions for a packet's first pass, and all actions of its megaflow.
fn first_pass(backer: &Backer, upcall: Box<Upcall>) -> (Box<Execute>, Vec<DpAction>) {
    let mut ops = handle(backer, vec![upcall], 5).remove(&PmdId::Core(0)).expect("ops for the core");
    let Some(DpifOp::Execute(execute)) = ops.pop() else { panic!("{ops:?}") };
    let Some(DpifOp::FlowPut(put)) = ops.pop() else { panic!("{ops:?}") };
    (execute, put.actions.to_vec())
}

/// All events that wait for the controllers.
fn queued(backer: &Backer) -> Vec<PacketInEvent> {
    let mut all = Vec::new();
    backer.route_packet_ins(usize::MAX, |event| all.push(event));
    all
}

fn is_for_controller(action: &DpAction) -> bool {
    matches!(action, DpAction::Userspace(Userspace(UserCookie::Controller(_))))
}

/// Pushes a tag, as a datapath does; nothing else.
fn push_only(backer: &mut Backer) {
    backer.rewrite = Some(Box::new(|packet, _, rewrite, _| {
        let Rewrite::PushVlan(PushVlan { tpid, tci }) = rewrite else { return false };
        packet.insert(12, 4);
        let tag = [tpid.to_be_bytes(), (tci & 0xfff).to_be_bytes()].concat();
        packet.data_mut()[12..16].copy_from_slice(&tag);
        true
    }));
}

#[test]
fn the_first_packet_goes_to_controllers_without_a_second_upcall() {
    let (backer, bridge) = backer_with("actions=load:7->NXM_NX_REG3[],controller(max_len=64,id=9),2");
    let (execute, put) = first_pass(&backer, miss_of(0x88cc, 1));
    assert_eq!(execute.actions[..], [DpAction::Output(Output(DpPort(2)))]);
    assert!(execute.went_on && is_for_controller(&put[0]) && put[1..] == execute.actions[..], "{put:?}");
    let event = queued(&backer).pop().expect("a packet-in");
    let DpAction::Userspace(Userspace(UserCookie::Controller(cookie))) = put[0] else { unreachable!() };
    assert_eq!((event.cookie, event.cookie.controller_id, event.cookie.max_len_bytes), (cookie, 9, 64));
    assert_eq!((event.state.bridge, event.state.packet.regs[3]), (bridge, 7));
    assert_eq!((event.packet.data(), event.key), (execute.packet.data(), execute.key));
    assert_eq!(backer.packet_ins_made.load(Ordering::Relaxed), 1);
    assert_eq!(backer.packet_ins_waiting(), 0);
    assert_eq!(counted(&backer, bridge), 1);
}

#[test]
fn a_packet_for_controllers_alone_is_not_dropped() {
    let (backer, _) = backer_with("actions=controller");
    let (execute, _) = first_pass(&backer, miss_of(0x88cc, 1));
    assert!(execute.actions.is_empty() && execute.went_on);
    assert_eq!(backer.packet_ins_waiting(), 1);
}

/// A TCP segment of a host with offloads: 54 bytes of headers, `payload` bytes, the checksum left to the device.
fn segment_of_host(payload: usize, gso_size: u16) -> Packet {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let ip_bytes = u16::try_from(40 + payload).unwrap();
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    let csum = packet::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&csum.to_be_bytes());
    frame.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let pseudo = packet::checksum::pseudo(&[10, 0, 0, 1], &[10, 0, 0, 2], 6, 20 + payload);
    frame[50..52].copy_from_slice(&packet::checksum::fold(pseudo).to_be_bytes());
    frame.extend((0..payload).map(|i| i as u8));
    let mut packet = Packet::from_slice(&frame);
    packet.offload.needs_csum = true;
    (packet.offload.csum_start, packet.offload.csum_offset) = (34, 16);
    if gso_size > 0 {
        packet.offload.gso = GsoKind::Tcp4;
        packet.offload.gso_size = gso_size;
        packet.offload.hdr_len = 54;
    }
    packet
}

/// Whether the TCP checksum of a frame with 34 bytes before it is complete.
fn tcp_checksum_holds(frame: &[u8]) -> bool {
    let pseudo = packet::checksum::pseudo(&frame[26..30], &frame[30..34], 6, frame.len() - 34);
    packet::checksum::fold(packet::checksum::sum(&frame[34..], pseudo)) == 0xffff
}

#[test]
fn controllers_get_frames_as_a_device_would_send_them() {
    let (backer, _) = backer_with("actions=controller,2");
    for (payload, gso_size, frames) in [(100, 0, vec![154]), (2500, 1000, vec![1054, 1054, 554])] {
        let miss = miss_of(0x800, 1 + u128::from(gso_size));
        let packet = segment_of_host(payload, gso_size);
        let upcall = Upcall { packet: packet.clone(), ..*miss };
        let (execute, _) = first_pass(&backer, Box::new(upcall));
        // The switch's other outputs keep the packet whole.
        assert_eq!((execute.packet.data(), execute.packet.offload), (packet.data(), packet.offload));
        let seen = queued(&backer);
        assert_eq!(seen.iter().map(|e| e.packet.len()).collect::<Vec<_>>(), frames);
        for event in &seen {
            assert!(!event.packet.offload.needs_csum && !event.packet.offload.is_gso());
            assert!(tcp_checksum_holds(event.packet.data()));
        }
    }
    // A size of 0 cannot be cut.
    let mut packet = segment_of_host(100, 1);
    packet.offload.gso_size = 0;
    first_pass(&backer, Box::new(Upcall { packet, ..*miss_of(0x800, 9) }));
    let seen = queued(&backer);
    assert_eq!(seen.len(), 1);
    assert!(tcp_checksum_holds(seen[0].packet.data()));
}

#[test]
fn rewrites_on_the_way_are_seen_by_the_controllers_behind_them_only() {
    let (mut backer, _) = backer_with("actions=controller(id=1),mod_vlan_vid:5,controller(id=2),2");
    push_only(&mut backer);
    let (execute, _) = first_pass(&backer, miss_of(0x88cc, 1));
    assert!(matches!(execute.actions[..], [DpAction::PushVlan(_), DpAction::Output(_)]), "{execute:?}");
    let seen = queued(&backer);
    let tagged = [&execute.packet.data()[..12], &[0x81, 0, 0, 5], &execute.packet.data()[12..]].concat();
    let received: Vec<_> = seen.iter().map(|e| (e.cookie.controller_id, e.packet.data())).collect();
    assert_eq!(received, [(1, execute.packet.data()), (2, &tagged[..])]);
}

#[test]
fn actions_after_an_unknown_rewrite_are_left_to_the_datapath() {
    let rules = "actions=controller(id=1),mod_dl_dst:02:00:00:00:00:09,controller(id=2),controller(id=3)";
    let (mut backer, _) = backer_with(rules);
    for knows_others in [false, true] {
        if knows_others {
            push_only(&mut backer);
        }
        let (execute, put) = first_pass(&backer, miss_of(0x88cc, 1 + u128::from(knows_others)));
        assert_eq!((&execute.actions[..], execute.went_on), (&put[1..], true));
        assert_eq!(put[1..].iter().filter(|a| is_for_controller(a)).count(), 2);
        let to: Vec<u16> = queued(&backer).iter().map(|e| e.cookie.controller_id).collect();
        assert_eq!(to, [1]);
    }
}

#[test]
fn a_meter_decides_in_the_datapath() {
    let (backer, bridge) = backer_with("actions=controller");
    let meters = [(openflow::msg::meter::CONTROLLER, 3)].into_iter().collect();
    backer.change_bridge(bridge, |b| b.meters = std::sync::Arc::new(meters));
    let (execute, put) = first_pass(&backer, miss_of(0x88cc, 1));
    assert_eq!((&execute.actions[..], execute.went_on), (&put[..], false));
    assert_eq!(backer.packet_ins_waiting(), 0);
    backer.change_bridge(bridge, |b| b.meters = std::sync::Arc::new([(1, 4)].into_iter().collect()));
    add_rule(&backer, bridge, "priority=50000,dl_type=0x88cd,actions=meter:1,controller,2");
    let (execute, put) = first_pass(&backer, miss_of(0x88cd, 2));
    assert_eq!((&execute.actions[..], execute.went_on), (&put[..], false));
}

#[test]
fn the_slow_path_has_a_meter() {
    let (backer, bridge) = backer_with("actions=debug_slow,2");
    let meters = [(openflow::msg::meter::SLOW_PATH, 3)].into_iter().collect();
    backer.change_bridge(bridge, |b| b.meters = std::sync::Arc::new(meters));
    let (_, put) = first_pass(&backer, miss_of(0x88cc, 1));
    let [DpAction::Sample(dpif::actions::Sample { probability: u32::MAX, actions })] = &put[..] else {
        panic!("{put:?}")
    };
    let [DpAction::Meter(meter), DpAction::Userspace(Userspace(UserCookie::SlowPath { .. }))] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(meter.0, 3);
}

#[test]
fn packets_of_a_slow_flow_go_at_once_too() {
    let (backer, _) = backer_with("actions=debug_slow,controller,2");
    let (_, put) = first_pass(&backer, miss_of(0x88cc, 1));
    let [DpAction::Userspace(Userspace(cookie @ UserCookie::SlowPath { .. }))] = put[..] else {
        panic!("{put:?}")
    };
    let upcall = Box::new(Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, 2) });
    let ops = handle(&backer, vec![upcall], 6);
    let [DpifOp::Execute(execute)] = &ops[&PmdId::Core(0)][..] else { panic!("{ops:?}") };
    assert_eq!((&execute.actions[..], execute.went_on), (&[DpAction::Output(Output(DpPort(2)))][..], true));
    assert_eq!(backer.packet_ins_waiting(), 2);
}

#[test]
fn no_packet_in_without_a_listener() {
    let (backer, bridge) = backer_with("actions=controller(id=3),2");
    let view = backer.view();
    let listeners = &view.bridge(bridge).expect("made by backer_with").listeners;
    let mut ufid = 0;
    let mut both_ways = || {
        ufid += 2;
        let (execute, put) = first_pass(&backer, miss_of(0x88cc, ufid));
        // The packet's path is the same, and the flow still sends packets up: listeners may change.
        assert!(matches!(execute.actions[..], [DpAction::Output(_)]) && execute.went_on && put.len() == 2);
        let DpAction::Userspace(Userspace(cookie)) = put[0] else { panic!("{put:?}") };
        let up = Upcall { kind: UpcallKind::Action(cookie), ticket: None, ..*miss_of(0x88cc, ufid + 1) };
        handle(&backer, vec![Box::new(up)], 6);
        let unwanted = backer.packet_ins_unwanted.swap(0, Ordering::Relaxed);
        (queued(&backer).len() as u64, unwanted)
    };
    assert_eq!(both_ways(), (2, 0));
    listeners.set([0, 4].into_iter());
    assert_eq!(both_ways(), (0, 2));
    listeners.set([3].into_iter());
    assert_eq!(both_ways(), (2, 0));
    listeners.set([].into_iter());
    assert_eq!(both_ways(), (0, 2));
    assert_eq!(backer.packet_ins_lost.load(Ordering::Relaxed), 0);
}
