//! Packets by their bytes: what is valid, and what of it counts.

use super::{PacketInfo, Transport, window_scale};
use crate::key::{Key, Rest};
use crate::tests::{frame, icmp, tcp, udp};
use flow::FlowKey;
use flow::extract::{Layout, Metadata, extract};
use packet::{Packet, checksum};
use proptest::prelude::*;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
/// Bytes before the transport header of an IPv4 frame.
const L4: usize = 34;

fn read_with(frame: &[u8], change: impl FnOnce(&mut Packet)) -> Option<PacketInfo> {
    let mut packet = Packet::from_slice(frame);
    change(&mut packet);
    let mut key = FlowKey::default();
    let layout = extract(packet.data(), &Metadata::default(), 1, &mut key);
    let info = PacketInfo::read(&packet, &key, layout, 6);
    // Nothing is left of a former packet.
    let mut used =
        PacketInfo { key: Key::V6([7; 5]), is_error: true, transport: Transport::Icmp { begins: true } };
    assert_eq!(used.fill(&packet, &key, layout, 6).map(|()| used), info);
    info
}

fn read(frame: &[u8]) -> Option<PacketInfo> {
    read_with(frame, |_| {})
}

/// An IPv6 frame with a right checksum at `at` of its body.
fn v6(proto: u8, at: usize, mut body: Vec<u8>) -> Vec<u8> {
    let (mut src, mut dst) = ([0u8; 16], [0u8; 16]);
    (src[15], dst[15]) = (1, 2);
    let sum = !checksum::fold(checksum::sum(&body, checksum::pseudo(&src, &dst, proto, body.len())));
    body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x60, 0, 0, 0, 0, body.len() as u8, proto, 64];
    ip.extend([src, dst].concat());
    [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd], ip, body].concat()
}

fn udp_body(sum: u16) -> Vec<u8> {
    [5u16, 6, 10, sum, 0x7788].map(u16::to_be_bytes).concat()
}

fn sctp(right: bool) -> Vec<u8> {
    let mut body = [5u16, 6, 0, 9, 0, 0, 0x0100, 4].map(u16::to_be_bytes).concat();
    let mut crc = packet::Crc32c::new();
    crc.add(&body);
    let sum = crc.value() ^ u32::from(!right);
    body[8..12].copy_from_slice(&sum.to_le_bytes());
    frame(A, B, 132, body)
}

fn changed(mut frame: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    assert_ne!(frame[at], to);
    frame[at] = to;
    frame
}

/// An error of IPv6 (packet too big) about a fragment with that offset and those flags.
fn v6_error(fragment: u16) -> Vec<u8> {
    let cited = [vec![0x60, 0, 0, 0, 0, 18, 44, 64], [v6_address(2), v6_address(1)].concat()];
    let header = [[17, 0].to_vec(), fragment.to_be_bytes().to_vec(), vec![0, 0, 0, 9]];
    v6(58, 2, [vec![2, 0, 0, 0, 0, 0, 5, 0], cited.concat(), header.concat(), udp_body(7)].concat())
}

fn v6_address(last: u8) -> Vec<u8> {
    [vec![0; 15], vec![last]].concat()
}

