//! Composed frames: equal to those of the stock switch byte by byte, and parsed back into their flow.

use super::*;
use crate::extract::{Metadata, extract};
use crate::text::{NoPortNames, parse_exact_flow};
use crate::{FLOW_WORDS, FlowKey, OfPort};
use packet::checksum;
use proptest::prelude::*;

const ETH: &str = "dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
const ETH_HEX: &str = "020000000002020000000001";
const V4: &str = "nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64";
const V6: &str = "ipv6_src=fe80::1,ipv6_dst=fe80::2";
const V6_HEX: &str = "fe800000000000000000000000000001fe800000000000000000000000000002";
/// The counted payload.
const COUNTED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
                       202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

fn flow(text: &str) -> Flow {
    parse_exact_flow(&format!("{text},{ETH}"), &NoPortNames).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|b| format!("{b:02x}")).collect()
}

fn reread(frame: &[u8]) -> Flow {
    let mut key = FlowKey::default();
    extract(frame, &Metadata::default(), 2, &mut key);
    key.to_flow(OfPort::NONE)
}

/// The frame of `text` is the Ethernet addresses, `expect`, and the counted payload if `payload`.
fn check(text: &str, expect: &str, payload: bool) {
    let flow = flow(text);
    let frame = compose(&flow, Payload::default());
    let expect = format!("{ETH_HEX}{expect}{}", if payload { COUNTED } else { "" });
    assert_eq!(hex(&frame), expect, "{text}");
    assert_eq!(reread(&frame), flow, "{text}");
}

#[test]
fn ipv4_frames_are_those_of_the_stock_switch() {
    for (text, expect, payload) in [
        (
            "tcp,nw_tos=16,tp_src=1234,tp_dst=80,tcp_flags=syn",
            "08004510002800000000400666be0a0000010a00000204d2005000000000000000005002000096be0000",
            false,
        ),
        (
            "tcp,tp_src=1234,tp_dst=80,tcp_flags=0x118",
            "0800450000680000000040066 68e0a0000010a00000204d20050000000000000000051180000b1640000",
            true,
        ),
        (
            "tcp,tp_src=1234,tp_dst=80,tcp_flags=rst",
            "08004500002800000000400666ce0a0000010a00000204d2005000000000000000005004000096bc0000",
            false,
        ),
        ("udp,tp_src=1234,tp_dst=80", "08004500005c000000004011668f0a0000010a00000204d2005000480236", true),
        (
            "icmp,icmp_type=8,icmp_code=0",
            "08004500005c000000004001669f0a0000010a000002080013fc00000000",
            true,
        ),
        (
            "icmp,icmp_type=3,icmp_code=1",
            "08004500001c00000000400166df0a0000010a0000020301fcfe00000000",
            false,
        ),
        ("ip,nw_proto=2", "08004500001c00000000400266de0a0000010a0000020000ffff00000000", false),
        ("ip,nw_proto=47", "08004500001400000000402f66b90a0000010a000002", false),
        (
            "tcp,nw_frag=first,tp_src=1,tp_dst=2",
            "080045000068000020004006468e0a0000010a00000200010002000000000000000050000000b79b0000",
            true,
        ),
        ("tcp,nw_frag=later", "080045000014000020644006467e0a0000010a000002", false),
    ] {
        check(&format!("{text},{V4}"), &expect.replace(' ', ""), payload);
    }
}

#[test]
fn ipv6_frames_are_those_of_the_stock_switch() {
    for (text, head, rest, payload) in [
        (
            "tcp6,nw_tos=112,nw_ttl=128,ipv6_label=0x12345,tp_src=1,tp_dst=2,tcp_flags=ack",
            "86dd6701234500540680",
            "00010002000000000000000050100000ce890000",
            true,
        ),
        ("udp6,nw_ttl=128,tp_src=1,tp_dst=2", "86dd6000000000481180", "0001000200481e53", true),
        ("icmp6,nw_ttl=128,icmp_type=128,icmp_code=0", "86dd6000000000483a80", "80009e7400000000", true),
        ("icmp6,nw_ttl=255,icmp_type=1,icmp_code=4", "86dd6000000000083aff", "010401b500000000", false),
        (
            "icmp6,nw_ttl=255,icmp_type=135,icmp_code=0,nd_target=fe80::2,nd_sll=02:00:00:00:00:01,nd_options_type=1",
            "86dd6000000000203aff",
            "87007a1b00000000fe8000000000000000000000000000020101020000000001",
            false,
        ),
        (
            "icmp6,nw_ttl=255,icmp_type=136,icmp_code=0,nd_target=fe80::2,nd_tll=02:00:00:00:00:01,nd_options_type=2",
            "86dd6000000000203aff",
            "8800781b00000000fe8000000000000000000000000000020201020000000001",
            false,
        ),
        (
            "icmp6,nw_ttl=255,icmp_type=135,icmp_code=0,nd_reserved=0x01020304,nd_options_type=1",
            "86dd6000000000203aff",
            "8700769901020304000000000000000000000000000000000101000000000000",
            false,
        ),
        (
            "icmp6,nw_ttl=255,icmp_type=135,icmp_code=0",
            "86dd6000000000183aff",
            "87007ba8000000000000000000000000000000\
          0000000000",
            false,
        ),
        ("ipv6,nw_ttl=255,nw_proto=47", "86dd6000000000002fff", "", false),
    ] {
        check(&format!("{text},{V6}"), &format!("{head}{V6_HEX}{rest}"), payload);
    }
}

