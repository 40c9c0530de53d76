//! Tunnel metadata in text, by a bridge's mappings. The forms are those of Open vSwitch 3.1.

use super::super::*;
use crate::{Flow, Match, TlvTable, Wide};

fn table() -> TlvTable {
    let mut table = TlvTable::EMPTY;
    for (index, ty, len_bytes) in [(0, 0, 4), (1, 1, 8), (2, 2, 124)] {
        table.add(index, 0xffff, ty, len_bytes).expect("there is room");
    }
    table
}

#[test]
fn matches_have_values_masks_or_only_presence() {
    let check = |text: &str, want: Result<&str, &str>| {
        let read = parse_match(text, &table()).map(|m| format_match_with(&m, None, &table()));
        assert_eq!(read.as_deref().map_err(|e| e.message.as_str()), want, "{text}");
    };
    check("tun_metadata0=0x1234", Ok("tun_metadata0=0x1234"));
    check("tun_metadata0=4660", Ok("tun_metadata0=0x1234"));
    check("tun_metadata0=0x1234/0xff0f", Ok("tun_metadata0=0x1204/0xff0f"));
    check("tun_metadata0", Ok("tun_metadata0"));
    check("tun_metadata0=*", Ok("tun_metadata0"));
    check("tun_metadata1=0", Ok("tun_metadata1=0"));
    check("tun_metadata1=5/0xffffffffffffffff", Ok("tun_metadata1=0x5"));
    check("tun_metadata1[4..7]=5", Ok("tun_metadata1=0x50/0xf0"));
    check("in_port=1,tun_metadata1=3,tun_metadata0", Ok("tun_metadata0,tun_metadata1=0x3,in_port=1"));
    let long = format!("tun_metadata2=0x{}", "a5".repeat(124));
    check(&long, Ok(&long));
    check("tun_metadata0=0x123456789", Err("0x123456789: value too large for 4-byte field tun_metadata0"));
    check("tun_metadata0=5/0x1ffffffff", Err("0x1ffffffff: mask too large for 4-byte field tun_metadata0"));
    check("tun_metadata0=x", Err("x: bad syntax for tun_metadata0 value"));
    check("tun_metadata0[0..3]=16", Err("tun_metadata0[0..3]: value 0x10 does not fit into 4 bits"));
    let unmapped = "tun_metadata3: no tunnel option is mapped to this field (NXFMFC_INVALID_TLV_FIELD)";
    check("tun_metadata3", Err(unmapped));
    check("tun_metadata3=5", Err(unmapped));
    check("tun_metadata3[0..3]=5", Err(unmapped));
    check("tun_metadata64=5", Err("unknown keyword tun_metadata64"));
}

#[test]
fn ranges_follow_the_mapped_length() {
    let check = |text: &str, want: Result<&str, &str>| {
        let read = parse_subfield(text, &table()).map(|sub| format_subfield(sub, &table()));
        assert_eq!(read.as_deref().map_err(|e| e.message.as_str()), want, "{text}");
    };
    check("tun_metadata0[]", Ok("NXM_NX_TUN_METADATA0[]"));
    check("tun_metadata0[0..31]", Ok("NXM_NX_TUN_METADATA0[]"));
    check("NXM_NX_TUN_METADATA1[0..31]", Ok("NXM_NX_TUN_METADATA1[0..31]"));
    check("tun_metadata2[991]", Ok("NXM_NX_TUN_METADATA2[991]"));
    let beyond = "tun_metadata0[0..32]: ending bit 32 is not valid because field is only 32 bits wide";
    check("tun_metadata0[0..32]", Err(beyond));
}

#[test]
fn packets_and_megaflows_show_presence_and_absence() {
    let flow =
        parse_exact_flow("in_port=1,tun_dst=1.1.1.1,tun_metadata1=7,tun_metadata9=3", &table()).unwrap();
    let text = format_flow_with(&flow, &table());
    assert!(text.contains(",tun_flags=0,tun_metadata1=0x7,in_port=1,"), "{text}");
    let mut wc = crate::Mask::none();
    for (index, mask) in [(0, 0), (1, 0xf)] {
        let field = crate::fields::FieldId::tun_metadata(index).unwrap();
        table().add_mask(field, &mut wc.0, Wide::from(mask));
    }
    let text = format_megaflow_with(&flow, &wc, &table());
    assert_eq!(text, "recirc_id=0,eth,tun_metadata0=NP,tun_metadata1=0x7/0xf");
    // Without a tunnel a packet shows none.
    let flow = Flow { tun_dst: 0, ..flow };
    assert!(!format_flow_with(&flow, &table()).contains("metadata"));
    assert_eq!(format_match_with(&Match::new(&flow, &crate::Mask::none()), None, &table()), "");
}
