//! Against `ovs-ofctl ofp-print` 3.1 and 3.5.

use super::*;
use flow::text::NoPortNames;

/// Verbosity and bytes of messages, and the text of the stock tool. Left out are messages that Sluice decodes differently:
/// with debug actions, tunnel metadata without a mapping, set-fields without prerequisites, or frames of 12 bytes.
const PRINTED: &str = include_str!("../../../corpus/printed.txt");

/// Messages printed by version 3.5: groups with selection methods, fields of experimenters in matches, actions and groups,
/// monitors of rules, flushes of connections, counters of tables, and errors in them.
const PRINTED_35: &str = include_str!("../../../corpus/printed35.txt");

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Prints the messages of a corpus, and returns their number.
fn compare(corpus: &str) -> usize {
    let options = Options { table_id_in_command: true, ..Options::DEFAULT };
    let mut wrong = Vec::new();
    let mut number = 0;
    for case in corpus.split("\n# ").map(|case| case.trim_start_matches("# ")) {
        let (head, text) = case.split_once('\n').expect("a text");
        let (verbosity, digits) = head.split_once(' ').expect("verbosity and bytes");
        let how = Printing { options: &options, names: &NoPortNames, verbosity: verbosity.parse().unwrap() };
        let got = format_message(&hex(digits), how);
        number += 1;
        if got.trim_end() != text.trim_end() {
            wrong.push(format!("{head}\n--- ours\n{got}--- stock\n{text}\n"));
        }
    }
    assert!(wrong.is_empty(), "{} of {number} differ\n{}", wrong.len(), wrong.join("\n"));
    number
}

#[test]
fn messages_are_printed_as_by_ovs_ofctl() {
    let number = compare(PRINTED);
    assert!(number > 700, "only {number}: has the corpus been cut?");
}

#[test]
fn messages_are_printed_as_by_ovs_ofctl_35() {
    let number = compare(PRINTED_35);
    assert!(number > 150, "only {number}: has the corpus been cut?");
}

/// Texts of OVS 3.5: the stock tool of the corpus does not know these parts.
#[test]
fn flushes_of_connections_have_mark_and_labels() {
    let tuples = "'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
                  'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'";
    for (words, expected) in [
        (&["zone=1"][..], "zone=1"),
        (&["zone=5", "mark=0x3/0xff"], "zone=5 mark=0x3/0xff"),
        (&["mark=5"], "zone=0 mark=0x5"),
        (&["mark=0x3/0xff", "labels=0x7"], "zone=0 mark=0x3/0xff labels=0x7"),
        (&["labels=0x7/0xf"], "zone=0 labels=0x7/0xf"),
    ] {
        let flush = crate::text::parse_ct_flush(words.iter().copied()).unwrap();
        let bytes = crate::encode_with(&Message::CtFlush(flush), Version::V10, 2, &Options::DEFAULT).unwrap();
        let how = Printing { options: &Options::DEFAULT, names: &NoPortNames, verbosity: 2 };
        let text = format_message(&bytes, how);
        assert_eq!(text.trim_end(), format!("NXT_CT_FLUSH (xid=0x2): {expected} {tuples}"));
    }
}

/// As `ovs-ofctl -mmm -F nxm parse-flow` of OVS 3.5.
#[test]
fn matches_of_niciras_form_are_entries_at_verbosity_3() {
    use ofp_actions::text::{FlowModCommand, parse_flow_mod};
    for (line, entries, plain) in [
        (
            "tcp,reg0=1/3,tp_dst=80,actions=drop",
            "NXM_OF_ETH_TYPE(0800), NXM_OF_IP_PROTO(06), NXM_OF_TCP_DST(0050), NXM_NX_REG0_W(00000001/00000003)",
            "tcp,reg0=0x1/0x3,tp_dst=80",
        ),
        ("reg0=1,priority=3,actions=drop", "NXM_NX_REG0(00000001) pri:3", "priority=3,reg0=0x1"),
        ("actions=drop", "<any>", ""),
    ] {
        let asked = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).unwrap();
        let message = Message::FlowMod(crate::text::flow_mod_of(crate::Format::Nxt, asked));
        let bytes = crate::encode_with(&message, Version::V10, 1, &Options::DEFAULT).unwrap();
        for (verbosity, expected) in [(2, plain), (3, entries)] {
            let how = Printing { options: &Options::DEFAULT, names: &NoPortNames, verbosity };
            let space = if expected.is_empty() { "" } else { " " };
            let expected = format!("NXT_FLOW_MOD (xid=0x1): ADD{space}{expected} actions=drop");
            assert_eq!(format_message(&bytes, how).trim_end(), expected, "{line}");
        }
    }
}
