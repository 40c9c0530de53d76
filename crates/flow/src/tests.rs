//! Tests of the registry, of flows and keys, and of extraction.

use crate::extract::{Layout, Metadata, extract};
use crate::fields::{ALL_FIELDS, FieldId};
use crate::*;
use proptest::prelude::*;

fn key_of(frame: &[u8]) -> (FlowKey, Layout) {
    let mut key = FlowKey::default();
    let layout = extract(frame, &Metadata { in_port: 3, ..Metadata::default() }, 1, &mut key);
    (key, layout)
}

fn tcp_frame() -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    f.extend([0x45, 0x10, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend([0x04, 0xd2, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x12, 1, 0, 0, 0, 0, 0]);
    f
}

#[test]
fn registry_rows_are_consistent() {
    for f in ALL_FIELDS {
        let d = f.def();
        assert_eq!(FieldId::by_name(d.name), Some(*f), "{}", d.name);
        assert!(u32::from(d.bits) <= u32::from(d.wire_bytes) * 8, "{}", d.name);
        for id in [d.nxm, d.oxm.map(|o| o.0)].into_iter().flatten() {
            assert_eq!(FieldId::by_oxm(id), Some(*f), "{} {id:?}", d.name);
        }
        if let Some(alias) = d.alias {
            assert_eq!(FieldId::by_name(alias), Some(*f));
        }
    }
}

#[test]
fn tcp_packet_is_extracted() {
    let (key, layout) = key_of(&tcp_frame());
    assert_eq!(layout, Layout { l3: 14, l4: 34 });
    let flow = key.to_flow(OfPort(7));
    let expect = [
        (FieldId::InPort, 7),
        (FieldId::EthSrc, 0x0200_0000_0001),
        (FieldId::EthDst, 0x0200_0000_0002),
        (FieldId::EthType, 0x800),
        (FieldId::IpSrc, 0x0a00_0001),
        (FieldId::IpDst, 0x0a00_0002),
        (FieldId::NwProto, 6),
        (FieldId::NwTos, 0x10),
        (FieldId::NwTtl, 64),
        (FieldId::TcpSrc, 1234),
        (FieldId::TcpDst, 80),
        (FieldId::TcpFlags, 0x12),
    ];
    for (field, value) in expect {
        assert_eq!(field.get(&flow), value, "{field:?}");
        assert!(field.prereq_holds(&flow, None), "{field:?}");
    }
    assert!(!FieldId::UdpSrc.prereq_holds(&flow, None));
}

#[test]
fn vlan_tag_is_parsed_once_and_the_second_is_an_ethertype() {
    let mut f = tcp_frame();
    f.splice(12..12, [0x81, 0, 0xa0, 5, 0x81, 0, 0, 6]);
    let (key, _) = key_of(&f);
    assert_eq!((key.base.vlan_tpid, key.base.vlan_tci), (0x8100, 0xb005));
    assert_eq!(key.base.dl_type, 0x8100);
    let mut two = FlowKey::default();
    extract(&f, &Metadata::default(), 2, &mut two);
    assert_eq!(two.arp.vlan1, VlanTag { tpid: 0x8100, tci: 0x1006 });
    assert_eq!(two.base.dl_type, 0x800);
}

#[test]
fn neighbour_solicitation_is_extracted() {
    let mut f = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    f.extend([0x60, 0, 0, 0, 0, 32, 58, 255]);
    f.extend([0xfe; 16]);
    f.extend([0xff; 16]);
    f.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    f.extend([0xab; 16]);
    f.extend([1, 1, 9, 8, 7, 6, 5, 4]);
    let (key, layout) = key_of(&f);
    assert_eq!(layout.l4, 54);
    let flow = key.to_flow(OfPort(1));
    assert_eq!(FieldId::Icmpv6Type.get(&flow), 135);
    assert_eq!(flow.nd_target, [0xab; 16]);
    assert_eq!(FieldId::NdSll.get(&flow), 0x0908_0706_0504);
    assert!(FieldId::NdSll.prereq_holds(&flow, None));
    assert_eq!(FlowKey::from_flow(&flow, DpPort(3)), key);
}

/// As in Debian's switch: options after an invalid length are ignored, a repeated one voids all fields.
#[test]
fn odd_options_of_neighbour_discovery() {
    let target_of = |options: &[u8]| {
        let mut f = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
        f.extend([0x60, 0, 0, 0, 0, 24 + options.len() as u8, 58, 255]);
        f.extend([[0xfe; 16], [0xff; 16]].as_flattened());
        f.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        f.extend([0xab; 16]);
        f.extend(options);
        let flow = key_of(&f).0.to_flow(OfPort(1));
        (flow.nd_target[0], FieldId::NdSll.get(&flow))
    };
    let sll = [1, 1, 0, 0, 0, 0, 0, 5];
    assert_eq!(target_of(&[]), (0xab, 0));
    assert_eq!(target_of(&[&sll[..], &[90; 11]].concat()), (0xab, 5));
    assert_eq!(target_of(&[&sll[..], &[3, 0, 0, 0, 0, 0, 0, 0]].concat()), (0xab, 5));
    assert_eq!(target_of(&[3, 0, 0, 0, 0, 0, 0, 0]), (0xab, 0));
    assert_eq!(target_of(&[&sll[..], &sll[..]].concat()), (0, 0));
}

/// As in Debian's switch.
#[test]
fn odd_lengths_of_ip_headers() {
    let of_v4 = |change: fn(&mut Vec<u8>)| {
        let mut f = tcp_frame();
        change(&mut f);
        let (key, _) = key_of(&f);
        (key.base.nw_proto, key.base.tp_dst)
    };
    assert_eq!(of_v4(|f| f[14] = 0x65), (6, 80), "the version is not looked at");
    assert_eq!(of_v4(|f| f[14] = 0x44), (0, 0), "a header of 16 bytes");
    assert_eq!(of_v4(|f| f[17] = 0), (0, 0), "a packet of no bytes");
    assert_eq!(of_v4(|f| f[17] = 19), (0, 0), "a packet shorter than its header");
    assert_eq!(of_v4(|f| f[17] = 41), (0, 0), "a packet longer than its frame");
    assert_eq!(of_v4(|f| f[17] = 39), (6, 0), "a cut TCP header");
    assert_eq!(of_v4(|f| f[46] = 0x40), (6, 0), "a TCP header of 16 bytes");
    assert_eq!(of_v4(|f| f[46] = 0x60), (6, 0), "TCP options beyond the packet");
    let of_v6 = |payload_bytes: u8| {
        let mut f = tcp_frame();
        f[12..14].copy_from_slice(&[0x86, 0xdd]);
        let mut ip = vec![0x60, 0, 0, 0, 0, payload_bytes, 6, 64];
        ip.extend([0xfd; 32]);
        f.splice(14..34, ip);
        let (key, _) = key_of(&f);
        (key.base.nw_proto, key.base.tp_dst)
    };
    assert_eq!([of_v6(20), of_v6(0), of_v6(21)], [(6, 80), (6, 0), (0, 0)]);
}

#[test]
fn later_fragments_have_no_ports() {
    let mut f = tcp_frame();
    f[20] = 0x20;
    assert_eq!(key_of(&f).0.base.nw_frag, nw_frag::ANY);
    assert_eq!(key_of(&f).0.base.tp_dst, 80);
    f[21] = 1;
    assert_eq!(key_of(&f).0.base.nw_frag, nw_frag::ANY | nw_frag::LATER);
    assert_eq!(key_of(&f).0.base.tp_dst, 0);
}

#[test]
fn later_fragments_of_ipv6_have_the_protocol_of_the_fragment_header() {
    // As in OVS and the kernel datapath, also after another extension header.
    let frame = |first: u8, headers: &[u8]| {
        let mut f = tcp_frame()[..12].to_vec();
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, headers.len() as u8 + 20, first, 64]);
        f.extend([0xfe; 32]);
        f.extend(headers);
        f.extend([0, 1, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        f
    };
    for (f, proto, frag, tp_dst) in [
        (frame(44, &[6, 0, 0, 1, 0, 0, 0, 9]), 6, nw_frag::ANY, 80),
        (frame(44, &[6, 0, 0, 81, 0, 0, 0, 9]), 44, nw_frag::MASK, 0),
        (frame(44, &[17, 0, 0, 80, 0, 0, 0, 9]), 44, nw_frag::MASK, 0),
        (frame(60, &[44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 81, 0, 0, 0, 9]), 44, nw_frag::MASK, 0),
        (frame(44, &[60, 0, 0, 81, 0, 0, 0, 9, 6, 0, 1, 4, 0, 0, 0, 0]), 44, nw_frag::MASK, 0),
        (frame(44, &[6, 0, 0, 0, 0, 0, 0, 9]), 6, 0, 80),
    ] {
        let b = key_of(&f).0.base;
        assert_eq!((b.nw_proto, b.nw_frag, b.tp_dst), (proto, frag, tp_dst));
    }
}

#[test]
fn ports_convert_between_16_and_32_bits() {
    for p in [OfPort(1), OfPort(0xfeff), OfPort::LOCAL, OfPort::IN_PORT, OfPort::NONE] {
        assert_eq!(OfPort::from_of10(p.to_of10().unwrap()), p);
    }
    assert_eq!(OfPort(0x1_0000).to_of10(), None);
    assert_eq!(OfPort::from_of10(0xfffe), OfPort::LOCAL);
}

proptest! {
    #[test]
    fn fields_read_back_what_was_written(i in 0..ALL_FIELDS.len(), value: u128) {
        let field = ALL_FIELDS[i];
        // Without mappings there is no place for tunnel metadata.
        let full = if field.metadata_index().is_some() { 0 } else { field.full_mask() };
        let mut flow = Flow::default();
        let value = value & full;
        let value = if field == FieldId::NwTos { value & 0xfc } else { value };
        field.set(&mut flow, value);
        prop_assert_eq!(field.get(&flow), value);
    }

    #[test]
    fn any_bytes_are_extracted_and_survive_the_slow_path(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..8) {
        let types: [[u8; 2]; 8] = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], [0x88, 0x47], [0, 60], [0x88, 0xa8], [8, 0]];
        if bytes.len() > 16 {
            bytes[12..14].copy_from_slice(&types[kind]);
            if kind == 0 { bytes[14] = 0x45; bytes[16] = 0; }
            if kind == 1 { bytes[14] = 0x60; }
        }
        for limit in 0..=2 {
            let mut key = FlowKey::default();
            let md = Metadata { in_port: 9, ..Metadata::default() };
            extract(&bytes, &md, limit, &mut key);
            let back = FlowKey::from_flow(&key.to_flow(OfPort(1)), DpPort(9));
            prop_assert_eq!(back, key);
            let exact = Mask(Flow::from_words([u64::MAX; FLOW_WORDS]));
            let mask = FlowKey::from_mask(&exact, &key);
            prop_assert!(key.masked(&mask).matches(&mask, &key));
        }
    }

    #[test]
    fn a_reused_key_equals_a_fresh_one(a in prop::collection::vec(any::<u8>(), 14..120), b in prop::collection::vec(any::<u8>(), 14..120)) {
        let mut reused = FlowKey::default();
        extract(&a, &Metadata { skb_priority: 5, ..Metadata::default() }, 2, &mut reused);
        extract(&b, &Metadata::default(), 2, &mut reused);
        let mut fresh = FlowKey::default();
        extract(&b, &Metadata::default(), 2, &mut fresh);
        prop_assert_eq!(reused, fresh);
    }
}

#[test]
fn the_corpus_of_extract_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/extract");
    testkit::replay_corpus(folder, crate::fuzz::extract_frame);
}

#[test]
fn the_corpus_of_words_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/words");
    testkit::replay_corpus(folder, crate::fuzz::parse_words);
}

#[test]
fn ranges_beyond_every_field_are_no_ranges() {
    use crate::SubField;
    let mut flow = Flow::default();
    for (offset_bits, len_bits) in
        [(u16::MAX, u16::MAX), (u16::MAX, 1), (1, u16::MAX), (128, 1), (0, 0), (31, 2)]
    {
        let range = SubField { field: FieldId::Reg0, offset_bits, len_bits };
        assert!(!range.is_valid(), "{range:?}");
        // And its use does not panic.
        let _ = range.get(&flow);
        range.set(&mut flow, u128::MAX);
        range.add_mask(&mut flow);
    }
    assert!(SubField { field: FieldId::Reg0, offset_bits: 31, len_bits: 1 }.is_valid());
}
