//! Printed text parses to the same value; no text makes a parser panic.

use super::*;
use crate::Match;
use crate::fields::{ALL_FIELDS, FieldFormat};
use proptest::prelude::*;

/// Fields that another one implies, or that a match prints only together with others or, as in OVS, without their
/// masks.
const IMPLIED: [FieldId; 14] = [
    FieldId::TunErspanVer,
    FieldId::TunErspanIdx,
    FieldId::TunErspanDir,
    FieldId::TunErspanHwid,
    FieldId::TunGtpuFlags,
    FieldId::TunGtpuMsgtype,
    FieldId::PacketType,
    FieldId::InPortOxm,
    FieldId::EthType,
    FieldId::DlVlan,
    FieldId::VlanVid,
    FieldId::DlVlanPcp,
    FieldId::VlanPcp,
    FieldId::NwProto,
];

const BASES: [&str; 17] = [
    "ct_state=+trk+est,ip,ct_nw_proto=6",
    "ct_state=trk,ipv6,ct_nw_proto=17",
    "",
    "ip",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "ipv6",
    "tcp6",
    "icmp6",
    "icmp6,icmp_type=135,icmp_code=0",
    "icmp6,icmp_type=136,icmp_code=0",
    "arp",
    "rarp",
    "mpls",
    "dl_type=0x1234",
];

/// A value and mask within the field's syntax.
fn expressible(field: FieldId, value: u128, mask: u128) -> (u128, u128) {
    let full = field.full_mask();
    let port = [1, 7, 0xfeff, 0xffff_fffe][value as usize % 4];
    let mask = if field.def().maskable && mask & full != 0 { mask & full } else { full };
    let (value, mask) = match field.def().format {
        FieldFormat::OfPort16 => (port & 0xffff, full),
        FieldFormat::OfPort32 => (port, full),
        FieldFormat::Frag => [(0, 3), (1, 3), (3, 3), (1, 1), (0, 2)][value as usize % 5],
        FieldFormat::CtState if mask & 0xff == 0 || mask & 0xff == 0xff => (value & 0xff, full),
        FieldFormat::CtState => (value, mask & 0xff),
        _ => (value, mask),
    };
    (value & mask, mask)
}

fn any_match() -> impl Strategy<Value = Match> {
    let fields =
        prop::collection::vec((0..ALL_FIELDS.len(), any::<u128>(), any::<u128>(), any::<bool>()), 0..8);
    (0..BASES.len(), fields).prop_map(|(base, fields)| {
        let base = parse_match(BASES[base], &NoPortNames).unwrap();
        let mut m = base;
        let layers = super::super::normalize::Layers::of(&base);
        for (i, value, mask, whole) in fields {
            let field = ALL_FIELDS[i];
            let connection = base.flow().ct_nw_proto != 0;
            let is_set = matches!(field, FieldId::Icmpv6Type | FieldId::Icmpv6Code)
                || connection && matches!(field, FieldId::CtState | FieldId::CtNwProto);
            let there =
                field.prereq_holds(base.flow(), Some(&base.mask().0)) && layers.allow(field) && !is_set;
            if there && !IMPLIED.contains(&field) {
                let (value, mask) = expressible(field, value, if whole { u128::MAX } else { mask });
                m.set_masked(field, value, mask);
            }
        }
        m
    })
}

/// Text made of pieces of the syntax, to get past the first check.
fn any_line() -> impl Strategy<Value = String> {
    let words = include_str!("matches.tsv").lines().chain(include_str!("flows.tsv").lines());
    let pieces: Vec<&'static str> = words
        .filter(|l| !l.starts_with('#'))
        .flat_map(|l| l.split(['\t', ',', '(', ')', ':', '[']))
        .chain([
            ",", "=", ":", "(", ")", "[", "]", "->", "..", "/", "\"", "actions=", "é", "-", "+", "|", "*",
            "learn(",
        ])
        .collect();
    prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_printed_match_parses_to_itself(m in any_match()) {
        let text = format_match(&m, None);
        prop_assert_eq!(parse_match(&text, &NoPortNames), Ok(m), "{}", text);
    }

    #[test]
    fn a_printed_packet_parses_to_one_that_prints_the_same(m in any_match()) {
        let mut flow = *m.flow();
        // Printed for a packet, but not parsed: tunnel extensions and addresses of the other neighbour
        // message.
        (flow.tun_dst, flow.tun_ipv6_dst) = (0, [0; 16]);
        if flow.dl_type == 0x86dd {
            (flow.arp_sha, flow.arp_tha) = ([0; 6], [0; 6]);
        }
        let text = format_flow(&flow);
        let untaken = ["vlan_tci1=", "mpls_lse", "nd_sll=", "nd_tll="];
        let taken = text.split(',').filter(|t| !untaken.iter().any(|u| t.starts_with(u)));
        let taken = taken.collect::<Vec<_>>().join(",");
        let again = parse_exact_flow(&taken, &NoPortNames).map(|f| format_flow(&f));
        prop_assert_eq!(again, Ok(text));
    }

    #[test]
    fn a_printed_megaflow_parses_to_itself(m in any_match()) {
        let text = format_megaflow(m.flow(), m.mask());
        let exact = m.with(FieldId::PacketType, 0).with(FieldId::RecircId, m.get(FieldId::RecircId).0);
        // ICMP types are printed with their mask, which a match does not accept.
        if m.flow().nw_proto != 1 && m.flow().nw_proto != 58 {
            prop_assert_eq!(parse_match(&text, &NoPortNames), Ok(exact), "{}", text);
        }
    }

    #[test]
    fn pieces_of_syntax_do_not_panic(text in any_line()) {
        fuzz::parse_flow(text.as_bytes());
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in ".{0,60}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            fuzz::parse_flow(input);
        }
    }
}
