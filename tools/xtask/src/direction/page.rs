//! The table of crates in ARCHITECTURE.md, which must equal the table of the check.

use std::collections::BTreeSet;

use super::SWITCH;

/// Compares the rows `| crate | contents | may depend on |` of the page with `table`.
pub(crate) fn check(page: &str, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut rows = page.lines().skip_while(|l| !l.starts_with("| crate |")).skip(2);
    let rows: Vec<(&str, BTreeSet<&str>)> = rows.by_ref().map_while(row).collect();
    let mut problems = Vec::new();
    for (name, allowed) in table {
        match rows.iter().find(|(of, _)| of == name) {
            None => problems.push(format!("ARCHITECTURE.md: the table of crates lacks `{name}`")),
            Some((_, listed)) if *listed != allowed.iter().copied().collect() => problems.push(format!(
                "ARCHITECTURE.md: `{name}` may depend on {}, by tools/xtask/src/direction.rs",
                if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") }
            )),
            Some(_) => {}
        }
    }
    let unknown = rows.iter().filter(|(of, _)| !table.iter().any(|(name, _)| name == of));
    problems
        .extend(unknown.map(|(of, _)| format!("ARCHITECTURE.md: the table of crates has an unknown `{of}`")));
    problems
}

/// Crate and dependencies of a row; `None` at the end of the table.
fn row(line: &str) -> Option<(&str, BTreeSet<&str>)> {
    let mut cells = line.strip_prefix('|')?.split(" | ");
    let name = cells.next()?.trim().trim_matches('`');
    let listed = cells.last()?.trim_end_matches('|').trim();
    let listed = match listed {
        "nothing" => BTreeSet::new(),
        "all of these" => SWITCH.iter().copied().collect(),
        _ => listed.split(", ").collect(),
    };
    Some((name, listed))
}
