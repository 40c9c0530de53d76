//! `bundle`, `bundle_load`, `check_pkt_larger`, `sample` and `delete_field`: text and bytes, as observed with OVS 3.1.

use super::syntax::check;
use crate::text::arguments::hex_bytes;
use crate::text::{check_actions, format_actions, parse_actions};
use crate::{CheckContext, put_actions, read_actions};
use flow::text::NoPortNames;
use flow::{Match, TlvTable};
use ofp_wire::{Options, Reader, Version, Writer};
use std::sync::Arc;

/// The parsed text as it is printed, or its error.
fn written(text: &str) -> String {
    let parsed = parse_actions(text, &NoPortNames).map_err(|e| e.message);
    let checked = parsed.and_then(|a| check_actions(&Match::catchall(), None, &a).map(|()| a));
    checked.map_or_else(|why| format!("error: {why}"), |actions| format_actions(&actions, &NoPortNames))
}

/// Options with mappings of `tun_metadata0` and `tun_metadata36`.
fn options() -> Options {
    let mut tlv = TlvTable::default();
    for index in [0, 36] {
        tlv.add(index, 0xffff, index as u8, 4).expect("there is space");
    }
    Options { tlv: Some(Arc::new(tlv)), ..Options::DEFAULT }
}

/// Text, or the error's name. Bytes written from it are `hex`, or follow.
fn read(hex: &str) -> String {
    let (bytes, options) = (hex_bytes(hex).expect(hex), options());
    let mut r = Reader::new(&bytes, Version::V13);
    r.options = &options;
    let cx = CheckContext {
        version: Version::V13,
        max_ports: 0xff00,
        n_tables: 254,
        table: None,
        debug_actions: false,
    };
    let checked =
        read_actions(&mut r).and_then(|a| crate::check_actions(&a, &Match::catchall(), &cx).map(|()| a));
    let actions = match checked {
        Ok(actions) => actions,
        Err(e) => return format!("error: {}", e.name()),
    };
    let mut w = Writer::new(Version::V13);
    w.options = options;
    put_actions(&mut w, actions.iter(), &Match::catchall());
    let again: String = w.buf.iter().map(|b| format!("{b:02x}")).collect();
    let text = format_actions(&actions, &NoPortNames);
    if again == hex { text } else { format!("{text} as {again}") }
}

#[test]
fn extensions_are_written_as_in_ovs() {
    check(include_str!("extensions.tsv"), 40, written);
}

#[test]
fn extensions_are_read_as_in_ovs() {
    check(include_str!("extensions_wire.tsv"), 20, read);
}

/// Where we are stricter than OVS, differ in words, or follow OVS 3.5 (fields in `sample`).
#[test]
fn decisions_of_our_own() {
    let table = "\
bundle(eth_src,70000,hrw,ofport,members:1)\terror: invalid basis \"70000\"
bundle_load(eth_src,0,hrw,ofport,reg0[0..7],members:1)\terror: eth_src,0,hrw,ofport,reg0[0..7],members:1: bundle_load needs a destination of 16 to 64 bits
bundle_load(eth_src,0,hrw,ofport,xxreg0[3..77],members:1)\terror: eth_src,0,hrw,ofport,xxreg0[3..77],members:1: bundle_load needs a destination of 16 to 64 bits
bundle_load(eth_src,0,hrw,ofport,tcp_dst,members:1)\terror: bundle_load tcp_dst lacks correct prerequisites: match on tcp or tcp6 (OFPBAC_MATCH_INCONSISTENT)
bundle_load(eth_src,0,hrw,ofport,eth_type,members:1)\terror: eth_type is read-only
bundle(eth_src,0,hrw,ofport,members:1,controller)\terror: bundle: CONTROLLER cannot be a member (OFPBAC_BAD_OUT_PORT)
bundle(eth_src,0,hrw,ofport,members:\"p,1\")\terror: \"p,1\": bad port number
check_pkt_larger(70000)->reg0[0]\terror: invalid packet length \"70000\"
check_pkt_larger(100)->eth_type[0]\terror: eth_type[0] is read-only
check_pkt_larger(100)->tcp_dst[0]\terror: check_pkt_larger tcp_dst lacks correct prerequisites: match on tcp or tcp6 (OFPBAC_MATCH_INCONSISTENT)
delete_field:reg0\terror: delete_field reg0: only tunnel metadata can be deleted (OFPBAC_BAD_ARGUMENT)
sample(probability=1,obs_domain_id=4294967296)\terror: 4294967296: value does not fit into 32 bits
sample(probability=1,obs_domain_id=reg0[],obs_point_id=xreg1[3..20])\tsample(probability=1,collector_set_id=0,obs_domain_id=NXM_NX_REG0[],obs_point_id=OXM_OF_PKT_REG1[3..20])
sample(probability=1,obs_point_id=xreg1)\terror: size of obs_point_id field (64) exceeds maximum (32)
sample(probability=1,obs_point_id=tcp_dst)\terror: sample tcp_dst lacks correct prerequisites: match on tcp or tcp6 (OFPBAC_MATCH_INCONSISTENT)
sample(probability=1,obs_point_id=foo)\terror: foo: unknown field `foo'
";
    check(table, 16, written);
    // Padding is not kept. OVS 3.1 accepts any `bundle_load` that is long enough, and writes to a field without its
    // prerequisites. The last rows are of NXAST_SAMPLE4.
    let table = "\
ffff002800002320000d000100070032000000020001001f00010004000000000001000000000000\terror: OFPBAC_BAD_ARGUMENT
ffff002800002320000d000100010032000000030001001f00010004000000000001000000000000\terror: OFPBAC_BAD_ARGUMENT
ffff002800002320000d000100010032000000020001001f00010004000000010001000000000000\terror: OFPBAC_BAD_ARGUMENT
ffff002800002320000d000100010032000000020001000f00001402000000000001000000000000\terror: OFPBAC_MATCH_INCONSISTENT
ffff00180000232000310064000000001402000000000000\terror: OFPBAC_MATCH_INCONSISTENT
ffff00180000232000320001000400000000000000000000\terror: OFPBAC_BAD_ARGUMENT
ffff00180000232000320001500400000000000000000000\tdelete_field:tun_metadata0
ffff00180000232000320001527c00000000000000000000\terror: NXFMFC_INVALID_TLV_FIELD
ffff00200000232000260001000000010000000200000003ffff000000000000\tsample(probability=1,collector_set_id=1,obs_domain_id=2,obs_point_id=3) as ffff001800002320001d0001000000010000000200000003
ffff002800002320003300010000000100010004001f000000000000000000050003020000000000\tsample(probability=1,collector_set_id=1,obs_domain_id=NXM_NX_REG0[],obs_point_id=5,sampling_port=3,egress)
ffff002800002320003300010000000100010004001f00000001020400c300000003020000000001\terror: NXBRC_MUST_BE_ZERO
ffff0028000023200033000100000001000100040020000000000000000000050003020000000000\terror: OFPBAC_BAD_SET_LEN
ffff0028000023200033000100000001000000000000000100000000000000050003020000000000\tsample(probability=1,collector_set_id=1,obs_domain_id=1,obs_point_id=5,sampling_port=3,egress) as ffff002000002320002900010000000100000001000000050003020000000000
";
    check(table, 13, read);
}
