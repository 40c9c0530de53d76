//! The oracle: lookup by trying every rule. Slow and plain; tests compare optimisations with it.

use flow::{Flow, Match};

/// The rule of highest priority among `rules` that matches `flow`, with its priority; the first of them if several do.
pub fn lookup_linear<'a, R: 'a>(
    rules: impl IntoIterator<Item = (Match, i32, &'a R)>,
    flow: &Flow,
) -> Option<(i32, &'a R)> {
    let mut best: Option<(i32, &R)> = None;
    for (m, priority, rule) in rules {
        if m.matches(flow) && best.is_none_or(|(so_far, _)| priority > so_far) {
            best = Some((priority, rule));
        }
    }
    best
}
