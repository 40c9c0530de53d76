//! Tests of the text syntax: pairs observed with OVS 3.1 for equal behaviour (`*.tsv`; each head lists
//! omissions), our own decisions, properties, corpus.

mod decisions;
mod metadata;
mod properties;
mod tokens;

use super::*;
use crate::OfPort;
use crate::fields::FieldId;

/// Rows of a table: input and expected output.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('\t'))
}

/// Compares all rows and prints all that differ.
fn check(table: &str, least: usize, got: impl Fn(&str) -> String) {
    let mut wrong = String::new();
    let mut count = 0;
    for (input, want) in rows(table) {
        count += 1;
        let got = got(input);
        if got != want {
            wrong += &format!("\n{input}\n  want {want}\n  got  {got}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= least, "only {count} rows");
}

fn matched(text: &str) -> String {
    match parse_match(text, &NoPortNames) {
        Ok(m) => format_match(&m, None),
        Err(e) => format!("error: {}", e.message),
    }
}

#[test]
fn matches_print_as_ovs_prints_them() {
    check(include_str!("matches.tsv"), 150, matched);
}

#[test]
fn bad_matches_are_refused_in_ovs_words() {
    check(include_str!("match_errors.tsv"), 50, |t| matched(t).replacen("error: ", "", 1));
}

#[test]
fn packets_print_as_trace_prints_them() {
    check(include_str!("flows.tsv"), 50, |t| match parse_exact_flow(t, &NoPortNames) {
        Ok(flow) => format_flow(&flow),
        Err(e) => format!("error: {}", e.message),
    });
}

/// As `ofproto/trace` of OVS 3.1 prints a packet of several labels, and its megaflow.
#[test]
fn further_labels_are_decimal_and_hexadecimal_if_masked() {
    let mut flow =
        parse_exact_flow("in_port=2,mpls,mpls_label=1048575,mpls_tc=1,mpls_ttl=1", &NoPortNames).unwrap();
    flow.mpls_lse[1] = 0x540;
    assert!(format_flow(&flow).contains(",mpls_bos=0,mpls_lse1=1344"), "{}", format_flow(&flow));
    let mut mask = crate::Mask::none();
    (mask.0.dl_type, mask.0.mpls_lse[1]) = (u16::MAX, 0x100);
    assert_eq!(format_megaflow(&flow, &mask), "recirc_id=0,eth,mpls,mpls_lse1=0x00000100/0x00000100");
}

/// Megaflows of the recorded traces.
#[test]
fn megaflows_print_as_trace_prints_them() {
    let lines = [
        "recirc_id=0,eth,tcp,in_port=1,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.0/8,nw_ttl=64,nw_frag=no,tp_dst=80",
        "recirc_id=0,eth,icmp,in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_frag=no",
        "recirc_id=0,eth,in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,dl_type=0x0000",
        "recirc_id=0,eth,ip,in_port=1,dl_vlan=5,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_frag=no",
        "recirc_id=0,ct_state=-trk,eth,tcp,in_port=1,nw_src=10.0.0.0/8,nw_frag=no,tp_src=0x400/0xff00,tcp_flags=+syn-ack",
        "recirc_id=0,eth,ipv6,in_port=LOCAL,ipv6_src=fe80::/10,ipv6_label=0x00005/0x0000f,nw_frag=no",
        "recirc_id=0,ct_state=-trk,eth,arp,in_port=1,arp_tpa=1.0.0.0/8,arp_op=2",
        "recirc_id=0x5,eth,ip,in_port=1,nw_frag=no",
        "recirc_id=0,packet_type=(1,0x800),ip,in_port=1,nw_frag=no",
        "recirc_id=0,eth,mpls,in_port=1,dl_vlan=5,mpls_label=5",
    ];
    for line in lines {
        let m = parse_match_unchecked(line, &NoPortNames).unwrap();
        assert_eq!(format_megaflow(m.flow(), m.mask()), line);
    }
    let m = parse_match("icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::/10", &NoPortNames).unwrap();
    let megaflow = "recirc_id=0,eth,icmp6,icmp_type=0x87/0xff,icmp_code=0x0/0xff,nd_target=fe80::/10";
    assert_eq!(format_megaflow(m.flow(), m.mask()), megaflow);
}

#[test]
fn default_priority_is_not_printed() {
    let m = parse_match("tcp,tp_dst=80", &NoPortNames).unwrap();
    assert_eq!(format_match(&m, Some(50)), "priority=50,tcp,tp_dst=80");
    assert_eq!(format_match(&m, Some(32768)), "tcp,tp_dst=80");
    assert_eq!(format_match(&m, Some(-1)), "priority=-1,tcp,tp_dst=80");
    assert_eq!(format_match(&Default::default(), Some(0)), "priority=0");
    assert_eq!(format_match(&Default::default(), None), "");
}

struct Names;

impl PortNames for Names {
    fn name(&self, port: OfPort) -> Option<&str> {
        [(1, "eth0"), (2, "a \"b\""), (3, "local"), (4, "7up"), (5, "br-int"), (6, "a,b:1")]
            .iter()
            .find(|(n, _)| *n == port.0)
            .map(|(_, s)| *s)
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        (1..7).map(OfPort).find(|p| self.name(*p) == Some(name))
    }
}

#[test]
fn port_names_are_printed_and_parsed() {
    let pairs = [
        ("in_port=1", "in_port=eth0"),
        ("in_port=2", r#"in_port="a \"b\"""#),
        ("in_port=3", "in_port=\"local\""),
        ("in_port=4", "in_port=\"7up\""),
        ("in_port=5", "in_port=\"br-int\""),
        ("in_port=9", "in_port=9"),
        ("in_port=LOCAL", "in_port=LOCAL"),
    ];
    for (text, named) in pairs {
        let m = parse_match(text, &Names).unwrap();
        assert_eq!(format_match_with(&m, None, &Names), named);
        assert_eq!(parse_match(named, &Names), Ok(m), "{named}");
    }
}

#[test]
fn every_field_is_found_by_its_printable_name() {
    for field in crate::fields::ALL_FIELDS {
        assert_eq!(field_by_subfield_name(subfield_name(*field)), Some(*field));
        let def = field.def();
        let has_header = def.nxm.is_some() || def.oxm.is_some();
        assert_eq!(has_header, subfield_name(*field) != def.name, "{}", def.name);
    }
    assert_eq!(field_by_subfield_name("OXM_OF_IPV4_SRC"), Some(FieldId::IpSrc));
    let range = parse_subfield("ip_src[8..15]", &NoPortNames).unwrap();
    assert_eq!(format_subfield(range, &NoPortNames), "NXM_OF_IP_SRC[8..15]");
}

#[test]
fn errors_say_where() {
    let cases = [
        ("tcp,reg0=zz", 9),
        ("tcp,foo=1", 4),
        ("  tcp,tp_dst=80,nw_src=1.2.3", 23),
        ("tp_dst=80", 0),
        ("in_port=1,ip,dl_type=5/6", 21),
    ];
    for (text, offset) in cases {
        let error = parse_match(text, &NoPortNames).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn the_corpus_is_replayed() {
    testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/text_parse_flow"), fuzz::parse_flow);
}
