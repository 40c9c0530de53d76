//! Outer headers: frames, and refusals, as Open vSwitch's userspace datapath has them.

use super::frames::{self, eth, tcp, udp};
use super::*;
use dpif::actions::parse_actions;
use dpif::text::NumbersOnly;
use flow::{Tunnel, tunnel_flags};
use packet::{GsoKind, Offload};
use proptest::prelude::*;

/// A UDP datagram of Open vSwitch's records.
pub(super) const INNER: &str = "50540000000750540000000508004504005c000000004011668b0a0000010a00000203e807d00048fb9f000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

/// Actions and the headers that they push, as recorded from Open vSwitch 3.1. The source port of UDP is that which it chose;
/// the timestamp of ERSPAN, 0x2710, is that of these tests.
pub(super) const PUSHES: [(&str, &str); 15] = [
    (
        "tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008e00004000401133aa010102580101025cacd912b5007a00000800000000007b00",
    ),
    (
        "tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0x8000000,vni=0x99)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008e00004000401133aa010102580101025cacd912b6007a00000800000000009900",
    ),
    (
        "tnl_push(tnl_port(4791),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x4,ttl=17,frag=0x0),udp(src=44249,dst=4791,csum=0xffff),vxlan(flags=0x8000000,vni=0x5)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004504008e000000001111a2a6010102580101025cacd912b7007a975b0800000000000500",
    ),
    (
        "tnl_push(tnl_port(6081),header(size=58,type=5,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=6081,csum=0x0),geneve(crit,vni=0x4d,options({class=0x102,type=0x80,len=4,0x1234}))),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500009600004000401133a2010102580101025cacd917c1008200000240655800004d000102800100001234",
    ),
    (
        "tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x6558),key=0x1c8)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008600004000402f3394010102580101025c20006558000001c8",
    ),
    (
        "tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.93,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x8000,proto=0x6558),csum=0x0)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008600004000402f3393010102580101025d80006558864e0000",
    ),
    (
        "tnl_push(tnl_port(4789),header(size=70,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=44249,dst=4789,csum=0xffff),vxlan(flags=0x8000000,vni=0x7b)),out_port(3)),2",
        "f8bc124434b6aa55aa55000086dd60000000007a11402001cafe0000000000000000000000882001cafe000000000000000000000092acd912b5007a50f90800000000007b00",
    ),
    (
        "tnl_push(tnl_port(4),header(size=46,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.94,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x3000,proto=0x6558),key=0x1,seq=0x0)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008a00004000402f338e010102580101025e300065580000000100000000",
    ),
    (
        "tnl_push(tnl_port(6),header(size=62,type=109,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),gre((flags=0x2000,proto=0x6558),key=0x1c8)),out_port(3)),2",
        "f8bc124434b6aa55aa55000086dd6000000000722f402001cafe0000000000000000000000882001cafe00000000000000000000009220006558000001c8",
    ),
    (
        "tnl_push(tnl_port(5),header(size=50,type=107,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),erspan(ver=1,sid=0x1,idx=0x3)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008e00004000402f338c010102580101025c100088be000000001000000100000003",
    ),
    (
        "tnl_push(tnl_port(5),header(size=54,type=107,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),erspan(ver=2,sid=0x3ff,dir=1,hwid=0x7)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500009200004000402f3388010102580101025c100022eb00000001200003ff0000271000000078",
    ),
    (
        "tnl_push(tnl_port(6),header(size=70,type=108,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=1,sid=0x5,idx=0xabcde)),out_port(3)),2",
        "f8bc124434b7aa55aa55000086dd60000000007a2f402001cafe0000000000000000000000882001cafe000000000000000000000092100088be0000000010000005000abcde",
    ),
    (
        "tnl_push(tnl_port(6),header(size=74,type=108,eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=47,tclass=0x0,hlimit=64),erspan(ver=2,sid=0x6,dir=0,hwid=0x3f)),out_port(3)),2",
        "f8bc124434b7aa55aa55000086dd60000000007e2f402001cafe0000000000000000000000882001cafe000000000000000000000092100022eb000000012000000600002710000003f0",
    ),
    (
        "tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000003,vni=0x5)),out_port(3)),2",
        "f8bc124434b6aa55aa55000008004500008e00004000401133aa010102580101025cacd912b6007a00000c00000300000500",
    ),
    (
        "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0),tnl_push(tnl_port(4790),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=44249,dst=4790,csum=0x0),vxlan(flags=0xc000004,vni=0x5)),out_port(3)),2",
        "f8bc124434b6aa55aa5500000800450000a60000400040113392010102580101025cacd912b6009200000c000004000005000fc60103000000ff00000000000000000000000000000000",
    ),
];

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

