//! Bursts whose packets have the megaflow of the burst before.

use super::frames::{ipv6, l4, tcp, udp};
use super::*;
use dpif::FlowStats;

fn mask() -> KeyMask {
    let mut mask = least_mask();
    mask.base.nw_proto = u8::MAX;
    mask
}

/// Frames of new flows from each call.
fn fresh(ports: &mut u16, packets: usize, frame: fn(u16, u16) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut next = || {
        *ports += 1;
        frame(*ports, 80)
    };
    (0..packets).map(|_| next()).collect()
}

/// Hits of the cache, repeats included, and of megaflows.
fn hits(rig: &Rig) -> [u64; 2] {
    [rig.pmd.stats().cache_hits, rig.pmd.stats().megaflow_hits]
}

fn stats(rig: &mut Rig, ufid: Ufid) -> FlowStats {
    match rig.apply(DpifOp::FlowGet(ufid)) {
        OpResult::Flow(flow) => flow.stats,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_of_one_megaflow_needs_no_other_lookup() {
    let (mut rig, mut ports) = (Rig::new(), 0);
    let to_2 = rig.flow(1, &udp(1, 80), mask(), vec![out(2)]);
    let to_3 = rig.flow(1, &tcp(1, 80), mask(), vec![out(3)]);
    rig.receive(1, &fresh(&mut ports, 32, udp));
    assert_eq!(hits(&rig), [0, 32]);
    rig.receive(1, &fresh(&mut ports, 32, udp));
    assert_eq!(hits(&rig), [32, 32]);
    // Packets of another megaflow are looked up.
    let mut mixed = fresh(&mut ports, 24, udp);
    mixed.extend(fresh(&mut ports, 8, tcp));
    rig.receive(1, &mixed);
    assert_eq!(hits(&rig), [56, 40]);
    // So are all of a burst that begins with one.
    mixed.reverse();
    let fewer = fresh(&mut ports, 3, tcp);
    rig.receive(1, &[fewer, fresh(&mut ports, 1, udp)].concat());
    assert_eq!(hits(&rig), [56, 44]);
    rig.receive(1, &fresh(&mut ports, 5, tcp));
    assert_eq!(hits(&rig), [61, 44]);
    let sent = rig.sent();
    let to = |port| sent.iter().filter(|(to, _)| *to == port).count() as u64;
    assert_eq!([to(2), to(3)], [89, 16]);
    let (udp_bytes, tcp_bytes) = (udp(1, 80).len() as u64, tcp(1, 80).len() as u64);
    let (a, b) = (stats(&mut rig, to_2), stats(&mut rig, to_3));
    assert_eq!((a.packets, a.bytes, a.tcp_flags), (89, 89 * udp_bytes, 0));
    assert_eq!((b.packets, b.bytes, b.tcp_flags), (16, 16 * tcp_bytes, 2));
    assert_eq!([a.used_ms, b.used_ms], [rig.now_us / 1000; 2]);
}

#[test]
fn a_burst_of_three_megaflows_needs_no_other_lookup() {
    let (mut rig, mut ports) = (Rig::new(), 0);
    let mut by_port = mask();
    by_port.base.tp_dst = u16::MAX;
    let flows = [
        rig.flow(1, &udp(1, 80), by_port, vec![out(2)]),
        rig.flow(1, &udp(1, 81), by_port, vec![out(2)]),
        rig.flow(1, &tcp(1, 80), by_port, vec![out(3)]),
    ];
    let of = |n: usize, port| match n % 3 {
        0 => udp(port, 80),
        1 => udp(port, 81),
        _ => tcp(port, 80),
    };
    let mut burst = |from: usize, packets: usize| -> Vec<Vec<u8>> {
        let frames = from..from + packets;
        frames
            .map(|n| {
                of(n, {
                    ports += 1;
                    ports
                })
            })
            .collect()
    };
    rig.receive(1, &burst(0, 30));
    assert_eq!(hits(&rig), [0, 30]);
    // The first packet may be of any of them.
    for from in 0..3 {
        rig.receive(1, &burst(from, 30));
    }
    assert_eq!(hits(&rig), [90, 30]);
    let sent = rig.sent();
    assert_eq!([2, 3].map(|port| sent.iter().filter(|(to, _)| *to == port).count()), [80, 40]);
    let bytes = [udp(1, 80), udp(1, 81), tcp(1, 80)].map(|frame| frame.len() as u64);
    for (ufid, bytes) in flows.into_iter().zip(bytes) {
        let counted = stats(&mut rig, ufid);
        assert_eq!((counted.packets, counted.bytes), (40, 40 * bytes));
    }
    // Flows of other megaflows are looked up, and are hints then.
    let strays = [81, 82].map(|port| rig.flow(1, &tcp(1, port), by_port, vec![out(2)]));
    rig.receive(1, &[burst(0, 30), vec![tcp(9, 81), tcp(9, 82)]].concat());
    assert_eq!(hits(&rig), [120, 32]);
    rig.receive(1, &[burst(0, 4), vec![tcp(9, 81), tcp(9, 82), tcp(10, 82)]].concat());
    assert_eq!(hits(&rig), [127, 32]);
    assert_eq!(strays.map(|ufid| stats(&mut rig, ufid).packets), [2, 3]);
    // Hints of an earlier burst stay.
    rig.receive(1, &burst(0, 3));
    rig.receive(1, &[tcp(11, 81), udp(11, 80), tcp(11, 82)]);
    assert_eq!(hits(&rig), [133, 32]);
    // A burst of more than eight megaflows is none.
    let others = (83..87).map(|port| rig.flow(1, &tcp(1, port), by_port, vec![out(2)]));
    assert_eq!(others.count(), 4);
    let all = (81..87).map(|port| tcp(12, port));
    rig.receive(1, &burst(0, 3).into_iter().chain(all).collect::<Vec<_>>());
    assert_eq!(hits(&rig), [138, 36]);
    rig.receive(1, &burst(0, 4));
    assert_eq!(hits(&rig), [138, 40]);
}

/// Megaflows that differ in an extension block alone, or do not cover it.
#[test]
fn extension_blocks_of_several_megaflows_are_compared() {
    let (mut rig, mut by_source, mut by_type) = (Rig::new(), mask(), mask());
    by_source.ipv6.src = [u8::MAX; 16];
    by_type.base.nw_tos = u8::MAX;
    let from = |last: u8, tos: u8| {
        let mut frame = ipv6(17, &l4(17, 5, 80, true));
        frame[14 + 1] = tos << 4;
        frame[14 + 8 + 15] = last;
        frame
    };
    let to_2 = rig.flow(1, &from(1, 0), by_source, vec![out(2)]);
    let to_3 = rig.flow(1, &from(2, 0), by_source, vec![out(3)]);
    let any = rig.flow(1, &from(9, 4), by_type, vec![out(3)]);
    let frames: Vec<_> =
        (0..30u8).map(|n| if n % 3 == 2 { from(10 + n, 4) } else { from(1 + n % 3, 0) }).collect();
    for round in 0..3 {
        rig.receive(1, &frames);
        assert_eq!(hits(&rig), [30 * round, 30]);
    }
    rig.receive(1, &[from(1, 0), from(3, 0)]);
    assert_eq!((hits(&rig), rig.io.upcalls.len()), ([61, 30], 1));
    assert_eq!([to_2, to_3, any].map(|ufid| stats(&mut rig, ufid).packets), [31, 30, 30]);
}

#[test]
fn a_deleted_megaflow_matches_no_further_burst() {
    let (mut rig, mut ports) = (Rig::new(), 0);
    let ufid = rig.flow(1, &udp(1, 80), mask(), vec![out(2)]);
    rig.receive(1, &fresh(&mut ports, 8, udp));
    assert!(matches!(rig.apply(DpifOp::FlowDel(ufid)), OpResult::Flow(_)));
    rig.receive(1, &fresh(&mut ports, 4, udp));
    assert_eq!((rig.sent().len(), rig.io.upcalls.len()), (8, 4));
    // Another flow takes its slot.
    rig.flow(1, &tcp(1, 80), mask(), vec![out(3)]);
    rig.receive(1, &fresh(&mut ports, 4, udp));
    assert_eq!((rig.sent().len(), rig.io.upcalls.len()), (0, 8));
}

#[test]
fn a_burst_is_compared_with_bursts_of_its_port_and_recirculation() {
    let (mut rig, mut ports) = (Rig::new(), 0);
    let recirc = DpAction::Recirc(dpif::actions::Recirc(flow::RecircId(7)));
    rig.flow(1, &udp(1, 80), mask(), vec![recirc]);
    rig.flow(2, &udp(1, 80), mask(), vec![out(3)]);
    let mut again = key_of(1, &udp(1, 80));
    again.base.recirc_id = 7;
    assert!(matches!(rig.put(again, mask(), vec![out(4)]).1, OpResult::Done));
    for round in 0..3 {
        rig.receive(1, &fresh(&mut ports, 32, udp));
        rig.receive(2, &fresh(&mut ports, 32, udp));
        assert_eq!(hits(&rig), [round * 96, 96]);
    }
    let sent = rig.sent();
    assert_eq!([3, 4].map(|port| sent.iter().filter(|(to, _)| *to == port).count()), [96, 96]);
}
