//! Against `ovs-ofctl ofp-print` 3.1.

use super::*;
use flow::text::NoPortNames;

/// Verbosity and bytes of messages, and the text of the stock tool. Left out are messages that Sluice decodes differently:
/// with debug actions, tunnel metadata without a mapping, set-fields without prerequisites, or frames of 12 bytes.
const PRINTED: &str = include_str!("../../../corpus/printed.txt");

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn messages_are_printed_as_by_ovs_ofctl() {
    let options = Options { table_id_in_command: true, ..Options::DEFAULT };
    let mut wrong = Vec::new();
    let mut number = 0;
    for case in PRINTED.split("\n# ").map(|case| case.trim_start_matches("# ")) {
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
    assert!(number > 700, "only {number}: has the corpus been cut?");
}