#[test]
fn valid_and_invalid_packets() {
    let padded = [udp(A, B, 5, 6), vec![9; 18]].concat();
    let ports = |proto| Some(Rest { src: 5, dst: 6, zone: 6, proto });
    let id = |kind: u16, proto| Some(Rest { src: 77, dst: kind << 8, zone: 6, proto });
    for (what, frame, expected) in [
        ("UDP", udp(A, B, 5, 6), ports(17)),
        ("UDP with padding", padded, ports(17)),
        ("UDP without checksum", changed(changed(frame(A, B, 17, udp_body(0)), 40, 0), 41, 0), ports(17)),
        (
            "UDP longer than the packet",
            frame(A, B, 17, [5u16, 6, 11, 0, 0].map(u16::to_be_bytes).concat()),
            None,
        ),
        (
            "UDP shorter than its header",
            frame(A, B, 17, [5u16, 6, 7, 0].map(u16::to_be_bytes).concat()),
            None,
        ),
        ("UDP to port 0", udp(A, B, 5, 0), None),
        ("UDP of IPv6", v6(17, 6, udp_body(0)), ports(17)),
        ("UDP of IPv6 without checksum", changed(changed(v6(17, 6, udp_body(0)), 60, 0), 61, 0), None),
        ("TCP", tcp(A, B, [5, 6], 2, 1, 2, 3), ports(6)),
        ("TCP from port 0", tcp(A, B, [0, 6], 2, 1, 2, 3), None),
        ("TCP, header cut", changed(tcp(A, B, [5, 6], 2, 1, 2, 3), L4 + 12, 0x40), None),
        ("TCP, header too long", changed(tcp(A, B, [5, 6], 2, 1, 2, 3), L4 + 12, 0x60), None),
        ("IPv4 checksum", changed(udp(A, B, 5, 6), 24, 1), None),
        ("SCTP", sctp(true), ports(132)),
        ("SCTP, wrong checksum", sctp(false), None),
        ("ping", icmp(A, B, 8, 0, 77, &[]), id(8, 1)),
        ("ping with a code", icmp(A, B, 8, 1, 77, &[]), None),
        ("address mask", icmp(A, B, 17, 0, 77, &[]), None),
        ("ping of IPv6", v6(58, 2, vec![128, 0, 0, 0, 0, 77, 0, 1]), id(128, 58)),
        ("neighbour solicitation", v6(58, 2, [vec![135, 0, 0, 0], vec![0; 20]].concat()), None),
        (
            "fragment",
            frame(A, B, 17, udp_body(0))
                .into_iter()
                .enumerate()
                .map(|(n, b)| if n == 20 { 0x20 } else { b })
                .collect(),
            None,
        ),
        ("ARP", [vec![0xff; 12], vec![8, 6], vec![0; 28]].concat(), None),
        ("nothing", vec![], None),
    ] {
        check(what, &frame, expected);
    }
}

#[test]
fn errors_belong_to_the_connection_of_the_packet_that_they_cite() {
    let cited = |src, dst| udp(src, dst, 5, 6)[14..].to_vec();
    for (what, frame, expected) in [
        (
            "error",
            icmp([9, 9, 9, 9], A, 3, 1, 0, &cited(A, B)),
            Some(Rest { src: 6, dst: 5, zone: 6, proto: 17 }),
        ),
        ("error for another host", icmp([9, 9, 9, 9], B, 3, 1, 0, &cited(A, B)), None),
        ("error without a packet", icmp([9, 9, 9, 9], A, 3, 1, 0, &cited(A, B)[..20]), None),
        (
            "error about a first fragment",
            icmp([9, 9, 9, 9], A, 11, 1, 0, &changed(cited(A, B), 6, 0x20)),
            Some(Rest { src: 6, dst: 5, zone: 6, proto: 17 }),
        ),
        ("error about a later fragment", icmp([9, 9, 9, 9], A, 3, 1, 0, &changed(cited(A, B), 7, 1)), None),
        (
            "error about a middle fragment",
            icmp([9, 9, 9, 9], A, 3, 1, 0, &changed(changed(cited(A, B), 6, 0x20), 7, 1)),
            None,
        ),
        (
            "error of IPv6 about a first fragment",
            v6_error(1),
            Some(Rest { src: 6, dst: 5, zone: 6, proto: 17 }),
        ),
        ("error of IPv6 about a later fragment", v6_error(0x80), None),
        (
            "error about an error",
            icmp([9, 9, 9, 9], A, 3, 1, 0, &icmp(A, B, 3, 1, 0, &cited(B, A))[14..]),
            None,
        ),
    ] {
        check(what, &frame, expected);
    }
}

