//! Tunnels of further kinds: ERSPAN, GTP-U, VXLAN-GPE, segment routing, and packets without an Ethernet header in them.

use super::frames::{self, eth};
use super::tunnels::{INNER, PUSHES, both, bytes, large, parsed};
use super::*;
use flow::{Erspan, Tunnel, tunnel_flags};

/// Headers before a packet without Ethernet header. The UDP checksum of OVS's GTP-U leaves the length of the message out,
/// so that receivers drop it; these are right. Segment routing, which OVS 3.1 lacks, is as RFC 8754 has it.
pub(super) const BARE_PUSHES: [(&str, &str); 6] = [
    (
        "pop_eth,tnl_push(tnl_port(17),header(size=78,type=112,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=0,segs(2001:cafe::92))),out_port(3)),2",
        "f8bc124434b7aa55aa55000086dd6000000000742b402001cafe0000000000000000000000882001cafe00000000000000000000009204020400000000002001cafe000000000000000000000092",
    ),
    (
        "pop_eth,tnl_push(tnl_port(17),header(size=94,type=112,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=74565,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=1,segs(2001:cafe::92,2001:cafe::93))),out_port(3)),2",
        "f8bc124434b7aa55aa55000086dd6001234500842b402001cafe0000000000000000000000882001cafe00000000000000000000009204040401010000002001cafe0000000000000000000000932001cafe000000000000000000000092",
    ),
    (
        "pop_eth,tnl_push(tnl_port(2152),header(size=50,type=110,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x123456)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008000004000401133b8010102580101025cacd90868006cf1b730ff005c00123456",
    ),
    (
        "pop_eth,tnl_push(tnl_port(2152),header(size=70,type=110,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=44249,dst=2152,csum=0xffff),gtpu(flags=0x30,msgtype=255,teid=0x7)),out_port(3)),2",
        "f8bc124434b7aa55aa55000086dd60000000006c11402001cafe0000000000000000000000882001cafe000000000000000000000092acd90868006c55b530ff005c00000007",
    ),
    (
        "pop_eth,tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x800),key=0x2)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500007800004000402f33a1010102580101025d2000080000000002",
    ),
    (
        "pop_eth,tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000001,vni=0x6)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008000004000401133b7010102580101025dacd912b6006c00000c00000100000600",
    ),
];

/// Frames with a packet without Ethernet behind outer headers.
struct Bare {
    name: &'static str,
    frame: Vec<u8>,
    port: u32,
    /// `None`: it is refused.
    packet_type: Option<u32>,
    /// Where the packet begins.
    at: usize,
    id: u64,
    /// GTP-U's flags and type of message.
    of_gtpu: (u8, u8),
}

type Row = (&'static str, Vec<u8>, u32, Option<u32>, usize, u64, (u8, u8));

const V4: Option<u32> = Some(0x1_0800);
const V6: Option<u32> = Some(0x1_86dd);

fn of_udp(dst: u16, header: &[u8], inner: &[u8]) -> Vec<u8> {
    let mut l4 = [5000, dst, (8 + header.len() + inner.len()) as u16, 0].map(u16::to_be_bytes).concat();
    l4.extend([header, inner].concat());
    frames::ipv4(17, frames::SRC, frames::DST, 0x4000, &l4)
}

/// An IPv6 packet without a payload.
fn ipv6() -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[1; 32]].concat()
}

