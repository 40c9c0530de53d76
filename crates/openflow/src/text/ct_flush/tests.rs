//! Words accepted by `ovs-ofctl ct-flush` 3.1, with mark and labels of 3.5, and the errors of both.

use super::*;

fn parse(line: &str) -> Result<CtFlush, String> {
    parse_ct_flush(line.split(' ').filter(|_| !line.is_empty()))
}

#[test]
fn selections_are_read() {
    let any = CtFlush::default();
    let none = CtFlushTuple::default();
    let ip = |text: &str| {
        Some(match text.parse().unwrap() {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        })
    };
    for (line, expected) in [
        ("", any.clone()),
        (",", any.clone()),
        ("zone=65535", CtFlush { zone: Some(65535), ..any.clone() }),
        (
            "labels=0x123/0xfff zone=1 mark=5",
            CtFlush { zone: Some(1), mark: Some((5, u32::MAX)), labels: Some((0x123, 0xfff)), ..any.clone() },
        ),
        ("mark=0x5/0xf", CtFlush { mark: Some((5, 15)), ..any.clone() }),
        (
            "ct_nw_src=10.1.1.1,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2",
            CtFlush {
                proto: 17,
                orig: CtFlushTuple {
                    src: ip("10.1.1.1"),
                    dst: ip("10.1.1.2"),
                    src_port: Some(1),
                    dst_port: Some(2),
                    ..none
                },
                ..any.clone()
            },
        ),
        (
            "zone=3 ct_ipv6_dst=fc00::2,ct_nw_proto=58,icmp_type=128,icmp_code=0,icmp_id=10",
            CtFlush {
                proto: 58,
                zone: Some(3),
                orig: CtFlushTuple {
                    dst: ip("fc00::2"),
                    icmp_id: Some(10),
                    icmp_type: Some(128),
                    icmp_code: Some(0),
                    ..none
                },
                ..any.clone()
            },
        ),
        // The reply tuple alone; and one that needs no protocol of its own.
        (
            "zone=3  ct_nw_dst=10.1.1.1",
            CtFlush { zone: Some(3), reply: CtFlushTuple { dst: ip("10.1.1.1"), ..none }, ..any.clone() },
        ),
        (
            "ct_nw_proto=6,ct_tp_src=1 ct_tp_dst=5",
            CtFlush {
                proto: 6,
                orig: CtFlushTuple { src_port: Some(1), ..none },
                reply: CtFlushTuple { dst_port: Some(5), ..none },
                ..any
            },
        ),
    ] {
        assert_eq!(parse(line), Ok(expected), "{line}");
    }
}

#[test]
fn errors_are_those_of_the_stock_tool() {
    for (line, why) in [
        ("bla", "field bla missing value"),
        ("ct_nw_src=", "field ct_nw_src missing value"),
        ("bla=3", "invalid conntrack tuple field: bla"),
        ("ct_nw_src=300.1.1.1", "failed to parse field ct_nw_src"),
        ("ct_ipv6_src=10.0.0.1", "failed to parse field ct_ipv6_src"),
        ("ct_nw_src=10.0.0.1,ct_ipv6_dst=fd00::1", "the L3 protocol does not match fd00::1"),
        ("ct_nw_src=10.0.0.1 ct_ipv6_src=::1", "the L3 protocol does not match ::1"),
        ("ct_nw_proto=256", "failed to parse field ct_nw_proto"),
        ("ct_nw_proto=6,ct_tp_dst=99999", "failed to parse field ct_tp_dst"),
        ("ct_tp_src=1", "port is set without protocol"),
        ("ct_tp_src=1 ct_nw_proto=6", "port is set without protocol"),
        ("icmp_id=3", "invalid L4 fields"),
        ("ct_nw_proto=6,icmp_id=3", "invalid L4 fields"),
        ("ct_nw_proto=1,ct_tp_src=3", "invalid L4 fields"),
        ("ct_nw_proto=6,ct_tp_src=3 ct_nw_proto=1", "invalid L4 fields"),
        // The stock tool takes the second protocol for both.
        ("ct_nw_proto=6 ct_nw_proto=17", "the tuples have different protocols"),
        ("zone=x", "failed to parse zone"),
        ("zone=+7", "failed to parse zone"),
        ("zone=70000", "failed to parse zone"),
        ("zone=", "failed to parse zone"),
        ("zone=1 zone=2", "zone=2: zone is given already"),
        ("mark=0x100000000", "failed to parse mark"),
        ("mark=1/x", "failed to parse mark"),
        ("mark=-1", "failed to parse mark"),
        ("labels=1/", "failed to parse labels"),
        ("labels=0x100000000000000000000000000000000", "failed to parse labels"),
        ("ct_nw_proto=6 zone=5", "invalid conntrack tuple field: zone"),
        ("zone=1 ct_nw_proto=6 ct_nw_proto=6 ct_nw_proto=6", "invalid argument ct_nw_proto=6"),
    ] {
        assert_eq!(parse(line), Err(why.to_string()), "{line}");
    }
}

#[test]
fn corpus_of_selections() {
    for line in include_str!("../../../corpus/ct_flush/tuples.txt").lines() {
        crate::fuzz::ct_flush_text(line.as_bytes());
    }
}