#[test]
fn other_frames_are_those_of_the_stock_switch() {
    let arp = "arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_op=1,arp_sha=02:00:00:00:00:01";
    let arp_hex = "08060001080006040001\
                   0200000000010a0000010000000000000a000002";
    check(arp, arp_hex, false);
    check(&format!("{arp},dl_vlan=10,dl_vlan_pcp=3"), &format!("8100600a{arp_hex}"), false);
    check("dl_type=0x1234", "1234", false);
    check("dl_type=0x1234,dl_vlan=10,dl_vlan_pcp=3", "8100600a1234", false);
    check("dl_type=0x5ff", "000e", false);
    check("dl_type=0x8847,mpls_label=100,mpls_tc=3,mpls_ttl=64,mpls_bos=1", "884700064740", false);
    check(
        "dl_type=0x8847,mpls_label=100,mpls_tc=3,mpls_ttl=64,mpls_bos=0",
        "8847000646400000000000000000",
        false,
    );
}

#[test]
fn lengths_asked_for_are_filled_with_zeros_inside_the_packet() {
    let tcp = flow(&format!("tcp,tp_src=1234,tp_dst=80,{V4}"));
    // The stock switch (3.1) writes a too large UDP length; all else is equal.
    let cases = [
        (tcp, "08004500005600000000400666a00a0000010a00000204d2005000000000000000005000000096920000", 100),
        (
            flow(&format!("udp,tp_src=1234,tp_dst=80,{V4}")),
            "08004500007200000000401166790a0000010a00000204d20050005ee60d",
            128,
        ),
        (flow(&format!("tcp,nw_frag=later,{V4}")), "080045000072000020644006 46200a0000010a000002", 128),
        (flow("dl_type=0x5ff"), "0040", 64),
        (flow("dl_type=0x1234"), "1234", 64),
    ];
    for (flow, head, bytes) in cases {
        let frame = compose_sized(&flow, bytes).unwrap();
        let mut expect = format!("{ETH_HEX}{}", head.replace(' ', ""));
        expect.extend(std::iter::repeat_n('0', 2 * bytes - expect.len()));
        assert_eq!(hex(&frame), expect);
        assert_eq!(reread(&frame), flow);
    }
    let nd = "icmp6,icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:01";
    let mut nd = flow(&format!("{nd},{V6}"));
    nd.arp_sha = [2, 0, 0, 0, 0, 1];
    assert_eq!(compose_sized(&nd, 64), Err(SizeError::BelowHeaders(94)));
    assert_eq!(compose_sized(&nd, 94).map(|f| f.len()), Ok(94));
    assert_eq!(compose_sized(&nd, 59), Err(SizeError::BelowMinimum));
    assert_eq!(compose_sized(&nd, 65536), Err(SizeError::AboveMaximum));
    assert_eq!(compose_sized(&tcp, 65535).map(|f| reread(&f)), Ok(tcp));
}

#[test]
fn payload_is_as_given() {
    let udp = flow(&format!("udp,tp_src=1,tp_dst=2,{V4}"));
    assert_eq!(compose(&udp, Payload::Bytes(b"hello"))[42..], *b"hello");
    assert_eq!(compose(&udp, Payload::Counted(300)).len(), 342);
    assert_eq!(compose(&udp, Payload::Counted(usize::MAX)).len(), MAX_FRAME_BYTES);
    let syn = flow(&format!("tcp,tcp_flags=syn,{V4}"));
    assert_eq!(compose(&syn, Payload::Bytes(b"hello")).len(), 54);
}

#[test]
fn fragments_of_ipv6_have_their_header() {
    let text = format!("udp6,nw_ttl=9,tp_src=1,tp_dst=2,{V6}");
    for (frag, header) in [("first", "1100000100000000"), ("later", "1100032100000000")] {
        let text = format!("{text},nw_frag={frag}");
        let mut flow = flow(&text);
        if frag == "later" {
            (flow.tp_src, flow.tp_dst) = (0, 0);
        }
        let frame = compose(&flow, Payload::default());
        if frag == "later" {
            flow.nw_proto = h::IPPROTO_FRAGMENT;
        }
        assert_eq!(frame[20], h::IPPROTO_FRAGMENT);
        assert_eq!(hex(&frame[54..62]), header);
        assert_eq!(reread(&frame), flow);
    }
}

