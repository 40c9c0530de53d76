//! `ct`, `nat`, `ct_clear` and `resubmit(…,ct)`: text and bytes, as observed with OVS 3.1.

use super::syntax::check;
use crate::text::arguments::hex_bytes;
use crate::text::{format_actions, parse_actions};
use crate::{put_actions, read_actions};
use flow::Match;
use flow::fields::FieldId;
use flow::text::NoPortNames;
use ofp_wire::{Reader, Version, Writer};

#[test]
fn connection_tracking_is_written_as_in_ovs() {
    check(include_str!("conntrack.tsv"), 150, written);
}

/// The parsed text as it is printed, or its error.
fn written(text: &str) -> String {
    match parse_actions(text, &NoPortNames) {
        Ok(actions) => format_actions(&actions, &NoPortNames),
        Err(e) => format!("error: {}", e.message),
    }
}

/// Where we are stricter than OVS, or keep what it loses.
#[test]
fn decisions_of_our_own() {
    let table = "\
ct(zone=reg0[0..14])\terror: zone n_bits 15 not within valid range [16..16]
ct(nat(src=10.0.0.1))\terror: CT action requires commit flag if actions other than NAT without arguments are specified.
ct(exec(set_field:1->ct_mark))\terror: CT action requires commit flag if actions other than NAT without arguments are specified.
ct(commit,nat(src,random))\tct(commit,nat(src,random))
ct(commit,nat(dst,persistent,hash))\tct(commit,nat(dst,persistent,hash))
ct(commit,nat(src=:80))\terror: invalid nat range \":80\"
ct(commit,nat(src=0.0.0.0:80))\terror: invalid nat range \"0.0.0.0:80\"
ct(commit,nat(src=10.0.0.1:0-10))\terror: invalid nat range \"10.0.0.1:0-10\"
ct(commit,nat(src=10.0.0.1:65536))\terror: invalid nat range \"10.0.0.1:65536\"
ct(commit,nat(src=10.0.0))\terror: invalid nat range \"10.0.0\"
ct(commit,nat(src=foo))\terror: invalid nat range \"foo\"
ct(commit,nat(src=[2001:db8::1-2001:db8::9]:80-90))\terror: invalid nat range \"[2001:db8::1-2001:db8::9]:80-90\"
ct(commit,exec(set_field:1/3->ct_mark))\tct(commit,exec(set_field:0x1/0x3->ct_mark))
resubmit(,1,ct)\tresubmit(,1,ct)
resubmit(2,1,ct)\tresubmit(2,1,ct)
resubmit(2,,ct)\tresubmit(2,,ct)
write_actions(resubmit(,1,ct))\twrite_actions(resubmit(,1,ct))
";
    check(table, 16, written);
    let table = "\
ffff00280000232000230001000000000000ff0000000000ffff0010000023200024000000110000\tct(commit,nat(src,random))
ffff001000002320002c0002ff000000\tresubmit(2,,ct)
ffff001000002320002b0000000000000000\terror: OFPBAC_BAD_LEN
";
    check(table, 3, |hex| read(hex, Version::V13));
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
fn bytes_are_read_as_in_ovs() {
    let versions = [Version::V10, Version::V13];
    check(include_str!("conntrack_wire.tsv"), 100, |hex| {
        let all = versions.map(|v| read(hex, v));
        if all.iter().all(|text| *text == all[0]) { all[0].clone() } else { all.join(" | ") }
    });
}

#[test]
fn bytes_are_sent_as_by_ovs() {
    let tcp = |text: &str| {
        let ethertype = if text.contains("2001") { 0x86dd } else { 0x800 };
        Match::catchall().with(FieldId::EthType, ethertype).with(FieldId::NwProto, 6)
    };
    check(include_str!("conntrack_bytes.tsv"), 25, |text| {
        let actions = parse_actions(text, &NoPortNames).expect(text);
        let all = [Version::V10, Version::V13, Version::V15].map(|version| {
            let mut w = Writer::new(version);
            put_actions(&mut w, actions.iter(), &tcp(text));
            w.buf.iter().map(|b| format!("{b:02x}")).collect::<String>()
        });
        if all.iter().all(|hex| *hex == all[0]) { all[0].clone() } else { all.join(" | ") }
    });
}
