//! Outer headers: frames, and refusals, as Open vSwitch's userspace datapath has them.

use super::frames::{self, eth, tcp, udp};
use super::*;
use dpif::actions::parse_actions;
use dpif::text::NumbersOnly;
use flow::{Erspan, Tunnel, tunnel_flags};
use packet::{GsoKind, Offload};
use proptest::prelude::*;

/// A UDP datagram of Open vSwitch's records.
const INNER: &str = "50540000000750540000000508004504005c000000004011668b0a0000010a00000203e807d00048fb9f000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

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

/// The same for a packet without its Ethernet header. The UDP checksum of OVS's GTP-U leaves the length of the message out,
/// so that receivers drop it; these are right. Segment routing, which OVS 3.1 lacks, is as RFC 8754 has it.
const BARE_PUSHES: [(&str, &str); 6] = [
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

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn parsed(actions: &str) -> Vec<DpAction> {
    parse_actions(actions, &NumbersOnly).expect(actions)
}

/// Entry `n` of [`PUSHES`] without its output.
pub(super) fn push(n: usize) -> DpAction {
    parsed(PUSHES[n].0).swap_remove(0)
}

fn both(mut check: impl FnMut(&mut Rig)) {
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
        for (actions, frame) in [with(&PUSHES, &inner), with(&BARE_PUSHES, &inner[14..])].concat() {
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
    with_options[24..26].fill(0);
    let sum = packet::checksum::checksum(&with_options[14..38]);
    with_options[24..26].copy_from_slice(&sum.to_be_bytes());
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
    vec![
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
        ("gre on the port of erspan", of_gre(0x2000, &[456]), 14, tunnel(456, key)),
        ("gpe with a frame", of_udp(4789, 0, &vxlan(0x0c00_0003, 0)), 10, udp_of(4789, tunnel(0x7b, key))),
        ("gpe with MPLS", of_udp(4789, 0, &vxlan(0x0c00_0005, 0)), 10, None),
        ("gpe of control", of_udp(4789, 0, &vxlan(0x0d00_0003, 0)), 10, None),
        ("gpe of another version", of_udp(4789, 0, &vxlan(0x1c00_0003, 0)), 10, None),
        ("gpe without a VNI", of_udp(4789, 0, &vxlan(0x0400_0003, 0)), 10, None),
        ("an unknown tunnel", of_udp(4789, 0, &vxlan(1 << 27, 0)), 99, None),
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
            assert_eq!(upcall.packet.data(), bytes(INNER), "{name}");
            assert_eq!((upcall.key.tunnel, upcall.rx_port), (wanted, DpPort(1)), "{name}");
            // Tunnels in GRE are told apart by its protocol.
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

/// Outer headers before packets without Ethernet: the packet type, offset of the packet, key, GTP-U's flags and type.
#[test]
fn bare_packets_are_popped_with_their_type() {
    let ip = &bytes(INNER)[14..];
    let ip6 = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[1; 32]].concat();
    let of_udp = |dst: u16, header: &[u8], inner: &[u8]| {
        let mut l4 = [5000, dst, (8 + header.len() + inner.len()) as u16, 0].map(u16::to_be_bytes).concat();
        l4.extend([header, inner].concat());
        frames::ipv4(17, frames::SRC, frames::DST, 0x4000, &l4)
    };
    let gtpu = |flags: u8, kind: u8, more: &[u8], inner: &[u8]| {
        let [a, b] = ((more.len() + inner.len()) as u16).to_be_bytes();
        of_udp(2152, &[&[flags, kind, a, b, 0, 0x12, 0x34, 0x56][..], more].concat(), inner)
    };
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
    let too_long = {
        let mut frame = gtpu(0x30, 255, &[], ip);
        frame[45] += 1;
        frame
    };
    let (v4, v6) = (Some(0x1_0800), Some(0x1_86dd));
    for (name, frame, port, packet_type, at, id, of_gtpu) in [
        ("gtpu", gtpu(0x30, 255, &[], ip), 16, v4, 50, 0x12_3456, (0x30, 255)),
        ("gtpu with IPv6", gtpu(0x30, 255, &[], &ip6), 16, v6, 50, 0x12_3456, (0x30, 255)),
        ("gtpu with a number", gtpu(0x32, 255, &[0, 1, 0, 0], ip), 16, v4, 54, 0x12_3456, (0x32, 255)),
        ("gtpu with an N-PDU", gtpu(0x31, 255, &[0, 0, 7, 0], ip), 16, v4, 54, 0x12_3456, (0x31, 255)),
        (
            "gtpu with extensions",
            gtpu(0x34, 255, &[0, 0, 0, 0x85, 1, 0, 0, 0xc0, 2, 0, 0, 0, 0, 0, 0, 0], ip),
            16,
            v4,
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
        ("gre", gre(0x0800, ip), 12, v4, 42, 9, (0, 0)),
        ("gre with IPv6", gre(0x86dd, &ip6), 12, v6, 42, 9, (0, 0)),
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
        ("srv6", srv6(43, &[4, 2, 4, 0], ip), 17, v4, 78, 0, (0, 0)),
        ("srv6 with IPv6", srv6(43, &[41, 2, 4, 0], &ip6), 17, v6, 78, 0, (0, 0)),
        ("srv6 without a routing header", srv6(4, &[], ip), 17, v4, 54, 0, (0, 0)),
        ("srv6 on its way", srv6(43, &[4, 2, 4, 1], ip), 17, None, 0, 0, (0, 0)),
        ("another routing header", srv6(43, &[4, 2, 2, 0], ip), 17, None, 0, 0, (0, 0)),
        ("two headers before the packet", srv6(60, &[43, 2, 4, 0], ip), 17, None, 0, 0, (0, 0)),
        ("srv6 with UDP", srv6(43, &[17, 2, 4, 0], ip), 17, None, 0, 0, (0, 0)),
        ("srv6 of another version", srv6(43, &[4, 2, 4, 0], &ip6), 17, None, 0, 0, (0, 0)),
        ("srv6 over IPv4", frames::ipv4(4, frames::SRC, frames::DST, 0, ip), 17, None, 0, 0, (0, 0)),
        ("gpe", gpe(1, ip), 10, v4, 50, 5, (0, 0)),
        ("gpe with IPv6", gpe(2, &ip6), 10, v6, 50, 5, (0, 0)),
    ] {
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
fn large() -> Packet {
    let mut frame = tcp(1000, 80);
    frame.truncate(54);
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

/// The segments of a large one are cut once, before the headers; popped, they are what software cuts from it.
#[test]
fn large_segments_are_cut_before_outer_headers() {
    both(|rig| {
        let mut cut = PacketBatch::new();
        packet::segment(&large(), &mut PacketPool::new(), &mut cut).expect("a large segment");
        let wanted: Vec<_> = cut.packets().iter().map(|p| p.data().to_vec()).collect();
        let small = udp(1, 2);
        rig.flow(1, large().data(), least_mask(), parsed(&format!("{PUSH},2,clone(3)")));
        rig.receive_packets(1, vec![Packet::from_slice(&small), large(), Packet::from_slice(&small)]);
        let sent = rig.sent();
        let on = |port: u32| sent.iter().filter(move |(p, _)| *p == port).map(|(_, f)| f.clone());
        assert_eq!(sent.len(), 10, "five packets on two ports");
        assert!(on(2).eq(on(3)));
        assert_eq!(on(2).next().map(|f| f[50..].to_vec()), Some(small.clone()), "in order of arrival");
        assert!(on(2).skip(1).take(3).map(|f| f[50..].to_vec()).eq(wanted.clone()));
        let ports: std::collections::BTreeSet<_> = on(2).map(|f| [f[34], f[35]]).collect();
        assert_eq!(ports.len(), 2, "the segments of a flow have one source port");

        let outer: Vec<_> = on(2).collect();
        rig.flow(4, &outer[0], least_mask(), parsed("tnl_pop(10)"));
        rig.receive(4, &outer);
        let upcalls: Vec<_> = std::mem::take(&mut rig.io.upcalls);
        assert_eq!(upcalls.len(), 2, "the segments of a flow wait behind the first");
        rig.put(upcalls[0].key, least_mask(), vec![out(1)]);
        let key = upcalls[1].key;
        rig.put(key, least_mask(), vec![out(1)]);
        for upcall in upcalls {
            rig.execute(upcall.packet, upcall.key, vec![out(1)], upcall.ticket);
        }
        assert_eq!(rig.sent().len(), 5);
    });
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

/// Offload metadata of a large segment that a device encapsulated describe the inner packet: they stay. Those of a
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
        which in 0..pops().len(),
        tunnel in 10..(10 + TunnelKind::ALL.len() as u32),
        changes in prop::collection::vec((0..90usize, any::<u8>()), 0..4),
        keep in 14..200usize,
        offload in prop::option::of((any::<u16>(), any::<u16>(), any::<u16>())),
        group: bool,
    ) {
        let mut frame = pops().swap_remove(which).1;
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