pub(super) fn parsed(actions: &str) -> Vec<DpAction> {
    parse_actions(actions, &NumbersOnly).expect(actions)
}

/// The push of entry `n` of [`PUSHES`].
pub(super) fn push(n: usize) -> DpAction {
    let mut all = parsed(PUSHES[n].0);
    all.retain(|action| matches!(action, DpAction::TnlPush(_)));
    all.swap_remove(0)
}

pub(super) fn both(mut check: impl FnMut(&mut Rig)) {
    [true, false].into_iter().for_each(|group| check(&mut Rig::with(|c| c.tuning.group = group)));
}

#[test]
fn pushed_headers_equal_those_of_ovs() {
    both(|rig| {
        let inner = bytes(INNER);
        let ufid = rig.flow(1, &inner, least_mask(), Vec::new());
        let with = |all: &[(&'static str, &'static str)], inner: &[u8]| -> Vec<_> {
            all.iter().map(|(actions, header)| (*actions, [&bytes(header), inner].concat())).collect()
        };
        for (actions, frame) in
            [with(&PUSHES, &inner), with(&super::tunnel_kinds::BARE_PUSHES, &inner[14..])].concat()
        {
            let actions = parsed(&format!("{actions},3"));
            let mode = PutMode::Modify;
            let put =
                FlowPut { ufid, key: key_of(1, &inner), mask: least_mask(), actions: actions.into(), mode };
            rig.apply(DpifOp::FlowPut(Box::new(put)));
            rig.receive(1, std::slice::from_ref(&inner));
            let mut sent = rig.sent();
            sent.sort();
            assert_eq!(sent, [(2, frame.clone()), (3, frame)]);
        }
    });
}

