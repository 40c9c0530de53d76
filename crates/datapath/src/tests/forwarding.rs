//! Flows and packets in, packets and upcalls out.

use super::frames::{arp, ipv4, l4, tcp, udp};
use super::*;
use dpif::actions::{
    CheckPktLen, CloneAction, DropAction, HashAction, HashAlgorithm, Meter, PopVlan, PushVlan, Recirc,
    Sample, Trunc, Userspace,
};
use flow::RecircId;

struct Case<'a> {
    name: &'a str,
    /// Input port, packet, mask, actions.
    flows: Vec<(u32, Vec<u8>, KeyMask, Vec<DpAction>)>,
    input: Vec<Vec<u8>>,
    output: Vec<(u32, Vec<u8>)>,
    upcalls: usize,
    drops: Vec<(DropReason, u64)>,
}

fn check(case: Case<'_>) {
    let mut rig = Rig::new();
    for (port, frame, mask, actions) in case.flows {
        rig.flow(port, &frame, mask, actions);
    }
    rig.receive(1, &case.input);
    let mut sent = rig.sent();
    sent.sort_by_key(|(port, _)| *port);
    assert_eq!(sent, case.output, "{}", case.name);
    assert_eq!(rig.io.upcalls.len(), case.upcalls, "{}", case.name);
    for reason in DropReason::ALL {
        let want = case.drops.iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n);
        assert_eq!(rig.drops(reason), want, "{}: {}", case.name, reason.name());
        assert_eq!(rig.pmd.port_counters(DpPort(1)).unwrap().drops[reason as usize], want);
    }
}

/// The frame with the tag pushed by the cases.
fn tagged(frame: &[u8]) -> Vec<u8> {
    let mut f = frame.to_vec();
    f.splice(12..12, [0x81, 0x00, 0x60, 5]);
    f
}

#[test]
fn flows_decide_where_packets_go() {
    let frame = tcp(1000, 80);
    let tagged = tagged(&frame);
    let flow = |actions| vec![(1, frame.clone(), least_mask(), actions)];
    let case = |name, flows, output, drops| Case {
        name,
        flows,
        input: vec![frame.clone()],
        output,
        upcalls: 0,
        drops,
    };
    check(case("one output", flow(vec![out(2)]), vec![(2, frame.clone())], vec![]));
    check(case(
        "two outputs and back",
        flow(vec![out(2), out(3), out(1)]),
        vec![(1, frame.clone()), (2, frame.clone()), (3, frame.clone())],
        vec![],
    ));
    check(case("no actions", flow(vec![]), vec![], vec![(DropReason::Explicit, 1)]));
    check(case(
        "explicit drop",
        flow(vec![DpAction::Drop(DropAction(XlateDrop::RecursionTooDeep))]),
        vec![],
        vec![(DropReason::Explicit, 1)],
    ));
    check(case("no such port", flow(vec![out(9)]), vec![], vec![(DropReason::NoPort, 1)]));
    check(case(
        "tagged and untagged",
        flow(vec![out(2), DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x7005 }), out(3)]),
        vec![(2, frame.clone()), (3, tagged.clone())],
        vec![],
    ));
    check(case(
        "pop without a tag",
        flow(vec![DpAction::PopVlan(PopVlan)]),
        vec![],
        vec![(DropReason::BadAction, 1)],
    ));
    check(case(
        "truncated once",
        flow(vec![DpAction::Trunc(Trunc(20)), out(2), out(3)]),
        vec![(2, frame[..20].to_vec()), (3, frame.clone())],
        vec![],
    ));
}

