//! Rule: every fuzz target of a crate (`pub fn name(bytes: &[u8])` in a `fuzz.rs`) has a row in
//! `tools/fuzz/src/targets.rs`, so that the fuzzer runs it.

use super::File;

/// The table of targets.
pub(super) const TABLE: &str = "tools/fuzz/src/targets.rs";

/// Looks for targets that the table does not name.
pub(super) fn check(files: &[File], table: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.is_shipped() && f.path.ends_with("/fuzz.rs")) {
        let source = &file.source;
        for i in 0..source.tokens.len() {
            if !source.spells(i, &["pub", "fn"]) || file.in_tests(source.tokens[i].line) {
                continue;
            }
            let Some(name) = source.tokens.get(i + 2) else { continue };
            // One argument, of bytes, and no result.
            let is_target = source.spells(i + 5, &[":", "&", "[", "u8", "]", ")", "{"]);
            if is_target && !table.contains(&format!("fuzz::{},", name.text)) {
                problems.push(format!(
                    "{}:{}: the target `{}` is no row of {TABLE}",
                    file.path, name.line, name.text
                ));
            }
        }
    }
    problems
}