fn of_gtpu() -> Vec<Row> {
    let (ip, ip6) = (&bytes(INNER)[14..], ipv6());
    let gtpu = |flags: u8, kind: u8, more: &[u8], inner: &[u8]| {
        let [a, b] = ((more.len() + inner.len()) as u16).to_be_bytes();
        of_udp(2152, &[&[flags, kind, a, b, 0, 0x12, 0x34, 0x56][..], more].concat(), inner)
    };
    let too_long = {
        let mut frame = gtpu(0x30, 255, &[], ip);
        frame[45] += 1;
        frame
    };
    vec![
        ("gtpu", gtpu(0x30, 255, &[], ip), 16, V4, 50, 0x12_3456, (0x30, 255)),
        ("gtpu with IPv6", gtpu(0x30, 255, &[], &ip6), 16, V6, 50, 0x12_3456, (0x30, 255)),
        ("gtpu with a number", gtpu(0x32, 255, &[0, 1, 0, 0], ip), 16, V4, 54, 0x12_3456, (0x32, 255)),
        ("gtpu with an N-PDU", gtpu(0x31, 255, &[0, 0, 7, 0], ip), 16, V4, 54, 0x12_3456, (0x31, 255)),
        (
            "gtpu with extensions",
            gtpu(0x34, 255, &[0, 0, 0, 0x85, 1, 0, 0, 0xc0, 2, 0, 0, 0, 0, 0, 0, 0], ip),
            16,
            V4,
            66,
            0x12_3456,
            (0x34, 255),
        ),
        ("an endless extension", gtpu(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 0, 0], ip), 16, None, 0, 0, (0, 0)),
        ("an extension that is cut", gtpu(0x34, 255, &[0, 0, 0, 0x85, 99, 0], &[]), 16, None, 0, 0, (0, 0)),
        // Messages without a packet stay whole, and have no key.
        ("an echo", gtpu(0x32, 1, &[0, 1, 0, 0], &[]), 16, Some(0), 0, 0, (0x32, 1)),
        ("an end marker", gtpu(0x30, 254, &[], &[]), 16, Some(0), 0, 0, (0x30, 254)),
        ("GTP'", gtpu(0x20, 255, &[], ip), 16, None, 0, 0, (0, 0)),
        ("gtpu of another version", gtpu(0x50, 255, &[], ip), 16, None, 0, 0, (0, 0)),
        ("gtpu without a packet", gtpu(0x30, 255, &[], &[]), 16, None, 0, 0, (0, 0)),
        ("gtpu with another packet", gtpu(0x30, 255, &[], &[0x50; 20]), 16, None, 0, 0, (0, 0)),
        ("gtpu with a wrong length", too_long, 16, None, 0, 0, (0, 0)),
    ]
}

fn of_others() -> Vec<Row> {
    let (ip, ip6) = (&bytes(INNER)[14..], ipv6());
    let gpe = |protocol: u8, inner: &[u8]| of_udp(4789, &[0x0c, 0, 0, protocol, 0, 0, 5, 0], inner);
    let gre = |protocol: u16, inner: &[u8]| {
        let [a, b] = protocol.to_be_bytes();
        frames::ipv4(47, frames::SRC, frames::DST, 0, &[&[0x20, 0, a, b, 0, 0, 0, 9][..], inner].concat())
    };
    let srv6 = |proto: u8, header: &[u8], inner: &[u8]| {
        let routing = match header {
            [] => Vec::new(),
            header => [header, &[0; 4], &[7; 16]].concat(),
        };
        let [a, b] = ((routing.len() + inner.len()) as u16).to_be_bytes();
        let ip6 = [&[0x60, 0, 0, 0, a, b, proto, 64][..], &[1; 16], &[2; 16], &routing, inner].concat();
        eth(0x86dd, &ip6)
    };
    vec![
        ("gre", gre(0x0800, ip), 12, V4, 42, 9, (0, 0)),
        ("gre with IPv6", gre(0x86dd, &ip6), 12, V6, 42, 9, (0, 0)),
        (
            "gre with MPLS",
            gre(0x8847, &[&[0, 0, 0x51, 0x40], ip].concat()),
            12,
            Some(0x1_8847),
            42,
            9,
            (0, 0),
        ),
        ("gre with a length", gre(0x05ff, ip), 12, None, 0, 0, (0, 0)),
        ("gre without a packet", gre(0x0800, &[]), 12, None, 0, 0, (0, 0)),
        ("srv6", srv6(43, &[4, 2, 4, 0], ip), 17, V4, 78, 0, (0, 0)),
        ("srv6 with IPv6", srv6(43, &[41, 2, 4, 0], &ip6), 17, V6, 78, 0, (0, 0)),
        ("srv6 without a routing header", srv6(4, &[], ip), 17, V4, 54, 0, (0, 0)),
        ("srv6 on its way", srv6(43, &[4, 2, 4, 1], ip), 17, None, 0, 0, (0, 0)),
        ("another routing header", srv6(43, &[4, 2, 2, 0], ip), 17, None, 0, 0, (0, 0)),
        ("two headers before the packet", srv6(60, &[43, 2, 4, 0], ip), 17, None, 0, 0, (0, 0)),
        ("srv6 with UDP", srv6(43, &[17, 2, 4, 0], ip), 17, None, 0, 0, (0, 0)),
        ("srv6 of another version", srv6(43, &[4, 2, 4, 0], &ip6), 17, None, 0, 0, (0, 0)),
        ("srv6 over IPv4", frames::ipv4(4, frames::SRC, frames::DST, 0, ip), 17, None, 0, 0, (0, 0)),
        ("gpe", gpe(1, ip), 10, V4, 50, 5, (0, 0)),
        ("gpe with IPv6", gpe(2, &ip6), 10, V6, 50, 5, (0, 0)),
    ]
}

