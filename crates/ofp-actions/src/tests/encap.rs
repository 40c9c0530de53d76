//! `encap`, `decap`, `dec_nsh_ttl`: text and bytes, as observed with OVS 3.1.

use super::syntax::check;
use crate::text::arguments::hex_bytes;
use crate::text::{format_actions, parse_actions};
use crate::{put_actions, read_actions};
use flow::Match;
use flow::text::NoPortNames;
use ofp_wire::{Reader, Version, Writer};

/// The parsed text as it is printed, or its error.
fn written(text: &str) -> String {
    match parse_actions(text, &NoPortNames) {
        Ok(actions) => format_actions(&actions, &NoPortNames),
        Err(e) => format!("error: {}", e.message),
    }
}

/// Text, or the error's name.
fn read(hex: &str, version: Version) -> String {
    let bytes = hex_bytes(hex).expect(hex);
    match read_actions(&mut Reader::new(&bytes, version)) {
        Ok(actions) => format_actions(&actions, &NoPortNames),
        Err(e) => format!("error: {}", e.name()),
    }
}

#[test]
fn headers_are_written_as_in_ovs() {
    let table = "\
encap(nsh)\tencap(nsh)
encap(nsh())\tencap(nsh)
encap(nsh(md_type=2))\tencap(nsh(md_type=2))
encap(nsh(md_type=2,tlv(0x1000,10,0x12345678)))\tencap(nsh(md_type=2,tlv(0x1000,10,0x12345678)))
encap(nsh(md_type=1,tlv(0x1000,10,0x12345678)))\tencap(nsh(md_type=1,tlv(0x1000,10,0x12345678)))
encap(nsh(tlv(0x1000,10,0x12345678)))\tencap(nsh(tlv(0x1000,10,0x12345678)))
encap(ethernet)\tencap(ethernet)
encap(ethernet())\tencap(ethernet)
encap(mpls)\tencap(mpls)
encap(mpls_mc)\tencap(mpls_mc)
encap\terror: Missing encap hdr: 
encap()\terror: Missing encap hdr: 
encap(nsh(md_type=3))\terror: invalid md_type
encap(nsh(md_type=0))\terror: invalid md_type
encap(nsh(foo=1))\terror: Invalid property: foo
encap(ethernet(x=1))\terror: Invalid property: x
encap(mpls(x))\terror: Invalid property: x
encap(nsh(md_type=2,tlv(1,2)))\terror: Invalid NSH TLV header: 1,2
encap(nsh(md_type=2,tlv(1,2,zz)))\terror: Invalid NSH TLV header: 1,2,zz
encap(nsh(md_type=2,tlv(1,2,12)))\terror: Invalid NSH TLV header: 1,2,12
decap\tdecap()
decap()\tdecap()
decap(packet_type(ns=1,type=2048))\tdecap(packet_type(ns=1,type=0x800))
decap(packet_type(ns=0,type=0))\tdecap(packet_type(ns=0,type=0))
decap(packet_type(ns=0,type=0xfffe))\tdecap()
decap(packet_type(ns=1))\terror: Missing packet_type attribute type
decap(packet_type())\terror: Missing packet_type attribute ns
decap(packet_type(type=5))\terror: Missing packet_type attribute ns
decap(packet_type(ns=7,type=5))\terror: Unsupported ns value: 7
decap(foo)\terror: Invalid decap argument: foo
dec_nsh_ttl\tdec_nsh_ttl
write_actions(decap(),encap(nsh),dec_nsh_ttl)\twrite_actions(decap(),encap(nsh),dec_nsh_ttl)
clone(encap(nsh),output:2),output:3\tclone(encap(nsh),output:2),output:3
";
    check(table, 33, written);
}

/// OVS cuts numbers and content to what fits, and ignores what follows the first header.
#[test]
fn what_would_be_lost_is_refused() {
    let table = "\
encap(nsh(md_type=2,tlv(0x10000,10,0x12)))\terror: Invalid NSH TLV header: 0x10000,10,0x12
encap(nsh(md_type=2,tlv(0x1000,256,0x12)))\terror: Invalid NSH TLV header: 0x1000,256,0x12
encap(nsh(md_type=2,tlv(0x1000,10,0x1234567)))\terror: Invalid NSH TLV header: 0x1000,10,0x1234567
encap(nsh,ethernet)\terror: encap: only one header is expected before ethernet
encap(foo)\terror: Encap hdr not supported: foo
decap(packet_type(foo=1,type=0x10))\terror: Unknown packet_type attribute foo
";
    check(table, 6, written);
}

