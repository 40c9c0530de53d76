//! Wrong command lines of `sluice ofctl`: the error of each as `ovs-ofctl` 3.5 prints it, before a hint of our own.

use crate::server::sluice;

/// Arguments, and the text behind the name of the program.
const LINES: &str = include_str!("refused.tsv");

/// Without ` (did you mean 'NAME'?)`.
fn without_hint(text: &str) -> &str {
    text.split(" (did you mean '").next().unwrap_or(text)
}

#[test]
fn wrong_lines_are_refused_in_the_words_of_ovs_ofctl() {
    let mut wrong = String::new();
    for line in LINES.lines() {
        let (args, expected) = line.split_once('\t').unwrap();
        let out = sluice().args(["ofctl"]).args(args.split(' ')).output().unwrap();
        let text = out.stderr.trim_end().trim_start_matches("sluice ofctl: ");
        if out.status.code() != Some(1) || without_hint(text) != expected {
            wrong += &format!("{args}\n  ours:  {text}\n  stock: {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
