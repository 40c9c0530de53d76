//! The flow tables of a bridge as one persistent value: a clone is a snapshot, a change makes a new version.
//!
//! Translation reads a snapshot and never waits; whoever changes tables works on a clone of his own and publishes it
//! whole, so a bundle is seen entirely or not at all (law 6).

use crate::action_pool::ActionPool;
use crate::rule::Rule;
use crate::rule_index::{RuleChange, RuleIndex};
use classifier::{Classifier, DEFAULT_PREFIX_FIELDS};
use flow::fields::FieldId;
use flow::{Flow, Mask, Match, OfPort, PackedMatch, TableId};
use ofp_actions::Action;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering, lock};

/// A field that a table cannot be looked up by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPrefixField {
    /// There is no field of that name.
    Unknown,
    /// Its values have no prefixes.
    Incompatible,
}

/// The field of that name, if a table can be looked up by its prefixes (`Flow_Table.prefixes`).
///
/// # Errors
/// It is none that addresses are in.
pub fn prefix_field(name: &str) -> Result<FieldId, NoPrefixField> {
    use FieldId as F;
    let field = F::by_name(name).ok_or(NoPrefixField::Unknown)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "fields without addresses are the rule")]
    match field {
        F::TunId | F::TunSrc | F::TunDst | F::TunIpv6Src | F::TunIpv6Dst => Ok(field),
        F::CtNwSrc | F::CtNwDst | F::CtIpv6Src | F::CtIpv6Dst => Ok(field),
        F::IpSrc | F::IpDst | F::Ipv6Src | F::Ipv6Dst => Ok(field),
        _ => Err(NoPrefixField::Incompatible),
    }
}

/// Counters of one table, shared by all versions.
#[derive(Debug, Default)]
pub struct TableCounters {
    matched: AtomicU64,
    missed: AtomicU64,
}

impl TableCounters {
    /// Counts `packets` lookups that found a rule, or did not.
    pub fn credit(&self, hit: bool, packets: u64) {
        let counter = if hit { &self.matched } else { &self.missed };
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    /// Lookups and matches so far.
    pub fn counts(&self) -> (u64, u64) {
        let matched = self.matched.load(Ordering::Relaxed);
        (matched + self.missed.load(Ordering::Relaxed), matched)
    }
}

/// What a non-strict flow-mod, or a request for statistics, selects.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// One table, or [`TableId::ALL`].
    pub table: TableId,
    /// Rules whose match is within this one.
    pub matching: Match,
    /// Rules whose cookie agrees with this one in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// Rules that output to this port; [`OfPort::NONE`]: any rules.
    pub out_port: OfPort,
}

/// How rules are selected, and how many are looked at.
enum Plan {
    Walk(usize),
    Cookie(usize),
    Output(usize),
}

/// Cost of a rule of the index, in rules of a walk.
const INDEX_COST: usize = 4;

/// One table.
#[derive(Clone)]
pub struct Table {
    rules: Classifier<Arc<Rule>>,
    /// Counters.
    pub counters: Arc<TableCounters>,
}

/// All tables of a bridge, number 255 excepted.
#[derive(Clone)]
pub struct Tables {
    tables: Arc<[Arc<Table>]>,
    /// Actions of all versions.
    actions: Arc<Mutex<ActionPool>>,
    /// The rules of the newest version, which its writer changes; see [`Tables::commit`].
    index: Arc<Mutex<RuleIndex>>,
    /// Changes of this version that are not committed.
    journal: Vec<RuleChange>,
}

impl Tables {
    /// Empty tables; `seed` keys their hash functions.
    pub fn new(seed: u64) -> Tables {
        let table = |n: u64| {
            let counters = Arc::new(TableCounters::default());
            Arc::new(Table { rules: Classifier::new(seed ^ n), counters })
        };
        Tables {
            tables: (0..=u64::from(TableId::INTERNAL.0)).map(table).collect(),
            actions: Arc::default(),
            index: Arc::default(),
            journal: Vec::new(),
        }
    }