#[test]
fn bytes_are_read_as_in_ovs() {
    let table = "\
ffff0010000023 20002e00000001894f\tencap(nsh)
ffff001000002320002e000000000000\tencap(ethernet)
ffff001000002320002e000000018847\tencap(mpls)
ffff001000002320002e000000018848\tencap(mpls_mc)
ffff001000002320002e000000010800\terror: NXBAC_BAD_HEADER_TYPE
ffff001000002320002e00010001894f\tencap(nsh)
ffff001800002320002e00000001894f0004010501000000\tencap(nsh(md_type=1))
ffff001800002320002e00000001894f0004010501000001\tencap(nsh(md_type=1))
ffff001800002320002e00000001894f0004010801000000\tencap(nsh(md_type=1))
ffff001800002320002e00000001894f0004010401000000\tencap(nsh(md_type=1))
ffff001800002320002e00000001894f0005010501000000\terror: NXBAC_UNKNOWN_ED_PROP
ffff001800002320002e00000001894f0004030501000000\terror: NXBAC_UNKNOWN_ED_PROP
ffff001800002320002e00000001894f0000010501000000\terror: NXBAC_UNKNOWN_ED_PROP
ffff001800002320002e0000000000000004010501000000\tencap(ethernet(md_type=1))
ffff002000002320002e00000001894f0004020b10000a041234567800000000\terror: NXBAC_BAD_ED_PROP
ffff002000002320002e00000001894f0004020c10000a041234567800000000\terror: NXBAC_BAD_ED_PROP
ffff002000002320002e00000001894f0004021010000a041234567800000000\tencap(nsh(tlv(0x1000,10,0x12345678)))
ffff001800002320002e00000001894f0004020810000a00\tencap(nsh(tlv(0x1000,10,0)))
ffff001800002320002e00000001894f0004020910000a00\terror: OFPBAC_BAD_LEN
ffff002000002320002e00000001894f0004020910000a041234567800000000\terror: NXBAC_BAD_ED_PROP
ffff002000002320002e00000001894f00040105010000000004010502000000\tencap(nsh(md_type=1,md_type=2))
ffff001800002320002e00000001894f0000000000000000\terror: OFPBAC_BAD_LEN
ffff001800002320002e00000001894f0004000400000000\terror: NXBAC_UNKNOWN_ED_PROP
ffff002000002320002e00000001894f0004022c10000a041234567800000000\terror: OFPBAC_BAD_LEN
ffff001000002320002f00000000fffe\tdecap()
ffff001000002320002f000000000000\tdecap(packet_type(ns=0,type=0))
ffff001000002320002f000000010800\tdecap(packet_type(ns=1,type=0x800))
ffff001000002320002f000000020800\tdecap(packet_type(ns=2,type=0x800))
ffff001000002320002f00010000fffe\tdecap()
ffff0010000023200030000000000000\tdec_nsh_ttl
ffff0010000023200030000000000001\tdec_nsh_ttl
";
    let table = table.replace("000023 20", "00002320");
    check(&table, 31, |hex| read(hex, Version::V13));
    // OVS accepts any metadata type, and pushes a header without a valid one.
    let md_type_3 = "ffff001800002320002e00000001894f0004010503000000";
    assert_eq!(read(md_type_3, Version::V13), "error: NXBAC_BAD_ED_PROP");
    for (hex, _) in table.lines().filter_map(|line| line.split_once('\t')) {
        assert_eq!(read(hex, Version::V12), "error: OFPBAC_BAD_VENDOR_TYPE", "{hex}");
    }
}

#[test]
fn bytes_are_sent_as_by_ovs() {
    let table = "\
encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfe)))\tffff003800002320002e00000001894f00040105020000000004021010000a0412345678000000000004021020001401fe00000000000000
encap(nsh),encap(ethernet),encap(mpls)\tffff001000002320002e00000001894fffff001000002320002e000000000000ffff001000002320002e000000018847
encap(nsh(md_type=1))\tffff001800002320002e00000001894f0004010501000000
dec_nsh_ttl,decap(),decap(packet_type(ns=1,type=0x800))\tffff0010000023200030000000000000ffff001000002320002f00000000fffeffff001000002320002f000000010800
";
    check(table, 4, |text| {
        let actions = parse_actions(text, &NoPortNames).expect(text);
        let mut w = Writer::new(Version::V13);
        put_actions(&mut w, actions.iter(), &Match::catchall());
        w.buf.iter().map(|b| format!("{b:02x}")).collect()
    });
}