#[test]
fn flows_decide_where_packets_go_in_nested_lists() {
    let frame = tcp(1000, 80);
    let tagged = tagged(&frame);
    let flow = |actions| vec![(1, frame.clone(), least_mask(), actions)];
    let case = |name, flows, output, drops| Case {
        name,
        flows,
        input: vec![frame.clone()],
        output,
        upcalls: 0,
        drops,
    };
    check(case(
        "clone keeps its changes to itself",
        flow(vec![
            DpAction::Clone(CloneAction(vec![
                DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x7005 }),
                out(2),
            ])),
            out(3),
        ]),
        vec![(2, tagged.clone()), (3, frame.clone())],
        vec![],
    ));
    let sample = |probability| DpAction::Sample(Sample { probability, actions: vec![out(2)] });
    check(case(
        "sample always",
        flow(vec![sample(u32::MAX), out(3)]),
        vec![(2, frame.clone()), (3, frame.clone())],
        vec![],
    ));
    let by_length = |len: usize| {
        let push = DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x7005 });
        let (len, greater, less) = (len as u16, vec![push, out(2)], vec![out(4)]);
        flow(vec![DpAction::CheckPktLen(CheckPktLen { len, greater, less }), out(3)])
    };
    check(case(
        "a packet longer than a length, on a copy",
        by_length(frame.len() - 1),
        vec![(2, tagged), (3, frame.clone())],
        vec![],
    ));
    check(case(
        "a packet as long as a length",
        by_length(frame.len()),
        vec![(3, frame.clone()), (4, frame.clone())],
        vec![],
    ));
    check(case("sample never", flow(vec![out(3), sample(0)]), vec![(3, frame.clone())], vec![]));
    check(case(
        "meter that is not there",
        flow(vec![DpAction::Meter(Meter(9)), out(2)]),
        vec![(2, frame.clone())],
        vec![],
    ));
    let loops = flow(vec![DpAction::Recirc(Recirc(RecircId(0)))]);
    check(case("recirculation without end", loops, vec![], vec![(DropReason::RecirculationLimit, 1)]));
    check(Case {
        name: "runts and strangers",
        flows: vec![],
        input: vec![vec![1; 13], vec![], frame.clone(), arp()],
        output: vec![],
        upcalls: 2,
        drops: vec![(DropReason::Runt, 2)],
    });
}

#[test]
fn recirculated_packets_match_flows_of_that_id_and_their_new_headers() {
    let mut rig = Rig::new();
    let frame = tcp(1, 2);
    let push = DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1005 });
    let mark = DpAction::Set(SetAction::SkbMark(Masked { value: 0x77, mask: 0xff }));
    rig.flow(1, &frame, least_mask(), vec![push, mark, DpAction::Recirc(Recirc(RecircId(5))), out(3)]);
    rig.receive(1, std::slice::from_ref(&frame));
    assert_eq!(
        rig.sent(),
        vec![(3, {
            let mut f = frame.clone();
            f.splice(12..12, [0x81, 0, 0, 5]);
            f
        })]
    );
    let upcall = rig.io.upcalls.pop().unwrap();
    let b = upcall.key.base;
    assert_eq!((b.recirc_id, b.pkt_mark, b.vlan_tci, b.in_port, b.dl_type), (5, 0x77, 0x1005, 1, 0x800));
    let (_, done) = rig.put(upcall.key, least_mask(), vec![DpAction::PopVlan(PopVlan), out(2)]);
    assert!(matches!(done, OpResult::Done));
    rig.execute(upcall.packet, upcall.key, vec![DpAction::PopVlan(PopVlan), out(2)], upcall.ticket);
    assert_eq!(rig.sent(), vec![(2, frame.clone())]);
    rig.receive(1, std::slice::from_ref(&frame));
    let mut sent = rig.sent();
    sent.sort();
    assert_eq!(sent[0], (2, frame));
    assert_eq!(rig.pmd.stats().recirculated, 2);
}