fn bare() -> impl Iterator<Item = Bare> {
    let rows = of_gtpu().into_iter().chain(of_others());
    rows.map(|(name, frame, port, packet_type, at, id, of_gtpu)| Bare {
        name,
        frame,
        port,
        packet_type,
        at,
        id,
        of_gtpu,
    })
}

/// All frames of these tests.
pub(super) fn all_frames() -> Vec<Vec<u8>> {
    bare().map(|row| row.frame).chain(super::tunnels::pops().into_iter().map(|row| row.1)).collect()
}

#[test]
fn bare_packets_are_popped_with_their_type() {
    for Bare { name, frame, port, packet_type, at, id, of_gtpu } in bare() {
        both(|rig| {
            rig.flow(1, &frame, least_mask(), parsed(&format!("tnl_pop({port})")));
            rig.receive(1, std::slice::from_ref(&frame));
            assert_eq!(rig.drops(DropReason::TunnelPop), u64::from(packet_type.is_none()), "{name}");
            let Some(packet_type) = packet_type else { return assert!(rig.io.upcalls.is_empty(), "{name}") };
            let upcall = rig.io.upcalls.pop().expect(name);
            assert_eq!(upcall.packet.data(), &frame[at..], "{name}");
            let (key, t) = (upcall.key, upcall.key.tunnel);
            assert_eq!((key.arp.packet_type, key.in_port(), t.id), (packet_type, DpPort(port), id), "{name}");
            assert_eq!((t.gtpu_flags, t.gtpu_msgtype), of_gtpu, "{name}");
            assert_eq!(t.flags & tunnel_flags::KEY != 0, id != 0, "{name}");
            assert_eq!(
                key.base.nw_ttl,
                frame[if at == 0 { 22 } else { at + if packet_type == 0x1_86dd { 7 } else { 8 } }],
                "{name}"
            );
        });
    }
}

/// A large segment that lost its Ethernet header is cut, too.
#[test]
fn large_segments_without_ethernet_are_cut() {
    const BARE: &str = "pop_eth,tnl_push(tnl_port(16),header(size=50,type=110,eth(dst=02:00:00:00:00:03,src=02:00:00:00:00:04,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x7)),out_port(3)),2";
    both(|rig| {
        let mut cut = PacketBatch::new();
        packet::segment(&large(), &mut PacketPool::new(), &mut cut).expect("a large segment");
        rig.flow(1, large().data(), least_mask(), parsed(BARE));
        rig.receive_packets(1, vec![large()]);
        let sent = rig.sent();
        assert!(sent.iter().map(|(_, f)| &f[50..]).eq(cut.packets().iter().map(|p| &p.data()[14..])));
        let outer: Vec<_> = sent.into_iter().map(|(_, frame)| frame).collect();
        rig.flow(4, &outer[0], least_mask(), parsed("tnl_pop(16)"));
        rig.receive(4, &outer[..1]);
        let upcall = rig.io.upcalls.pop().expect("an inner packet");
        rig.execute(
            upcall.packet,
            upcall.key,
            parsed("push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),1"),
            upcall.ticket,
        );
        assert_eq!(rig.sent()[0].1[14..], cut.packets()[0].data()[14..]);
    });
}

