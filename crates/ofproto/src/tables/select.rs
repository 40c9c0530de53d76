//! Selections of rules: by match, cookie, output port and group; from an index or by a walk, in slices.

use super::{Rows, Tables, table_of};
use crate::rule::{Rule, refers_to};
use crate::rule_index::RuleIndex;
use classifier::Walk;
use flow::{Flow, Match, OfPort, PackedMatch, TableId};
use ofp_actions::Reference;
use openflow::GROUP_ANY;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{Garbage, Ordering, Reclaimer, lock};

/// Selection of a non-strict flow-mod or a statistics request.
#[derive(Clone, Debug)]
pub struct Selection {
    /// One table, or [`TableId::ALL`].
    pub table: TableId,
    /// Rules whose match is within this one.
    pub matching: PackedMatch,
    /// Rules whose cookie equals this one in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// Rules that output to this port; [`OfPort::NONE`]: any rules.
    pub out_port: OfPort,
    /// Rules that execute this group; [`GROUP_ANY`]: any rules.
    pub out_group: u32,
}

/// Starting point of a selection.
enum Plan {
    /// All rules within the match.
    Walk,
    /// Rules of a cookie.
    Cookie,
    /// Rules that refer to a port or group.
    Users(Reference),
}

/// Cost of a rule of the index, in rules of a walk.
const INDEX_COST: usize = 4;
/// Maximum rules of the index collected at once by a selection; beyond, it walks.
pub(super) const GATHERED_MAX: usize = 4096;
impl Tables {
    /// The rule that `rule` hides from `flow`: the next one in its table, if `rule` itself matches.
    pub fn hidden_by(&self, rule: &Rule, flow: &Flow) -> Option<&Arc<Rule>> {
        let rules = &self.table(rule.table)?.rules;
        let matches = rule.matching.unpack().matches(flow);
        matches.then(|| rules.lookup_below(flow, rule.priority)).flatten()
    }

    /// Begins a non-strict selection among the rules of this version, in slices.
    pub fn select(&self, by: &Selection) -> Selected {
        if self.is_open.load(Ordering::Relaxed) {
            return self.begin_walk(by, self.ids_of(by));
        }
        let mut selected = self.select_newest(by);
        // The index may be of another version.
        let is_here = |r: &Arc<Rule>| {
            self.find_exactly(r.table, &r.matching, r.priority).is_some_and(|now| Arc::ptr_eq(now, r))
        };
        selected.found.retain(is_here);
        selected
    }

    /// As [`Tables::select`], for the writer of the newest version.
    pub fn select_newest(&self, by: &Selection) -> Selected {
        let ids = self.ids_of(by);
        let index = &lock(&self.index).tables;
        let indexed = || ids.iter().filter_map(|id| index.get(id));
        let wanted = |r: &&Arc<Rule>| by.selects(r);
        let found = match self.plan(by, &ids, index) {
            Plan::Cookie => indexed().flat_map(|i| i.of_cookie(by.cookie)).filter(wanted).cloned().collect(),
            Plan::Users(of) => indexed().flat_map(|i| i.users(of)).filter(wanted).cloned().collect(),
            Plan::Walk => return self.begin_walk(by, ids),
        };
        Selected { by: by.clone(), found, walk: None }
    }

    /// Tables of a selection that have rules.
    fn ids_of(&self, by: &Selection) -> Vec<TableId> {
        match by.table {
            TableId::ALL => Tables::ids().filter(|id| self.rule_count(*id) > 0).collect(),
            id => vec![id],
        }
    }

    fn begin_walk(&self, by: &Selection, ids: Vec<TableId>) -> Selected {
        let left = ids.into_iter().rev().collect();
        let (rows, reclaimer) = (self.tables.clone(), self.reclaimer.clone());
        let matching = Box::new(by.matching.unpack());
        let walk = SelectionWalk { rows: OldRows(rows), matching, left, current: None, reclaimer };
        Selected { by: by.clone(), found: Vec::new(), walk: Some(walk) }
    }

    fn plan(&self, by: &Selection, ids: &[TableId], index: &BTreeMap<TableId, RuleIndex>) -> Plan {
        let sum = |f: &dyn Fn(&RuleIndex) -> usize| ids.iter().filter_map(|id| index.get(id)).map(f).sum();
        let mut best = (ids.iter().map(|id| self.rule_count(*id)).sum::<usize>(), Plan::Walk);
        let mut consider = |n: usize, plan: Plan| {
            // A rule of the index is also looked up in its table.
            if n <= GATHERED_MAX && n * INDEX_COST < best.0 {
                best = (n * INDEX_COST, plan);
            }
        };
        if by.cookie_mask == u64::MAX {
            consider(sum(&|i| i.len_of_cookie(by.cookie)), Plan::Cookie);
        }
        for of in by.references().into_iter().flatten() {
            consider(sum(&|i| i.len_of_users(of)), Plan::Users(of));
        }
        best.1
    }
}