#[test]
fn masks_are_ranked_and_the_cache_answers_the_second_packet() {
    let mut rig = Rig::new();
    for n in 0..8u16 {
        let mut mask = least_mask();
        mask.base.tp_dst = 0xffff;
        mask.base.nw_src = u32::MAX << n;
        rig.flow(1, &tcp(1, n), mask, vec![out(2)]);
    }
    assert_eq!(rig.pmd.stats().masks, 8);
    rig.receive(1, &[tcp(5, 7)]);
    assert_eq!((rig.pmd.stats().megaflow_hits, rig.pmd.stats().subtable_lookups), (1, 8), "insertion order");
    rig.receive(1, &[tcp(5, 7)]);
    assert_eq!(rig.pmd.stats().cache_hits, 1);
    // Without hints of former bursts, the next one is looked up.
    rig.pmd.set_tuning(rig.pmd.tuning());
    rig.pmd.tick(rig.now_us);
    rig.receive(1, &[tcp(6, 7)]);
    assert_eq!((rig.pmd.stats().megaflow_hits, rig.pmd.stats().subtable_lookups), (2, 9), "hit list first");
}

#[test]
fn bursts_of_more_than_the_stages_take_pass_in_order() {
    for packets in [1, 32, 33, 100, 256] {
        let mut rig = Rig::new();
        rig.flow(1, &udp(1, 2), least_mask(), vec![out(2)]);
        let frames: Vec<_> = (0..packets).map(|n| udp(n, 2)).collect();
        rig.receive(1, &frames);
        let sent: Vec<_> = rig.sent().into_iter().map(|(_, frame)| frame).collect();
        assert!(sent == frames, "{packets}");
        assert_eq!(rig.pmd.stats().sent_batches, 1, "{packets}");
    }
}

#[test]
fn packets_that_the_template_parses_are_counted_and_it_can_be_off() {
    let hits = |template: bool, vector: bool| {
        let mut rig = Rig::with(|c| (c.template, c.vector) = (template, vector));
        assert!(vector || rig.pmd.level() == simd::Level::PLAIN);
        // A header with options is not a common one.
        let mut options = udp(1, 2);
        (options[14], options[36]) = (0x46, 1);
        rig.receive(1, &[tcp(1, 2), udp(1, 2), options]);
        rig.pmd.stats().template_hits
    };
    assert_eq!([(true, true), (true, false), (false, true)].map(|(t, v)| hits(t, v)), [2, 2, 0]);
}

#[test]
fn flow_statistics_count_packets_bytes_time_and_flags() {
    let mut rig = Rig::new();
    let frame = tcp(1, 2);
    let ufid = rig.flow(1, &frame, least_mask(), vec![out(2)]);
    rig.now_us = 5_432_100;
    let mut ack = frame.clone();
    ack[47] = 0x10;
    rig.receive(1, &[frame.clone(), ack]);
    let OpResult::Flow(flow) = rig.apply(DpifOp::FlowGet(ufid)) else { panic!() };
    let want = FlowStats { packets: 2, bytes: 2 * frame.len() as u64, used_ms: 5432, tcp_flags: 0x12 };
    assert_eq!(flow.stats, want);
    rig.execute(Packet::from_slice(&frame), key_of(1, &frame), vec![out(2)], None);
    let OpResult::Flow(flow) = rig.apply(DpifOp::FlowDel(ufid)) else { panic!() };
    assert_eq!(flow.stats, want, "an executed packet is not the megaflow's");
}