/// Writes the checksum of an IPv4 header behind Ethernet, if there is a whole one.
fn mend(frame: &mut [u8]) {
    let bytes = usize::from(frame.get(14).map_or(0, |first| first & 0xf)) * 4;
    if bytes < 20 || frame.len() < 14 + bytes {
        return;
    }
    frame[24..26].fill(0);
    let sum = packet::checksum::checksum(&frame[14..14 + bytes]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Frames of Open vSwitch's records, or made like them; the port of the tunnel; its key and flags, or why it is refused.
pub(super) fn pops() -> Vec<(&'static str, Vec<u8>, u32, Option<Tunnel>)> {
    let inner = bytes(INNER);
    let vxlan = |flags: u32, last: u8| [&flags.to_be_bytes()[..], &[0, 0, 0x7b, last], &inner].concat();
    let of_udp = |dst: u16, sum: u16, payload: &[u8]| {
        let mut l4 = [5000, dst, 8 + payload.len() as u16, sum].map(u16::to_be_bytes).concat();
        l4.extend(payload);
        frames::ipv4(17, frames::SRC, frames::DST, 0x4000, &l4)
    };
    let of_gre = |flags: u16, words: &[u32]| {
        let mut l4 = [flags, 0x6558].map(u16::to_be_bytes).concat();
        l4.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        l4.extend(&inner);
        frames::ipv4(47, frames::SRC, frames::DST, 0, &l4)
    };
    let geneve = |flags: [u8; 4], options: &[u8]| [&flags[..], &[0, 0, 5, 0], options, &inner].concat();
    let mut padded = of_udp(4789, 0, &vxlan(1 << 27, 0));
    padded.extend([0; 9]);
    let mut bad_ip = of_udp(4789, 0, &vxlan(1 << 27, 0));
    bad_ip[24] ^= 1;
    let mut with_options = of_udp(4789, 0, &vxlan(1 << 27, 0));
    with_options.splice(34..34, [1, 1, 1, 1]);
    with_options[14] = 0x46;
    with_options[17] += 4;
    mend(&mut with_options);
    let tunnel = |id, flags| {
        let (src, dst) = (u32::from_be_bytes(frames::SRC), u32::from_be_bytes(frames::DST));
        Some(Tunnel { id, src, dst, ttl: 64, flags, ..Tunnel::default() })
    };
    let udp_of = |dst, t: Option<Tunnel>| t.map(|t| Tunnel { tp_src: 5000, tp_dst: dst, ..t });
    let key = tunnel_flags::KEY;
    let gre_sum = {
        let frame = of_gre(0xa000, &[0, 456]);
        u32::from(packet::checksum::checksum(&frame[34..])) << 16
    };
    let mut all = vec![
        ("vxlan", of_udp(4789, 0, &vxlan(1 << 27, 0)), 10, udp_of(4789, tunnel(0x7b, key))),
        ("padding", padded, 10, udp_of(4789, tunnel(0x7b, key))),
        ("IP options", with_options, 10, udp_of(4789, tunnel(0x7b, key))),
        ("no VNI", of_udp(4789, 0, &vxlan(0, 0)), 10, None),
        ("a reserved byte", of_udp(4789, 0, &vxlan(1 << 27, 1)), 10, None),
        ("a group policy", of_udp(4789, 0, &vxlan(0x8800_0012, 0)), 10, None),
        ("a short frame", of_udp(4789, 0, &vxlan(1 << 27, 0)[..20]), 10, None),
        ("a short header", of_udp(4789, 0, &vxlan(1 << 27, 0)[..6]), 10, None),
        ("a bad checksum of UDP", of_udp(4789, 0x1234, &vxlan(1 << 27, 0)), 10, None),
        ("a bad checksum of IP", bad_ip, 10, None),
        ("geneve", of_udp(6081, 0, &geneve([0, 0, 0x65, 0x58], &[])), 11, udp_of(6081, tunnel(5, key))),
        (
            "geneve of control",
            of_udp(6081, 0, &geneve([0, 0x80, 0x65, 0x58], &[])),
            11,
            udp_of(6081, tunnel(5, key | tunnel_flags::OAM)),
        ),
        (
            "an option",
            of_udp(6081, 0, &geneve([2, 0x40, 0x65, 0x58], &[1, 2, 0x80, 1, 0, 0, 0x12, 0x34])),
            11,
            udp_of(6081, tunnel(5, key)),
        ),
        ("a long option", of_udp(6081, 0, &geneve([2, 0, 0x65, 0x58], &[1, 2, 3, 2, 0, 0, 0, 0])), 11, None),
        ("another version", of_udp(6081, 0, &geneve([0x40, 0, 0x65, 0x58], &[])), 11, None),
        ("another protocol", of_udp(6081, 0, &geneve([0, 0, 8, 0], &[])), 11, None),
        ("gre", of_gre(0x2000, &[456]), 12, tunnel(456, key)),
        ("gre without a key", of_gre(0, &[]), 12, tunnel(0, 0)),
        ("gre with a sequence number", of_gre(0x3000, &[456, 9]), 12, tunnel(456, key)),
        ("gre with a checksum", of_gre(0xa000, &[gre_sum, 456]), 12, tunnel(456, key | tunnel_flags::CSUM)),
        ("a bad checksum of GRE", of_gre(0xa000, &[gre_sum ^ 0x10000, 456]), 12, None),
        ("gre with a routing header", of_gre(0x4000, &[0]), 12, None),
        ("udp on a gre tunnel", of_udp(4789, 0, &vxlan(1 << 27, 0)), 12, None),
        ("no IP", eth(0x9999, &inner), 10, None),
        ("an unknown tunnel", of_udp(4789, 0, &vxlan(1 << 27, 0)), 99, None),
    ];
    all.extend(ending_early(&all[0].1));
    all.extend(super::tunnel_kinds::pops());
    all
}

/// A frame of VXLAN whose outer packet ends before its frame does.
fn ending_early(vxlan: &[u8]) -> [(&'static str, Vec<u8>, u32, Option<Tunnel>); 3] {
    let of_bytes = |name, ip_bytes: u16| {
        let mut frame = vxlan.to_vec();
        frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
        mend(&mut frame);
        (name, frame, 10, None)
    };
    [
        of_bytes("a packet that ends before its header", 28),
        of_bytes("a packet that ends within its header", 35),
        of_bytes("a packet that ends within the inner Ethernet header", 36 + 13),
    ]
}

#[test]
fn outer_headers_are_popped() {
    for (name, frame, port, wanted) in pops() {
        both(|rig| {
            rig.flow(1, &frame, least_mask(), parsed(&format!("tnl_pop({port})")));
            rig.receive(1, std::slice::from_ref(&frame));
            assert_eq!(rig.drops(DropReason::TunnelPop), u64::from(wanted.is_none()), "{name}");
            let Some(wanted) = wanted else { return assert!(rig.io.upcalls.is_empty(), "{name}") };
            let upcall = rig.io.upcalls.pop().expect(name);
            // As in OVS, bytes behind the outer IP packet stay.
            let padding = vec![0; if name == "padding" { 9 } else { 0 }];
            assert_eq!(upcall.packet.data(), [bytes(INNER), padding].concat(), "{name}");
            assert_eq!((upcall.key.tunnel, upcall.rx_port), (wanted, DpPort(1)), "{name}");
            // The protocol of the GRE header selects the kind of tunnel.
            let port = if name.ends_with("port of gre") { 14 } else { port };
            let port = if name.ends_with("port of erspan") { 12 } else { port };
            let mut inner = key_of(port, upcall.packet.data());
            (inner.tunnel, inner.options) = (wanted, upcall.key.options);
            inner.set_shape();
            assert_eq!(upcall.key, inner, "{name}: a key of the inner packet alone");
            assert_eq!(upcall.key.options.is_empty(), name != "an option");
        });
    }
}

/// The kernel leaves the checksum of a GRE header to the device, like that of UDP.
#[test]
fn a_checksum_of_gre_may_be_left_to_the_device() {
    let gre = |name| pops().into_iter().find(|(of, ..)| *of == name).expect("a frame of that name").1;
    for (needs_csum, csum_start, popped) in [(true, 34, true), (true, 14, false), (false, 0, false)] {
        both(|rig| {
            let mut packet = Packet::from_slice(&gre("a bad checksum of GRE"));
            packet.offload = Offload { needs_csum, csum_start, csum_offset: 4, ..Offload::NONE };
            rig.flow(1, packet.data(), least_mask(), parsed("tnl_pop(12)"));
            rig.receive_packets(1, vec![packet]);
            assert_eq!(rig.drops(DropReason::TunnelPop), u64::from(!popped));
            let inner: Vec<_> = rig.io.upcalls.drain(..).map(|u| u.packet.data().to_vec()).collect();
            assert_eq!(inner, vec![bytes(INNER); usize::from(popped)]);
        });
    }
}

/// A frame that several bridges get: popped, and sent as it is.
#[test]
fn a_pop_before_another_output_takes_a_copy() {
    let (_, frame, port, _) = pops().swap_remove(0);
    let (_, bad, ..) = pops().swap_remove(3);
    both(|rig| {
        rig.flow(1, &frame, least_mask(), parsed(&format!("tnl_pop({port}),2")));
        rig.receive(1, &[frame.clone(), bad.clone()]);
        assert_eq!(rig.sent(), [(2, frame.clone()), (2, bad.clone())]);
        assert_eq!((rig.io.upcalls.len(), rig.drops(DropReason::TunnelPop)), (1, 1));
    });
}

/// A large segment of TCP.
pub(super) fn large() -> Packet {
    let mut frame = tcp(1000, 80);
    frame.truncate(54);
    // ACK and PSH.
    frame[47] = 0x18;
    frame.extend((0..4000u32).map(|n| n as u8));
    let ip_bytes = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    let mut packet = Packet::from_slice(&frame);
    packet.offload = Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: GsoKind::Tcp4,
        gso_size: 1400,
        hdr_len: 54,
        ..Offload::NONE
    };
    packet
}

const PUSH: &str = "tnl_push(tnl_port(10),header(size=50,type=4,eth(dst=02:00:00:00:00:03,src=02:00:00:00:00:04,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0xffff),vxlan(flags=0x8000000,vni=0x7b)),out_port(3))";

fn cut(packet: &Packet) -> Vec<Packet> {
    let mut cut = PacketBatch::new();
    packet::segment(packet, &mut PacketPool::new(), &mut cut).expect("a large segment");
    cut.drain().collect()
}

/// The one packet that the actions send.
fn executed(rig: &mut Rig, packet: Packet, actions: &[DpAction]) -> Vec<Packet> {
    let key = key_of(1, packet.data());
    rig.execute(packet, key, actions.to_vec(), None);
    rig.sent();
    std::mem::take(&mut rig.io.packets)
}

/// The frames of a large segment, cut first: outer IPv4 headers count their identification within it.
fn pushed_apart(rig: &mut Rig, large: &Packet, actions: &[DpAction]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (part, n) in cut(large).into_iter().zip(0u16..) {
        let mut frame = executed(rig, part, actions).remove(0).data().to_vec();
        if frame[12..14] == [8, 0] && frame[23] == 17 {
            frame[18..20].copy_from_slice(&n.to_be_bytes());
            frame[24..26].fill(0);
            let sum = packet::checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frames.push(frame);
    }
    frames
}

/// Cut by the port, the frames are those of a cut before the push.
#[test]
fn large_segments_stay_whole_behind_outer_udp() {
    both(|rig| {
        let with_source = PUSHES.iter().map(|(actions, _)| parsed(actions));
        for actions in with_source.chain([parsed(&format!("{PUSH},2"))]) {
            if matches!(actions[0], DpAction::PushNsh(_)) {
                continue;
            }
            let sent = executed(rig, large(), &actions);
            let wanted = pushed_apart(rig, &large(), &actions);
            let text = format!("{actions:?}");
            let stays_whole = text.contains("Vxlan {") || text.contains("Geneve {");
            assert_eq!(sent.len(), if stays_whole { 1 } else { 3 }, "{actions:?}");
            if stays_whole {
                assert!(packet::is_tunneled(&sent[0]));
                assert!(cut(&sent[0]).iter().map(Packet::data).eq(&wanted), "{actions:?}");
            } else if !actions_count(&actions) {
                assert!(sent.iter().map(Packet::data).eq(&wanted), "{actions:?}");
            }
        }
    });
}

/// A large segment is cut before a network service header, or a label before Ethernet: inside of a tunnel, around it, and
/// without one.
#[test]
fn large_segments_are_cut_before_service_headers() {
    let nsh = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x5,si=255,c1=0x1,c2=0x2,c3=0x3,c4=0x4)";
    let eth = "push_eth(src=02:00:00:00:00:04,dst=02:00:00:00:00:03)";
    let inside =
        PUSHES.iter().map(|(actions, _)| actions.to_string()).filter(|text| text.starts_with("push_nsh"));
    let mut lists: Vec<_> = inside.collect();
    assert_eq!(lists.len(), 1);
    lists.extend([
        format!("{nsh},{eth},2"),
        format!("{PUSH},{nsh},{eth},2"),
        format!("{nsh},{eth},{nsh},{eth},2"),
        format!("add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),{eth},2"),
    ]);
    both(|rig| {
        for actions in &lists {
            let list = parsed(actions);
            let sent = executed(rig, large(), &list);
            assert_eq!(sent.len(), 3, "{actions}");
            for (n, part) in cut(&large()).into_iter().enumerate() {
                let wanted = executed(rig, part, &list).remove(0);
                let (got, mut wanted) = (sent[n].data(), wanted.data().to_vec());
                if actions.starts_with(PUSH) {
                    // Outer IPv4 headers count their identification.
                    let ip = 14 + 24 + 14;
                    wanted[ip + 4..ip + 6].copy_from_slice(&(n as u16).to_be_bytes());
                    wanted[ip + 10..ip + 12].fill(0);
                    let sum = packet::checksum::checksum(&wanted[ip..ip + 20]);
                    wanted[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
                }
                assert_eq!(got, wanted, "{actions}");
            }
        }
        // The whole one goes on behind another output.
        let list = parsed(&format!("3,{nsh},{eth},2"));
        rig.flow(1, large().data(), least_mask(), list);
        rig.receive_packets(1, vec![large()]);
        let mut sent: Vec<_> = rig.sent().into_iter().map(|(port, frame)| (port, frame.len())).collect();
        sent.sort_by_key(|(port, _)| *port);
        assert_eq!(sent, [(2, 1492), (2, 1492), (2, 1292), (3, 4054)]);
        assert_eq!(rig.drops(DropReason::BadAction), 0);
    });
}

/// Whether packets get sequence numbers.
fn actions_count(actions: &[DpAction]) -> bool {
    let text = format!("{actions:?}");
    text.contains("seq: true") || text.contains("Erspan {")
}

/// In order of arrival, with one source port of a flow, in several bridges.
#[test]
fn large_segments_keep_their_place() {
    both(|rig| {
        let small = udp(1, 2);
        rig.flow(1, large().data(), least_mask(), parsed(&format!("{PUSH},2,clone(3)")));
        rig.receive_packets(1, vec![Packet::from_slice(&small), large(), Packet::from_slice(&small)]);
        let sent = rig.sent();
        let on = |port: u32| sent.iter().filter(move |(p, _)| *p == port).map(|(_, f)| f.clone());
        assert_eq!(sent.len(), 6, "three packets on two ports");
        assert!(on(2).eq(on(3)));
        let inner: Vec<_> = on(2).map(|f| f[50..].to_vec()).collect();
        assert_eq!(inner, [small.clone(), large().data().to_vec(), small.clone()]);
        let ports: std::collections::BTreeSet<_> = on(2).map(|f| [f[34], f[35]]).collect();
        assert_eq!(ports.len(), 2, "a flow has one source port");
    });
}

/// A second tunnel, and a length beyond that of an IP packet.
#[test]
fn large_segments_are_cut_before_headers_that_hide_them() {
    both(|rig| {
        let twice = parsed(&format!("{PUSH},{PUSH},2"));
        let frames: Vec<_> = executed(rig, large(), &twice).iter().map(|p| p.data()[50..].to_vec()).collect();
        assert_eq!(frames, pushed_apart(rig, &large(), &parsed(&format!("{PUSH},2"))));
        for (bytes, whole) in [(65_499, true), (65_500, false)] {
            let mut long = large();
            let (o, mut frame) = (long.offload, long.data().to_vec());
            frame.resize(bytes, 7);
            frame[16..18].copy_from_slice(&(bytes as u16 - 14).to_be_bytes());
            long = Packet::from_slice(&frame);
            long.offload = o;
            let sent = executed(rig, long, &parsed(&format!("{PUSH},2")));
            assert_eq!(sent.len() == 1, whole, "{bytes}: {} frames", sent.len());
        }
    });
}

/// The large segments of outer UDP as which a port sends a large segment, as another one receives them.
fn datagrams(whole: &Packet) -> Vec<Packet> {
    let mut datagrams = packet::Datagrams::default();
    datagrams.split(whole).expect("a large segment in a tunnel");
    let mut parts = datagrams.parts(whole);
    let received = datagrams.runs().map(|(offload, count)| {
        let bytes: Vec<u8> = parts.by_ref().take(count).flatten().copied().collect();
        let mut packet = Packet::from_slice(&bytes);
        packet.offload = offload;
        packet
    });
    received.collect()
}

#[test]
fn popped_datagrams_are_one_large_segment_again() {
    both(|rig| {
        let whole = executed(rig, large(), &parsed(&format!("{PUSH},2"))).remove(0);
        let pop = parsed("tnl_pop(10)");
        // As it is, from a bridge of the same switch.
        rig.execute(whole.clone(), key_of(4, whole.data()), pop.clone(), None);
        let upcall = rig.io.upcalls.pop().expect("the inner packet");
        let wanted = Offload { csum_valid: true, ..large().offload };
        assert_eq!((upcall.packet.data(), upcall.packet.offload), (large().data(), wanted));
        rig.put(upcall.key, least_mask(), vec![out(1)]);
        rig.execute(upcall.packet, upcall.key, vec![out(1)], upcall.ticket);
        rig.io.packets.clear();

        let received = datagrams(&whole).remove(0);
        let inner = executed(rig, received.clone(), &pop);
        assert_eq!(inner.len(), 1);
        assert_eq!(cut(&inner[0]).iter().map(Packet::data).collect::<Vec<_>>(), {
            let wanted = cut(&large());
            wanted.iter().map(|p| p.data().to_vec()).collect::<Vec<_>>()
        });
        // With a wrong byte, each by itself.
        let mut wrong = received.clone();
        wrong.data_mut()[200] ^= 1;
        assert_eq!(executed(rig, wrong, &pop).len(), 3);
        // Another network in the datagrams behind the first one.
        let mut other = received;
        let second = 42 + usize::from(other.offload.gso_size);
        other.data_mut()[second + 6] ^= 1;
        assert_eq!(executed(rig, other, &pop).len(), 2);
        assert_eq!(rig.drops(DropReason::TunnelPop), 1);
    });
}

/// Offload metadata of a large segment that a device encapsulated describe the inner packet: they stay. Metadata of a
/// large segment of outer UDP end with its headers.
#[test]
fn offload_metadata_are_those_of_the_inner_or_of_the_outer_packet() {
    both(|rig| {
        let mut plain = large();
        let o = plain.offload;
        plain.offload = Offload::NONE;
        rig.flow(1, plain.data(), least_mask(), parsed(&format!("{PUSH},2")));
        rig.receive_packets(1, vec![plain]);
        let mut outer = Packet::from_slice(&rig.sent()[0].1);
        outer.offload = Offload { csum_start: 84, hdr_len: 104, ..o };
        let key = key_of(4, outer.data());
        rig.put(key, least_mask(), parsed("tnl_pop(10)"));
        rig.receive_packets(4, vec![outer]);
        let upcall = rig.io.upcalls.pop().expect("the inner packet");
        assert_eq!((upcall.packet.data(), upcall.packet.offload), (large().data(), o));

        // Two datagrams of one flow, merged by their sender.
        let small = udp(1, 2);
        rig.execute(Packet::from_slice(&small), key_of(1, &small), parsed(&format!("{PUSH},2")), None);
        let one = rig.sent().remove(0).1;
        let mut merged = one.clone();
        merged.extend(&one[42..]);
        let (ip, datagrams) = ((merged.len() - 14) as u16, (merged.len() - 34) as u16);
        merged[16..18].copy_from_slice(&ip.to_be_bytes());
        merged[38..40].copy_from_slice(&datagrams.to_be_bytes());
        merged[24..26].fill(0);
        let sum = packet::checksum::checksum(&merged[14..34]);
        merged[24..26].copy_from_slice(&sum.to_be_bytes());
        let mut merged = Packet::from_slice(&merged);
        merged.offload = Offload {
            needs_csum: true,
            csum_start: 34,
            csum_offset: 6,
            gso: GsoKind::UdpL4,
            gso_size: (one.len() - 42) as u16,
            hdr_len: 42,
            ..Offload::NONE
        };
        rig.receive_packets(4, vec![merged]);
        let upcall = rig.io.upcalls.pop().expect("the first inner packet");
        assert_eq!((upcall.packet.data(), upcall.packet.offload), (&small[..], Offload::NONE));
        rig.execute(upcall.packet, upcall.key, vec![out(1)], upcall.ticket);
        assert_eq!(rig.sent().len(), 1);
        assert_eq!(rig.io.upcalls.pop().expect("the second, which waited").packet.data(), &small[..]);
    });
}

/// Headers of tunnels within tunnels, up to the limit of the length.
#[test]
fn pushes_beyond_the_length_of_a_packet_are_dropped() {
    let actions = parsed(&format!("{PUSH},2"));
    for (payload, sent) in [(1400, 1), (65_485, 1), (65_486, 0), (65_535, 0)] {
        both(|rig| {
            let frame = eth(0x9999, &vec![7; payload]);
            rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions.clone(), None);
            assert_eq!((rig.sent().len(), rig.drops(DropReason::TunnelPush)), (sent, 1 - sent as u64));
        });
    }
}

#[test]
fn a_truncation_ends_at_a_push() {
    both(|rig| {
        let frame = udp(1, 2);
        rig.execute(
            Packet::from_slice(&frame),
            key_of(1, &frame),
            parsed(&format!("clone(trunc(20),{PUSH},2),3")),
            None,
        );
        let mut sent: Vec<_> = rig.sent().into_iter().map(|(port, frame)| (port, frame.len())).collect();
        sent.sort();
        assert_eq!(sent, [(2, 70), (3, frame.len())]);
    });
}

proptest! {
    /// A pop of any bytes yields a packet or a drop, with every packet accounted for.
    #[test]
    fn hostile_headers_are_popped_or_dropped(
        which in 0..super::tunnel_kinds::all_frames().len(),
        tunnel in 10..(10 + TunnelKind::ALL.len() as u32),
        changes in prop::collection::vec((0..90usize, any::<u8>()), 0..4),
        keep in 14..200usize,
        offload in prop::option::of((any::<u16>(), any::<u16>(), any::<u16>())),
        group: bool,
    ) {
        let mut frame = super::tunnel_kinds::all_frames().swap_remove(which);
        for (at, byte) in changes {
            if let Some(old) = frame.get_mut(at) {
                *old = byte;
            }
        }
        frame.truncate(keep);
        let mut packet = Packet::from_slice(&frame);
        if let Some((csum_start, csum_offset, gso_size)) = offload {
            let kinds = [GsoKind::None, GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::UdpL4];
            let gso = kinds[usize::from(gso_size % 4)];
            packet.offload = Offload {
                needs_csum: true,
                csum_start: csum_start % 256,
                csum_offset: csum_offset % 64,
                gso,
                gso_size,
                ..Offload::NONE
            };
        }
        let mut rig = Rig::with(|c| c.tuning.group = group);
        rig.execute(packet, key_of(1, &frame), parsed(&format!("tnl_pop({tunnel}),{PUSH},2")), None);
        let popped = rig.io.upcalls.len() as u64;
        prop_assert!(rig.drops(DropReason::TunnelPop) + popped >= 1);
    }
}

/// Headers whose source port is that of the inner packet, without a checksum of UDP.
const PLAIN_PUSH: &str = "tnl_push(tnl_port(10),header(size=50,type=4,eth(dst=02:00:00:00:00:03,src=02:00:00:00:00:04,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),out_port(3)),2";

proptest! {
    /// A group treats its packets as each of them alone is treated, whether they are usual ones or not.
    #[test]
    fn groups_push_and_pop_as_single_packets(
        all in prop::collection::vec(
            (
                prop_oneof![Just(0usize), 0..super::tunnel_kinds::all_frames().len()],
                prop::collection::vec((0..90usize, any::<u8>()), 0..3),
                prop_oneof![Just(2000usize), 14..200usize],
                any::<bool>(),
                any::<Option<bool>>(),
            ),
            1..6,
        ),
        which in 0..4usize,
    ) {
        let actions = [
            "tnl_pop(10)".to_string(),
            PLAIN_PUSH.to_string(),
            format!("set(eth(dst=02:00:00:00:00:09/0f:ff:00:ff:ff:ff)),set(ipv4(src=1.2.3.4,ttl=63)),{PLAIN_PUSH}"),
            format!("trunc(40),{PLAIN_PUSH}"),
        ];
        let packets: Vec<Packet> = all.into_iter().map(|(frame, changes, keep, mends, offload)| {
            let mut frame = super::tunnel_kinds::all_frames().swap_remove(frame);
            for (at, byte) in changes {
                if let Some(old) = frame.get_mut(at) {
                    *old = byte;
                }
            }
            frame.truncate(keep);
            if mends {
                mend(&mut frame);
            }
            let mut packet = Packet::from_slice(&frame);
            if let Some(csum_valid) = offload {
                packet.offload = Offload { csum_valid, needs_csum: !csum_valid, csum_start: 34, csum_offset: 6, ..Offload::NONE };
            }
            packet
        }).collect();
        let [groups, single] = [true, false].map(|group| {
            let mut rig = Rig::with(|c| c.tuning.group = group);
            let mut known = std::collections::BTreeSet::new();
            for packet in &packets {
                let key = key_of(1, packet.data());
                if known.insert((key.base.shape, key.base.dl_type)) {
                    rig.flow(1, packet.data(), least_mask(), parsed(&actions[which]));
                }
            }
            let copies = packets.iter().map(|p| {
                let mut copy = Packet::from_slice(p.data());
                copy.offload = p.offload;
                copy
            });
            rig.receive_packets(1, copies.collect());
            let upcalls: Vec<_> =
                rig.io.upcalls.drain(..).map(|u| (u.key, u.packet.data().to_vec(), u.packet.offload)).collect();
            (rig.sent(), upcalls, rig.pmd.stats().drops)
        });
        prop_assert_eq!(groups, single);
    }
}
