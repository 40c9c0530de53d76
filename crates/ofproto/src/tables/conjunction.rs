//! Conjunctive matches (ovs-fields(7)): rules with `conjunction` actions are clauses, and a packet that satisfies all
//! clauses of an id is looked up again with that `conj_id`.
//!
//! The conjunctions of one priority are tried together, from the highest priority on down to that of the best other
//! rule. If several are complete at one priority, which OVS leaves open, the lowest id counts. As in OVS, the lookup with the
//! id passes rules below a clause of the same match.

use crate::rule::Rule;
use classifier::Classifier;
use flow::{Flow, Mask};
use ofp_actions::{Action, Conjunction};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of a lookup in a table.
#[derive(Default)]
pub struct Found<'a> {
    /// The rule.
    pub rule: Option<&'a Arc<Rule>>,
    /// The clauses of the conjunction that led to it.
    pub clauses: Vec<&'a Arc<Rule>>,
}

/// Looks a packet up in a table, which may have clauses.
pub(super) fn lookup<'a>(
    rules: &'a Classifier<Arc<Rule>>,
    has_clauses: bool,
    flow: &Flow,
    wc: &mut Mask,
) -> Found<'a> {
    if !has_clauses {
        return Found { rule: rules.lookup(flow, Some(wc)), clauses: Vec::new() };
    }
    let found = rules.lookup_conjunctive(flow, Some(wc));
    for clauses in found.soft.chunk_by(|a, b| a.priority == b.priority) {
        let Some(id) = complete(clauses) else { continue };
        let marked = Flow { conj_id: id, ..*flow };
        if let Some(rule) = rules.lookup_unhidden(&marked, Some(wc)) {
            let of_id = |rule: &&&Arc<Rule>| conjunctions(rule).any(|c| c.id == id);
            return Found { rule: Some(rule), clauses: clauses.iter().filter(of_id).copied().collect() };
        }
    }
    Found { rule: found.hard, clauses: Vec::new() }
}

fn conjunctions(rule: &Rule) -> impl Iterator<Item = &Conjunction> {
    rule.actions.iter().filter_map(|a| if let Action::Conjunction(c) = a { Some(c) } else { None })
}

/// The lowest id of which these rules satisfy all clauses.
fn complete(clauses: &[&Arc<Rule>]) -> Option<u32> {
    let mut missing: BTreeMap<(u32, u8), u64> = BTreeMap::new();
    for c in clauses.iter().flat_map(|rule| conjunctions(rule)) {
        let all = u64::MAX >> (Conjunction::CLAUSES_MAX - c.n_clauses);
        *missing.entry((c.id, c.n_clauses)).or_insert(all) &= !(1 << c.clause);
    }
    missing.into_iter().find(|(_, missing)| *missing == 0).map(|((id, _), _)| id)
}