/// The ports that are read of a frame, if it is valid.
fn check(what: &str, frame: &[u8], expected: Option<Rest>) {
    let info = read(frame);
    assert_eq!(info.map(|info| info.key.rest()), expected, "{what}: {info:?}");
    let is_error = expected.is_some() && what.starts_with("error");
    assert_eq!(info.is_some_and(|info| info.is_error), is_error, "{what}");
}

#[test]
fn a_checksum_of_a_device_is_not_computed() {
    let wrong = changed(tcp(A, B, [5, 6], 2, 1, 2, 3), L4 + 16, 0xee);
    assert_eq!(read(&wrong), None);
    assert!(read_with(&wrong, |p| p.offload.csum_valid = true).is_some());
    let partial = |start: u16| {
        move |p: &mut Packet| {
            p.offload.needs_csum = true;
            p.offload.csum_start = start;
        }
    };
    assert!(read_with(&wrong, partial(L4 as u16)).is_some());
    // A checksum of an inner header, which says nothing about this one.
    assert_eq!(read_with(&wrong, partial(L4 as u16 + 30)), None);
}

#[test]
fn window_scales() {
    for (what, options, expected) in [
        ("none", &[][..], None),
        ("alone", &[3, 3, 7], Some(7)),
        ("after others", &[2, 4, 5, 0xb4, 1, 3, 3, 9, 0], Some(9)),
        ("after the end", &[0, 3, 3, 9], None),
        ("cut", &[1, 1, 3, 3], None),
        ("wrong length", &[3, 4, 9, 9], None),
        ("length 0", &[5, 0, 3, 3, 9], Some(9)),
        ("length beyond the end", &[5, 200, 3, 3, 9], None),
        ("lonely kind", &[1, 5], None),
    ] {
        assert_eq!(window_scale(options), expected, "{what}");
    }
}

#[test]
fn offsets_that_do_not_fit_are_refused() {
    let frame = udp(A, B, 5, 6);
    let packet = Packet::from_slice(&frame);
    let mut key = FlowKey::default();
    let right = extract(packet.data(), &Metadata::default(), 1, &mut key);
    assert!(PacketInfo::read(&packet, &key, right, 0).is_some());
    for l3 in (0..60).chain([u16::MAX - 1, u16::MAX]) {
        for l4 in (0..60).chain([u16::MAX - 1, u16::MAX]) {
            let layout = Layout { l3, l4 };
            let info = PacketInfo::read(&packet, &key, layout, 0);
            assert!(info.is_none() || (l3, l4) == (right.l3, right.l4), "{layout:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_wrong_bit_makes_a_packet_invalid(which in 0..3usize, at: usize, bit in 0..8u32) {
        let frames = [tcp(A, B, [5, 6], 16, 1, 2, 30), udp(A, B, 5, 6), icmp(A, B, 8, 0, 77, &[1, 2, 3, 4])];
        let mut frame = frames[which].clone();
        let before = read(&frame);
        prop_assert!(before.is_some());
        // Any bit of the IP packet except that of a fragment's flags, which says the same.
        let at = 14 + at % (frame.len() - 14);
        frame[at] ^= 1 << bit;
        prop_assert_eq!(read(&frame), None, "byte {}", at);
    }

    #[test]
    fn any_bytes_are_read(frame in proptest::collection::vec(any::<u8>(), 0..120), proto: u8, v6: bool) {
        let mut frame = frame;
        if frame.len() > 24 {
            (frame[12], frame[13]) = if v6 { (0x86, 0xdd) } else { (8, 0) };
            frame[14] = if v6 { 0x60 } else { 0x45 };
            frame[if v6 { 20 } else { 23 }] = proto;
        }
        let info = read_with(&frame, |p| p.offload.csum_valid = true);
        if let Some(PacketInfo { transport: Transport::Tcp(segment), .. }) = info {
            prop_assert!(segment.bytes as usize <= frame.len());
        }
    }
}