/// A header carries packets of its own type alone.
#[test]
fn headers_refuse_packets_of_other_types() {
    let (frames, bare) =
        (PUSHES[0].0, BARE_PUSHES.map(|(actions, _)| actions.trim_start_matches("pop_eth,")));
    for actions in bare.into_iter().map(String::from).chain([format!("pop_eth,{frames}")]) {
        both(|rig| {
            let inner = bytes(INNER);
            rig.execute(Packet::from_slice(&inner), key_of(1, &inner), parsed(&actions), None);
            assert_eq!((rig.sent().len(), rig.drops(DropReason::TunnelPush)), (0, 1), "{actions}");
        });
    }
}

/// Frames with ERSPAN or VXLAN-GPE, as [`super::tunnels::pops`] has them.
pub(super) fn pops() -> Vec<(&'static str, Vec<u8>, u32, Option<Tunnel>)> {
    let inner = bytes(INNER);
    let key = tunnel_flags::KEY;
    let (src, dst) = (u32::from_be_bytes(frames::SRC), u32::from_be_bytes(frames::DST));
    let tunnel = |id, flags| Some(Tunnel { id, src, dst, ttl: 64, flags, ..Tunnel::default() });
    let gpe = |flags: u32| of_udp(4789, &[&flags.to_be_bytes()[..], &[0, 0, 0x7b, 0]].concat(), &inner);
    let of_erspan = |start: [u16; 2], header: &[u32]| {
        let mut l4 = start.map(u16::to_be_bytes).concat();
        l4.extend(header.iter().flat_map(|word| word.to_be_bytes()));
        l4.extend(&inner);
        frames::ipv4(47, frames::SRC, frames::DST, 0, &l4)
    };
    let spans = |id, erspan: Erspan| {
        tunnel(id, key).map(|mut t| {
            t.set_erspan(&erspan);
            t
        })
    };
    let (first, second) = (0x1000_88be_u32, 0x1000_22eb_u32);
    let start = |word: u32| [(word >> 16) as u16, word as u16];
    let of_first = Erspan { ver: 1, idx: 0xabcde, ..Erspan::default() };
    let of_second = Erspan { ver: 2, dir: 1, hwid: 7, idx: 0 };
    let of_gre = {
        let l4 = [&[0x20, 0, 0x65, 0x58, 0, 0, 1, 200][..], &inner].concat();
        frames::ipv4(47, frames::SRC, frames::DST, 0, &l4)
    };
    let in_gpe = tunnel(0x7b, key).map(|t| Tunnel { tp_src: 5000, tp_dst: 4789, ..t });
    vec![
        ("erspan 1", of_erspan(start(first), &[5, 0x1000_0001, 0xf00a_bcde]), 14, spans(1, of_first)),
        (
            "erspan 1 over IPv6's port",
            of_erspan(start(first), &[5, 0x1000_0001, 0xabcde]),
            15,
            spans(1, of_first),
        ),
        (
            "erspan 1 with other fields",
            of_erspan(start(first), &[5, 0x1abc_fc01, 0xabcde]),
            14,
            spans(1, of_first),
        ),
        (
            "erspan 2",
            of_erspan(start(second), &[6, 0x2000_03ff, 0x1234_5678, 0xfff_8078]),
            14,
            spans(0x3ff, of_second),
        ),
        (
            "erspan 2 with a subheader",
            of_erspan(start(second), &[6, 0x2000_03ff, 0x1234_5678, 0xfff_8079, 1, 2]),
            14,
            spans(0x3ff, of_second),
        ),
        ("erspan 3", of_erspan(start(second), &[6, 0x3000_03ff, 0x1234_5678, 0x78]), 14, None),
        ("erspan without a number", of_erspan([0, 0x88be], &[0x1000_0001, 3]), 14, None),
        ("a short erspan", of_erspan(start(second), &[6, 0x2000_03ff])[..46].to_vec(), 14, None),
        (
            "erspan on the port of gre",
            of_erspan(start(first), &[5, 0x1000_0001, 0xabcde]),
            12,
            spans(1, of_first),
        ),
        ("gre on the port of erspan", of_gre, 14, tunnel(456, key)),
        ("gpe with a frame", gpe(0x0c00_0003), 10, in_gpe),
        ("gpe with MPLS", gpe(0x0c00_0005), 10, None),
        ("gpe of control", gpe(0x0d00_0003), 10, None),
        ("gpe of another version", gpe(0x1c00_0003), 10, None),
        ("gpe without a VNI", gpe(0x0400_0003), 10, None),
    ]
}