#[test]
fn userspace_sends_the_packet_as_it_is_then() {
    let mut rig = Rig::new();
    let frame = udp(1, 2);
    let cookie = UserCookie::SlowPath { reasons: SlowReason::Controller.bit() };
    let eth = EthSet { dst: [4; 6], ..EthSet::default() };
    let mask = EthSet { dst: [0xff; 6], ..EthSet::default() };
    let set = DpAction::Set(SetAction::Eth(Masked { value: eth, mask }));
    let actions = vec![set, DpAction::Trunc(Trunc(50)), DpAction::Userspace(Userspace(cookie)), out(2)];
    rig.flow(1, &frame, least_mask(), actions);
    rig.receive(1, std::slice::from_ref(&frame));
    let upcall = rig.io.upcalls.pop().unwrap();
    assert_eq!(upcall.kind, UpcallKind::Action(cookie));
    assert_eq!(upcall.packet.len(), 50.min(frame.len()));
    assert_eq!(upcall.key.base.dl_dst, [4; 6]);
    assert_eq!(upcall.ticket, None);
    assert_eq!(rig.sent()[0].1.len(), frame.len());
    rig.io.full = true;
    rig.receive(1, std::slice::from_ref(&frame));
    assert_eq!(rig.drops(DropReason::UpcallQueueFull), 1);
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn rejected_packets_of_a_device_are_counted() {
    let mut rig = Rig::new();
    rig.flow(1, &tcp(1, 2), least_mask(), vec![out(2)]);
    rig.io.tx_room = Some(3);
    rig.receive(1, &vec![tcp(1, 2); 40]);
    let counters = *rig.pmd.port_counters(DpPort(2)).unwrap();
    assert_eq!((counters.tx_packets, counters.tx_dropped), (3, 37));
    assert_eq!(rig.drops(DropReason::TxFailed), 37);
    assert_eq!(rig.pmd.port_counters(DpPort(1)).unwrap().rx_packets, 40);
}

#[test]
fn a_large_segment_is_finished_before_it_is_cut() {
    let mut rig = Rig::new();
    let whole = ipv4(6, frames::SRC, frames::DST, 0, &l4(6, 1, 2, false));
    let mut packet = Packet::from_slice(&whole);
    let partial =
        packet::checksum::fold(packet::checksum::pseudo(&frames::SRC, &frames::DST, 6, whole.len() - 34));
    packet.data_mut()[50..52].copy_from_slice(&partial.to_be_bytes());
    packet.offload = packet::Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: packet::GsoKind::Tcp4,
        gso_size: 1,
        ..packet::Offload::NONE
    };
    let key = key_of(1, &whole);
    rig.execute(packet, key, vec![DpAction::Trunc(Trunc(54)), out(2), out(3)], None);
    let (cut, kept) = (&rig.io.packets[0], &rig.io.packets[1]);
    let (cut, kept) = if cut.len() == 54 { (cut, kept) } else { (kept, cut) };
    assert_eq!(cut.data(), &whole[..54], "with the checksum that the whole packet has");
    assert_eq!(cut.offload, packet::Offload::NONE);
    assert!(kept.offload.is_gso() && kept.offload.needs_csum);
}

#[test]
fn metadata_that_no_frame_carries_survives_recirculation() {
    let mut rig = Rig::new();
    let frame = udp(1, 2);
    let mut key = key_of(1, &frame);
    (key.base.ct_state, key.base.ct_zone, key.base.ct_mark, key.base.dp_hash) = (0x21, 7, 8, 9);
    key.tunnel.id = 0x55;
    key.ct.label = [3; 16];
    key.arp.skb_priority = 4;
    key.set_shape();
    rig.execute(Packet::from_slice(&frame), key, vec![DpAction::Recirc(Recirc(RecircId(6)))], None);
    let upcall = rig.io.upcalls.pop().unwrap();
    key.base.recirc_id = 6;
    assert_eq!(upcall.key, key);
    assert_eq!(upcall.rx_port, DpPort(1));
}

#[test]
fn a_hash_selects_among_flows_after_recirculation() {
    let mut rig = Rig::new();
    let hash = HashAction { algorithm: HashAlgorithm::SymL4, basis: 7 };
    // The hash is that of the packet at that point.
    let vlan = DpAction::PopVlan(PopVlan);
    let mut frame = tcp(1, 80);
    frame.splice(12..12, [0x81, 0, 0, 5]);
    rig.flow(1, &frame, least_mask(), vec![vlan, hash.into(), DpAction::Recirc(Recirc(RecircId(5)))]);
    let expected = flow::flow_hash::symmetric_l4(&key_of(1, &tcp(1, 80)), 7);
    for bit in 0..2 {
        let mut key = key_of(1, &tcp(1, 80));
        (key.base.recirc_id, key.base.dp_hash) = (5, bit);
        let mut mask = least_mask();
        mask.base.dp_hash = 1;
        rig.put(key, mask, vec![out(2 + bit)]);
    }
    rig.receive(1, std::slice::from_ref(&frame));
    assert_eq!(rig.sent(), [(2 + (expected & 1), tcp(1, 80))]);
}
