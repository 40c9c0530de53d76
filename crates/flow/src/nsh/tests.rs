use super::*;
use crate::compose::{Payload, compose};
use crate::extract::{Layout, Metadata, extract, extract_typed};
use crate::key::shape;

/// `push_nsh(flags=1,ttl=62,mdtype=1,np=3,spi=0x123456,si=250,c1=0x1,c2=0x2,c3=0x3,c4=0x4)`, as in RFC 8300.
const MD1: [u8; 24] =
    [0x1f, 0x86, 0x01, 0x03, 0x12, 0x34, 0x56, 0xfa, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];

fn fields() -> Nsh {
    Nsh { flags: 1, ttl: 62, mdtype: 1, np: 3, path: 0x1234_56fa, context: [1, 2, 3, 4] }
}

fn frame_of(nsh: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(h::ETH_TYPE_NSH.to_be_bytes());
    frame.extend(nsh);
    frame
}

fn key_of(nsh: &[u8]) -> (FlowKey, Layout) {
    let mut key = FlowKey::default();
    let layout = extract(&frame_of(nsh), &Metadata::default(), 1, &mut key);
    (key, layout)
}

#[test]
fn headers_are_parsed_and_written() {
    assert_eq!(Nsh::parse(&MD1), Some(fields()));
    assert_eq!([&fields().header(24)[..], &fields().contexts()].concat(), MD1);
    assert_eq!(Nsh::from_bytes(fields().base(), fields().contexts()), fields());
}

/// As `parse_nsh` of OVS: the fields of other headers are 0.
#[test]
fn contradictory_headers_have_no_fields() {
    let changed = |at: usize, byte: u8| {
        let mut header = MD1;
        header[at] = byte;
        header
    };
    let rows: [(&[u8], bool); 8] = [
        (&MD1, true),
        (&changed(0, 0x5f), false),
        (&changed(1, 0x85), false),
        (&changed(1, 0x87), false),
        (&changed(2, 2), true),
        (&changed(2, 3), false),
        (&changed(2, 0x11), false),
        (&MD1[..23], false),
    ];
    for (header, fits) in rows {
        assert_eq!(Nsh::parse(header).is_some(), fits, "{header:02x?}");
        let (key, layout) = key_of(header);
        assert_eq!(key.nsh() == Nsh::default(), !fits, "{header:02x?}");
        assert_eq!((key.base.dl_type, layout.l3, key.has(shape::ARP)), (h::ETH_TYPE_NSH, 14, true));
    }
    // Contexts of metadata type 2 are opaque.
    assert_eq!(Nsh::parse(&changed(2, 2)).map(|nsh| nsh.context), Some([0; 4]));
}

#[test]
fn keys_and_flows_hold_the_same_fields() {
    let (key, _) = key_of(&MD1);
    assert_eq!(key.nsh(), fields());
    let flow = key.to_flow(crate::OfPort(1));
    assert_eq!((flow.nsh(), flow.igmp_group), (fields(), 0));
    assert_eq!(FlowKey::from_flow(&flow, key.in_port()), key);
    assert_eq!(compose(&flow, Payload::default()), frame_of(&MD1));
}

#[test]
fn packets_begin_with_the_header_of_their_type() {
    let mut key = FlowKey::default();
    let layout = extract_typed(&MD1, 0x1_894f, &Metadata::default(), 1, &mut key);
    assert_eq!((key.arp.packet_type, key.base.dl_type, layout.l3), (0x1_894f, h::ETH_TYPE_NSH, 0));
    assert_eq!(key.nsh(), fields());
    assert_eq!(compose(&key.to_flow(crate::OfPort(1)), Payload::default()), MD1);
    let ethernet = extract_typed(&frame_of(&MD1), 0, &Metadata::default(), 1, &mut key);
    assert_eq!((ethernet, key), (key_of(&MD1).1, key_of(&MD1).0));
    let unknown = extract_typed(&MD1, 0x2_894f, &Metadata::default(), 1, &mut key);
    assert_eq!((unknown.l3, key.base.dl_type, key.nsh()), (Layout::NONE, 0, Nsh::default()));
}

#[test]
fn masks_select_bits() {
    let mask = Nsh { ttl: 0xff, path: 0xff, context: [0, u32::MAX, 0, 0], ..Nsh::default() };
    let masked = Nsh { ttl: 62, path: 0xfa, context: [0, 2, 0, 0], ..Nsh::default() };
    assert_eq!(fields().masked(&mask), masked);
    assert_eq!(Nsh::default().with(&fields(), &mask), masked);
    assert_eq!(fields().with(&Nsh::default(), &Nsh::ALL), Nsh::default());
}