    /// The table of that number; `None` for 255.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(usize::from(id.0))
    }

    fn table_mut(&mut self, id: TableId) -> Option<&mut Table> {
        let tables = Arc::make_mut(&mut self.tables);
        tables.get_mut(usize::from(id.0)).map(Arc::make_mut)
    }

    /// Sets the fields by whose prefixes tables are looked up: those of a table's number, the default for all others. A table
    /// whose fields stay costs one comparison.
    pub fn set_prefixes(&mut self, by_table: &BTreeMap<u8, Vec<FieldId>>) {
        for n in 0..self.tables.len() as u8 {
            let fields = by_table.get(&n).map_or(&DEFAULT_PREFIX_FIELDS[..], Vec::as_slice);
            if !self.tables[usize::from(n)].rules.prefix_fields().eq(fields.iter().copied())
                && let Some(table) = self.table_mut(TableId(n))
            {
                table.rules.set_prefix_fields(fields);
            }
        }
    }

    /// The rule with the highest priority that matches `flow`; the bits looked at are added to `wc`.
    pub fn lookup(&self, id: TableId, flow: &Flow, wc: Option<&mut Mask>) -> Option<&Arc<Rule>> {
        self.table(id)?.rules.lookup(flow, wc)
    }

    /// Packs the match of a rule of that table, sharing the mask with other rules.
    pub fn pack(&self, id: TableId, matching: &Match) -> PackedMatch {
        self.table(id).map_or_else(|| matching.into(), |table| table.rules.pack(matching))
    }

    /// A match that shares its mask with the rules of that table.
    pub fn share(&self, id: TableId, matching: &PackedMatch) -> PackedMatch {
        self.table(id).map_or_else(|| matching.clone(), |table| table.rules.share(matching))
    }

    /// A list of actions, which rules with equal actions share.
    pub fn intern(&self, actions: &[Action]) -> Arc<[Action]> {
        lock(&self.actions).intern(actions)
    }

    /// Adds a rule; one with the same match and priority in its table is replaced and returned.
    pub fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let table = self.table_mut(rule.table)?;
        let replaced = table.rules.insert(&rule.matching, rule.priority, rule.clone());
        self.record(RuleChange { before: replaced.clone(), after: Some(rule) });
        replaced
    }

    /// Removes exactly the rule with this match and priority.
    pub fn remove(&mut self, id: TableId, matching: &PackedMatch, priority: i32) -> Option<Arc<Rule>> {
        let removed = self.table_mut(id)?.rules.remove(matching, priority)?;
        self.record(RuleChange { before: Some(removed.clone()), after: None });
        Some(removed)
    }

    fn record(&mut self, change: RuleChange) {
        lock(&self.index).apply(&change);
        self.journal.push(change);
    }

    /// Ends a change whose version is published: its changes, in order.
    pub fn commit(&mut self) -> Vec<RuleChange> {
        std::mem::take(&mut self.journal)
    }

    /// Ends a change whose version is not published. A changed version must not be dropped otherwise: all versions share one index.
    pub fn abort(mut self) {
        let mut index = lock(&self.index);
        for RuleChange { before, after } in self.journal.drain(..).rev() {
            index.apply(&RuleChange { before: after, after: before });
        }
    }

    /// The rule with exactly this match and priority.
    pub fn find_exactly(&self, id: TableId, matching: &PackedMatch, priority: i32) -> Option<&Arc<Rule>> {
        self.table(id)?.rules.find_exactly(matching, priority)
    }

    /// Whether another rule of the same priority could match a packet that `matching` matches.
    pub fn overlaps(&self, id: TableId, matching: &Match, priority: i32) -> bool {
        self.table(id).is_some_and(|t| t.rules.overlaps(matching, priority))
    }

    /// The rules of one table, or of all, whose match lies within `matching`.
    pub fn within(&self, id: TableId, matching: &Match) -> Vec<Arc<Rule>> {
        let of_table = |t: &Arc<Table>| t.rules.within(matching).cloned().collect::<Vec<_>>();
        match id {
            TableId::ALL => self.tables.iter().flat_map(of_table).collect(),
            id => self.table(id).map(of_table).unwrap_or_default(),
        }
    }

    /// The rules that a non-strict selection is about. By the index where that is shorter than a walk.
    pub fn select(&self, by: &Selection) -> Vec<Arc<Rule>> {
        let index = lock(&self.index);
        let mut found = match self.plan(by, &index) {
            Plan::Walk(_) => {
                drop(index);
                self.within(by.table, &by.matching)
            }
            Plan::Cookie(_) => self.still_here(by, index.of_cookie(by.cookie)),
            Plan::Output(_) => self.still_here(by, index.of_output(by.out_port)),
        };
        found.retain(|r| (r.cookie ^ by.cookie) & by.cookie_mask == 0 && r.outputs_to(by.out_port));
        found
    }

    /// How many rules [`Tables::select`] looks at.
    pub fn looks(&self, by: &Selection) -> usize {
        match self.plan(by, &lock(&self.index)) {
            Plan::Walk(n) | Plan::Cookie(n) | Plan::Output(n) => n,
        }
    }

    fn plan(&self, by: &Selection, index: &RuleIndex) -> Plan {
        let walk = match by.table {
            TableId::ALL => self.tables.iter().map(|t| t.rules.len()).sum(),
            id => self.rule_count(id),
        };
        let mut plans = vec![Plan::Walk(walk)];
        if by.cookie_mask == u64::MAX {
            plans.push(Plan::Cookie(index.len_of_cookie(by.cookie)));
        }
        if by.out_port != OfPort::NONE {
            plans.push(Plan::Output(index.len_of_output(by.out_port)));
        }
        // A rule of the index is also looked up in its table.
        let cost = |plan: &Plan| match plan {
            Plan::Walk(n) => *n,
            Plan::Cookie(n) | Plan::Output(n) => n * INDEX_COST,
        };
        plans.into_iter().min_by_key(cost).unwrap_or(Plan::Walk(walk))
    }

    /// Those of the index's rules that this version has and whose match is within that of the selection.
    fn still_here<'r>(&self, by: &Selection, rules: impl Iterator<Item = &'r Arc<Rule>>) -> Vec<Arc<Rule>> {
        let is_wanted = |r: &&Arc<Rule>| {
            (by.table == TableId::ALL || by.table == r.table)
                && r.matching.is_within(&by.matching)
                && self.find_exactly(r.table, &r.matching, r.priority).is_some_and(|now| Arc::ptr_eq(now, r))
        };
        rules.filter(is_wanted).cloned().collect()
    }

    /// Number of rules of a cookie in a table.
    pub(crate) fn len_of_cookie(&self, table: TableId, cookie: u64) -> usize {
        lock(&self.index).len_of_cookie_in(cookie, table)
    }

    /// Rules that were learned under one of these tables and cookies, by which no rule learns any more. Takes them all out.
    pub(crate) fn take_orphans(&self, keys: &mut BTreeSet<(TableId, u64)>) -> Vec<Arc<Rule>> {
        let index = lock(&self.index);
        let mut orphans = Vec::new();
        for (table, cookie) in std::mem::take(keys) {
            if !index.has_learner(&(table, cookie)) {
                let rules = index.of_cookie(cookie);
                orphans.extend(rules.filter(|r| r.table == table && !r.is_hidden()).cloned());
            }
        }
        orphans
    }

    /// Rules whose timeouts may be over; see [`RuleIndex::take_due`].
    pub(crate) fn take_due(&self, now_ms: u64, max: usize) -> Vec<Arc<Rule>> {
        lock(&self.index).take_due(now_ms, max)
    }

    /// Every rule of every table, hidden ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.tables.iter().flat_map(|t| t.rules.iter().map(|(_, _, r)| r))
    }

    /// Number of rules in a table.
    pub fn rule_count(&self, id: TableId) -> usize {
        self.table(id).map_or(0, |t| t.rules.len())
    }
}