impl Selection {
    /// Whether it selects this rule.
    pub fn selects(&self, r: &Rule) -> bool {
        (self.table == TableId::ALL || self.table == r.table)
            && self.selects_beside_match(r)
            && r.matching.is_within(&self.matching)
    }

    /// Whether it selects a rule of its tables whose match lies within its own.
    pub(crate) fn selects_beside_match(&self, r: &Rule) -> bool {
        (r.cookie ^ self.cookie) & self.cookie_mask == 0
            && self.references().into_iter().flatten().all(|of| refers_to(&r.actions, of))
    }

    /// Selects a changed rule by the output of its new or previous version. As in OVS, a group counts in the new version
    /// only.
    pub fn selects_change(&self, rule: &Rule, old: Option<&Rule>) -> bool {
        let has = |of: Reference| {
            let had =
                matches!(of, Reference::Output(_)) && old.is_some_and(|old| refers_to(&old.actions, of));
            had || refers_to(&rule.actions, of)
        };
        (self.table == TableId::ALL || self.table == rule.table)
            && self.references().into_iter().flatten().all(has)
            && rule.matching.is_within(&self.matching)
    }

    /// The references that its rules have.
    fn references(&self) -> [Option<Reference>; 2] {
        let port = (self.out_port != OfPort::NONE).then_some(Reference::Output(self.out_port));
        let group = (self.out_group != GROUP_ANY).then_some(Reference::Group(self.out_group));
        [port, group]
    }

    /// Whether it selects all rules of its tables.
    pub fn is_everything(&self) -> bool {
        self.cookie_mask == 0 && self.references() == [None; 2] && self.matching.is_catchall()
    }
}

/// Rules of a selection, returned in slices; see [`Tables::select`].
pub struct Selected {
    by: Selection,
    /// Rules found and not yet returned.
    found: Vec<Arc<Rule>>,
    walk: Option<SelectionWalk>,
}

/// A walk over the tables of one version.
struct SelectionWalk {
    rows: OldRows,
    /// The match of the selection.
    matching: Box<Match>,
    /// Remaining tables, the next one last.
    left: Vec<TableId>,
    current: Option<(TableId, Walk)>,
    reclaimer: Reclaimer,
}

/// A version that may be removed elsewhere.
#[derive(Clone)]
pub(super) struct OldRows(pub(super) Arc<Rows>);

impl Garbage for OldRows {
    fn is_last(&self) -> bool {
        true
    }
}

impl Drop for SelectionWalk {
    fn drop(&mut self) {
        self.reclaimer.give(self.rows.clone());
    }
}

impl SelectionWalk {
    /// Examines about `max` rules of one table; returns the number. `None` at the end.
    fn step(&mut self, by: &Selection, max: usize, out: &mut Vec<Arc<Rule>>) -> Option<usize> {
        let (id, mut place) = match self.current.take() {
            Some(current) => current,
            None => {
                let id = self.left.pop()?;
                (id, table_of(&self.rows.0, id)?.rules.walk(&self.matching))
            }
        };
        let first = out.len();
        let looked = table_of(&self.rows.0, id)?.rules.walk_on(&mut place, &self.matching, max, out);
        let within = out.split_off(first);
        // Its match is known to be within.
        out.extend(within.into_iter().filter(|r| by.selects_beside_match(r)));
        self.current = (!place.is_done()).then_some((id, place));
        Some(looked)
    }

    fn is_done(&self) -> bool {
        self.current.is_none() && self.left.is_empty()
    }
}

impl Selected {
    /// The criteria.
    pub(crate) fn by(&self) -> &Selection {
        &self.by
    }

    /// These rules.
    pub fn of(by: &Selection, found: Vec<Arc<Rule>>) -> Selected {
        Selected { by: by.clone(), found, walk: None }
    }

    /// Adds rules to `out`; examines about `max` rules. Returns the number examined.
    pub fn next_slice(&mut self, max: usize, out: &mut Vec<Arc<Rule>>) -> usize {
        let mut looked = self.found.len().min(max);
        out.extend(self.found.drain(self.found.len() - looked..));
        while looked < max
            && let Some(walk) = &mut self.walk
        {
            looked += walk.step(&self.by, max - looked, out).unwrap_or(0);
            if walk.is_done() {
                self.walk = None;
            }
        }
        looked
    }

    /// Whether the walk is complete.
    pub fn is_done(&self) -> bool {
        self.found.is_empty() && self.walk.is_none()
    }

    /// All remaining rules.
    pub fn rest(mut self) -> Vec<Arc<Rule>> {
        let mut all = Vec::new();
        while !self.is_done() {
            self.next_slice(usize::MAX, &mut all);
        }
        all
    }
}