#[test]
fn sctp_has_its_crc32c() {
    let frame = compose(&flow(&format!("sctp,tp_src=1234,tp_dst=80,{V4}")), Payload::default());
    let mut covered = frame[34..].to_vec();
    covered[8..12].fill(0);
    assert_eq!(covered.len(), h::SCTP_HEADER_BYTES);
    assert_eq!(frame[42..46], packet::crc32c(&covered).to_le_bytes());
}

#[test]
fn datapath_keys_become_frames() {
    let flow = flow(&format!("udp,tp_src=1,tp_dst=2,{V4}"));
    let key = FlowKey::from_flow(&flow, crate::DpPort(1));
    assert_eq!(frame_of_key(&key, None), Ok(compose(&flow, Payload::default())));
    assert_eq!(frame_of_key(&key, Some(200)), compose_sized(&flow, 200));
}

/// Sums over a whole packet with its checksum give all ones.
fn checksums_valid(frame: &[u8], flow: &Flow) -> bool {
    let mut key = FlowKey::default();
    let layout = extract(frame, &Metadata::default(), 2, &mut key);
    let (l3, l4) = (usize::from(layout.l3), usize::from(layout.l4));
    if l4 >= frame.len() {
        return true;
    }
    let v4 = flow.dl_type == h::ETH_TYPE_IP;
    let pseudo = match (flow.nw_proto, v4) {
        (h::IPPROTO_TCP | h::IPPROTO_UDP, true) => {
            let (src, dst) = (flow.nw_src.to_be_bytes(), flow.nw_dst.to_be_bytes());
            checksum::pseudo(&src, &dst, flow.nw_proto, frame.len() - l4)
        }
        (h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_ICMPV6, false) => {
            checksum::pseudo(&flow.ipv6_src, &flow.ipv6_dst, flow.nw_proto, frame.len() - l4)
        }
        (h::IPPROTO_ICMP | h::IPPROTO_IGMP, true) => 0,
        _ => return true,
    };
    let header = if v4 { checksum::fold(checksum::sum(&frame[l3..l3 + 20], 0)) } else { 0xffff };
    (header, checksum::fold(checksum::sum(&frame[l4..], pseudo))) == (0xffff, 0xffff)
}

proptest! {
    #[test]
    fn a_parsed_frame_survives_rewriting(
        mut bytes in prop::collection::vec(any::<u8>(), 12..160),
        kind in 0usize..8,
        proto in prop::sample::select(vec![0u8, 1, 2, 6, 17, 43, 44, 47, 51, 58, 60, 132]),
        nd in prop::sample::select(vec![1u8, 8, 135, 136]),
        limit in 0u8..=2,
        size in 60usize..300,
    ) {
        let types: [[u8; 2]; 8] =
            [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], [0x88, 0x47], [0, 60], [0x88, 0xa8], [0x80, 0x35]];
        if bytes.len() > 56 {
            bytes[12..14].copy_from_slice(&types[kind]);
            let all = bytes.len();
            match kind {
                0 => {
                    bytes[14..18].copy_from_slice(&[0x45, 0, 0, (all - 14) as u8]);
                    bytes[20] &= 0xe0;
                    bytes[23] = proto;
                    bytes[34] = nd;
                }
                1 => {
                    bytes[14] = 0x60;
                    bytes[18..20].copy_from_slice(&[0, (all - 54) as u8]);
                    bytes[20] = proto;
                    bytes[54..56].copy_from_slice(&[nd, 0]);
                }
                2 => bytes[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]),
                3 | 6 if all > 60 => bytes[16..20].copy_from_slice(&[0x81, 0, 0, 1]),
                _ => {}
            }
        }
        let mut key = FlowKey::default();
        extract(&bytes, &Metadata::default(), limit, &mut key);
        let flow = key.to_flow(OfPort::NONE);
        let frame = compose(&flow, Payload::default());
        prop_assert_eq!(reread(&frame), flow);
        prop_assert!(checksums_valid(&frame, &flow));
        // Zeros after a tag's EtherType would be a tag, after ND options an error.
        let vlan = [h::ETH_TYPE_VLAN, h::ETH_TYPE_VLAN_8021AD].contains(&flow.dl_type);
        if let (Ok(frame), false, false) = (compose_sized(&flow, size), vlan, flow.nw_proto == 58) {
            prop_assert_eq!(frame.len(), size);
            prop_assert_eq!(reread(&frame), flow);
            prop_assert!(checksums_valid(&frame, &flow));
        }
    }

    #[test]
    fn any_flow_gives_a_frame(words in prop::collection::vec(any::<u64>(), FLOW_WORDS), dl_type in 0usize..6, len in 0usize..70_000) {
        let mut flow = Flow::from_words(words.try_into().unwrap());
        flow.dl_type = [0x800, 0x86dd, 0x806, 0x8847, 0x5ff, flow.dl_type][dl_type];
        let frame = compose(&flow, Payload::Counted(len));
        let least = if flow.packet_type == 0 { 14 } else { 0 };
        prop_assert!((least..=MAX_FRAME_BYTES).contains(&frame.len()));
        if let Ok(frame) = compose_sized(&flow, len) {
            prop_assert_eq!(frame.len(), len);
        }
    }
}
