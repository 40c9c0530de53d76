//! The flow tables of a bridge as one persistent value: a clone is a snapshot, a change makes a new version.
//!
//! Translation reads a snapshot and never waits; a writer changes its own clone and publishes it as a whole, so
//! packets see a bundle entirely or not at all.

mod conjunction;
mod journal;
mod limits;
mod select;

pub use conjunction::Found;
pub use journal::{Change, Cleared, Journal};
pub use limits::{EvictionField, TABLE_MAX_RULES, TableSettings, eviction_field};
pub use select::{Selected, Selection};

use crate::action_pool::ActionPool;
use crate::cause::Cause;
use crate::group::{GroupChange, Groups};
use crate::rule::Rule;
use crate::rule_index::{RuleChange, RuleIndex};
pub use classifier::DEFAULT_PREFIX_FIELDS;
use classifier::{Classifier, ClsRule as _};
use flow::fields::FieldId;
use flow::{Flow, Mask, Match, PackedMatch, SubField, TableId, TlvTable};
use ofp_actions::{Action, Reference};
use openflow::ErrorKind;
use openflow::msg::group::{GROUP_ALL, GroupMod};
use select::OldRows;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, Mutex, Ordering, Reclaimer, lock};

/// Lists of actions of which no rule may be left.
const UNUSED_ACTIONS_MAX: usize = 1024;

/// Error for a field that a table cannot be looked up by.
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
/// The field is unknown or has no prefixes.
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
    /// Counts `packets` lookups with or without a matching rule.
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

/// Maximum removed rules reported at once for a cleared table.
const FLOW_REMOVED_AT_ONCE: usize = 1024;

/// One table.
#[derive(Clone)]
pub struct Table {
    rules: Classifier<Arc<Rule>>,
    /// Number of rules that are clauses of conjunctions.
    clauses: usize,
    /// Counters.
    pub counters: Arc<TableCounters>,
}

/// Tables in rows: a change copies one row of references and one of tables.
const ROW: usize = 16;
type Rows = [Arc<[Arc<Table>; ROW]>; ROW];

/// The table of that number; `None` for 255.
fn table_of(rows: &Rows, id: TableId) -> Option<&Arc<Table>> {
    let n = usize::from(id.0);
    (id <= TableId::INTERNAL).then(|| &rows[n / ROW][n % ROW])
}

/// The rules of a version by table.
#[derive(Default)]
struct Index {
    tables: BTreeMap<TableId, RuleIndex>,
    /// Tables and cookies of learned rules that lost their last learner: they are deleted, also if a rule learns under
    /// them again.
    orphans: BTreeSet<(TableId, u64)>,
    /// Tables that evict, with the fields that group their rules.
    evicting: BTreeMap<TableId, Arc<[SubField]>>,
}

impl Index {
    /// Follows a change of one rule; returns tables and cookies whose last learner in the rule's table is removed.
    fn apply(&mut self, change: &RuleChange) -> BTreeSet<(TableId, u64)> {
        let mut gone = BTreeSet::new();
        if let Some(rule) = change.after.as_ref().or(change.before.as_ref()) {
            let new = || RuleIndex::of_table(self.evicting.get(&rule.table).cloned());
            self.tables.entry(rule.table).or_insert_with(new).apply(change, &mut gone);
        }
        gone
    }

    /// Enters those tables and cookies as orphans that no other table's rule learns under; returns the new ones.
    fn orphan(&mut self, gone: impl IntoIterator<Item = (TableId, u64)>) -> Vec<(TableId, u64)> {
        let Index { tables, orphans, .. } = self;
        let learns = |key: &(TableId, u64)| tables.values().any(|i| i.has_learner(key));
        gone.into_iter().filter(|key| !learns(key) && orphans.insert(*key)).collect()
    }
}

/// All tables of a bridge, except number 255. A clone begins its own journal.
pub struct Tables {
    tables: Arc<Rows>,
    groups: Groups,
    /// Mappings of tunnel metadata.
    tlv: Arc<TlvTable>,
    /// Settings of tables.
    states: Arc<limits::States>,
    /// Actions of all versions.
    actions: Arc<Mutex<ActionPool<Action>>>,
    /// Index of the newest version, which its writer changes; see [`Tables::commit`].
    index: Arc<Mutex<Index>>,
    /// The index follows an unpublished version.
    is_open: Arc<AtomicBool>,
    /// Changes of rules are reported to monitors.
    is_monitored: Arc<AtomicBool>,
    /// Uncommitted changes of this version.
    journal: Journal,
    /// Cause of the next changes.
    cause: Cause,
    reclaimer: Reclaimer,
}

impl Clone for Tables {
    fn clone(&self) -> Tables {
        Tables {
            tables: self.tables.clone(),
            groups: self.groups.clone(),
            tlv: self.tlv.clone(),
            states: self.states.clone(),
            actions: self.actions.clone(),
            index: self.index.clone(),
            is_open: self.is_open.clone(),
            is_monitored: self.is_monitored.clone(),
            journal: Journal::default(),
            cause: Cause { batch: self.cause.batch + 1, ..Cause::default() },
            reclaimer: self.reclaimer.clone(),
        }
    }
}

impl Tables {
    /// Empty tables; `seed` keys their hash functions. Old versions of many rules go to `reclaimer`.
    pub fn new(seed: u64, reclaimer: &Reclaimer) -> Tables {
        let table = |n: usize| {
            let counters = Arc::new(TableCounters::default());
            Arc::new(Table { rules: Classifier::new(seed ^ n as u64), clauses: 0, counters })
        };
        let row = |row: usize| Arc::new(std::array::from_fn(|n| table(row * ROW + n)));
        Tables {
            tables: Arc::new(std::array::from_fn(row)),
            groups: Groups::default(),
            tlv: Arc::default(),
            states: Arc::default(),
            actions: Arc::new(Mutex::new(ActionPool::new(UNUSED_ACTIONS_MAX))),
            index: Arc::default(),
            is_open: Arc::default(),
            is_monitored: Arc::default(),
            journal: Journal::default(),
            cause: Cause::default(),
            reclaimer: reclaimer.clone(),
        }
    }

    /// All tables.
    pub fn ids() -> impl Iterator<Item = TableId> {
        (0..=TableId::INTERNAL.0).map(TableId)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().flat_map(|row| row.iter()).take(usize::from(TableId::INTERNAL.0) + 1)
    }

    /// The table of that number; `None` for 255.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        table_of(&self.tables, id)
    }

    fn slot(&mut self, id: TableId) -> Option<&mut Arc<Table>> {
        let n = usize::from(id.0);
        let row = Arc::make_mut(&mut Arc::make_mut(&mut self.tables)[n / ROW]);
        (id <= TableId::INTERNAL).then(|| &mut row[n % ROW])
    }

    fn table_mut(&mut self, id: TableId) -> Option<&mut Table> {
        self.slot(id).map(Arc::make_mut)
    }

    /// Sets the prefix fields of lookups: per table number, with a default for all others. A table with unchanged
    /// fields costs one comparison.
    pub fn set_prefixes(&mut self, by_table: &BTreeMap<u8, Vec<FieldId>>) {
        for id in Tables::ids() {
            self.set_prefixes_of(id, by_table.get(&id.0).map_or(&DEFAULT_PREFIX_FIELDS[..], Vec::as_slice));
        }
    }

    fn set_prefixes_of(&mut self, id: TableId, fields: &[FieldId]) {
        let stays = |t: &Arc<Table>| t.rules.prefix_fields().eq(fields.iter().copied());
        if !self.table(id).is_none_or(stays)
            && let Some(table) = self.table_mut(id)
        {
            table.rules.set_prefix_fields(fields);
        }
    }

    /// The rule with the highest priority that matches `flow`; adds the examined bits to `wc`.
    pub fn lookup(&self, id: TableId, flow: &Flow, wc: &mut Mask) -> Found<'_> {
        match self.table(id) {
            Some(table) => conjunction::lookup(&table.rules, table.clauses > 0, flow, wc),
            None => Found::default(),
        }
    }

    /// Packs the match of a rule of that table, sharing the mask with other rules.
    pub fn pack(&self, id: TableId, matching: &Match) -> PackedMatch {
        self.table(id).map_or_else(|| matching.into(), |table| table.rules.pack(matching))
    }

    /// A match that shares its mask with the rules of that table.
    pub fn share(&self, id: TableId, matching: &PackedMatch) -> PackedMatch {
        self.table(id).map_or_else(|| matching.clone(), |table| table.rules.share(matching))
    }

    /// The mappings of tunnel metadata.
    pub fn tlv(&self) -> &Arc<TlvTable> {
        &self.tlv
    }

    /// Replaces the mappings of tunnel metadata. Mappings of rules must stay.
    pub fn set_tlv(&mut self, tlv: TlvTable) {
        self.tlv = Arc::new(tlv);
        self.journal.push(Change::Tlv);
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Executes a group modification; see [`Groups::change`].
    ///
    /// # Errors
    /// The error to reply with; nothing has changed then.
    pub(crate) fn change_groups(&mut self, m: &GroupMod, now_ms: u64) -> Result<GroupChange, ErrorKind> {
        let change = self.groups.change(m, now_ms)?;
        self.journal.push(Change::Group(m.group.id));
        Ok(change)
    }

    /// Sets the times of the creation of groups that are there.
    pub fn date_groups(&mut self, dates: impl IntoIterator<Item = (u32, u64)>) {
        for (id, created_ms) in dates {
            if self.groups.date(id, created_ms) {
                self.journal.push(Change::Group(id));
            }
        }
    }

    /// Deletes all groups; the caller removes their rules.
    pub(crate) fn clear_groups(&mut self) {
        if !self.groups.is_empty() {
            self.groups = Groups::default();
            self.journal.push(Change::Group(GROUP_ALL));
        }
    }

    /// An action list, shared by rules with equal actions.
    pub fn intern(&self, actions: &[Action]) -> Arc<[Action]> {
        lock(&self.actions).intern(actions)
    }

    /// Adds a rule; replaces and returns one with the same match and priority in its table.
    pub fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let table = self.table_mut(rule.table)?;
        let replaced = table.rules.insert(rule.clone());
        table.clauses += usize::from(rule.is_soft());
        table.clauses -= usize::from(replaced.as_ref().is_some_and(|r| r.is_soft()));
        self.record(RuleChange { before: replaced.clone(), after: Some(rule) });
        replaced
    }

    /// Removes exactly the rule with this match and priority.
    pub fn remove(&mut self, id: TableId, matching: &PackedMatch, priority: i32) -> Option<Arc<Rule>> {
        self.remove_if(id, matching, priority, |_| true)
    }

    /// Removes exactly the rule with this match and priority, if it satisfies `is_wanted`.
    pub fn remove_if(
        &mut self,
        id: TableId,
        matching: &PackedMatch,
        priority: i32,
        is_wanted: impl FnOnce(&Arc<Rule>) -> bool,
    ) -> Option<Arc<Rule>> {
        let table = self.table_mut(id)?;
        let removed = table.rules.remove_if(matching, priority, is_wanted)?;
        table.clauses -= usize::from(removed.is_soft());
        self.record(RuleChange { before: Some(removed.clone()), after: None });
        Some(removed)
    }

    /// Whether [`Tables::clear`] equals deleting the table's rules one by one: it has no hidden rules, and few
    /// removals to report.
    pub fn clears(&self, id: TableId) -> bool {
        let few = if self.is_monitored() {
            self.rule_count(id) <= FLOW_REMOVED_AT_ONCE
        } else {
            let index = lock(&self.index);
            index.tables.get(&id).is_none_or(|i| i.send_flow_rem_len() <= FLOW_REMOVED_AT_ONCE)
        };
        few && lock(&self.index).tables.get(&id).is_none_or(|i| i.hidden() == 0)
    }

    /// Removes all rules of a table, hidden ones included, in constant time.
    pub fn clear(&mut self, id: TableId) {
        let mut all = lock(&self.index);
        let Some(index) = all.tables.remove(&id) else { return };
        self.journal.orphans.extend(all.orphan(index.learners()));
        drop(all);
        if let Some(slot) = self.slot(id) {
            let empty = Table { rules: slot.rules.emptied(), clauses: 0, counters: slot.counters.clone() };
            let old = std::mem::replace(slot, Arc::new(empty));
            self.journal.push(Change::Cleared(Box::new(Cleared { id, index, rules: old }), self.cause));
        }
        self.check_room(id);
    }

    fn record(&mut self, change: RuleChange) {
        let mut index = lock(&self.index);
        let gone = index.apply(&change);
        self.journal.orphans.extend(index.orphan(gone));
        drop(index);
        let table = change.after.as_ref().or(change.before.as_ref()).map(|rule| rule.table);
        self.journal.push(Change::Rule(change, self.cause));
        table.into_iter().for_each(|id| self.check_room(id));
    }

    /// Records that the room in a table passed a threshold.
    fn check_room(&mut self, id: TableId) {
        let status = self.passed_threshold(id);
        if let Some(status) = status {
            self.journal.push(Change::Status(Box::new(status)));
        }
    }

    /// Sets the cause of the next changes, under the number of a new batch; returns it.
    pub(crate) fn caused_by(&mut self, cause: Cause) -> Cause {
        self.cause = Cause { batch: self.cause.batch + 1, ..cause };
        self.cause
    }

    /// Sets the cause of the next changes, of a batch that has begun.
    pub(crate) fn go_on(&mut self, cause: Cause) {
        self.cause = Cause { batch: self.cause.batch.max(cause.batch), ..cause };
    }

    /// The next changes are of the present batch, with another cause.
    pub(crate) fn also_caused_by(&mut self, cause: Cause) {
        self.cause = Cause { batch: self.cause.batch, ..cause };
    }

    /// Whether changes of rules are reported to monitors.
    pub(crate) fn is_monitored(&self) -> bool {
        self.is_monitored.load(Ordering::Relaxed)
    }

    /// Has changes of rules reported to monitors, or not, in all versions.
    pub(crate) fn set_monitored(&self, monitored: bool) {
        self.is_monitored.store(monitored, Ordering::Relaxed);
    }

    /// Ends a change whose version is published.
    pub fn commit(&mut self) -> Journal {
        std::mem::take(&mut self.journal)
    }

    /// Opens a version for changes while readers use the present one; until [`Tables::close`], no other version may
    /// be changed.
    pub(crate) fn open(&self) -> Tables {
        self.is_open.store(true, Ordering::Relaxed);
        self.clone()
    }

    /// Closes a version opened by [`Tables::open`]. An unpublished version must have been undone.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Undoes up to `max` changes of the index, the last ones first; returns their number. The rules stay: drop a
    /// version after undoing its changes. Never drop a changed version otherwise: all versions share one index.
    pub(crate) fn undo(&mut self, max: usize) -> usize {
        let mut index = lock(&self.index);
        let mut undone = 0;
        while undone < max
            && let Some(change) = self.journal.changes.pop()
        {
            undone += 1;
            match change {
                Change::Rule(RuleChange { before, after }, _) => {
                    let _gone = index.apply(&RuleChange { before: after, after: before });
                }
                Change::Cleared(cleared, _) => drop(index.tables.insert(cleared.id, cleared.index)),
                // They are part of the version alone.
                Change::Group(_) | Change::Tlv | Change::Status(_) => {}
            }
        }
        if self.journal.changes.is_empty() {
            // Their learners are back.
            for key in std::mem::take(&mut self.journal.orphans) {
                index.orphans.remove(&key);
            }
        }
        undone
    }

    /// Takes over the prefix fields and settings of another version.
    pub(crate) fn adopt_settings(&mut self, from: &Tables) {
        self.adopt_states(from);
        for id in Tables::ids() {
            let Some(theirs) = from.table(id).map(|t| t.rules.prefix_fields().collect::<Vec<_>>()) else {
                continue;
            };
            self.set_prefixes_of(id, &theirs);
        }
    }

    /// Drops it, on another thread if there is one for it.
    pub(crate) fn retire(self) {
        self.reclaimer.give(OldRows(self.tables.clone()));
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
            TableId::ALL => self.all().flat_map(of_table).collect(),
            id => self.table(id).map(of_table).unwrap_or_default(),
        }
    }

    /// Number of rules of a cookie in a table.
    pub(crate) fn len_of_cookie(&self, table: TableId, cookie: u64) -> usize {
        lock(&self.index).tables.get(&table).map_or(0, |i| i.len_of_cookie(cookie))
    }

    /// Number of rules whose actions refer to a port, meter or group.
    pub fn len_of_users(&self, of: Reference) -> usize {
        lock(&self.index).tables.values().map(|i| i.len_of_users(of)).sum()
    }

    /// Rules whose actions refer to a port, meter or group, at most `max`.
    pub(crate) fn users(&self, of: Reference, max: usize) -> Vec<Arc<Rule>> {
        lock(&self.index).tables.values().flat_map(|i| i.users(of)).take(max).cloned().collect()
    }

    /// Whether learned rules wait for deletion.
    pub(crate) fn has_orphans(&self) -> bool {
        !lock(&self.index).orphans.is_empty()
    }

    /// Removes up to `max` learned rules that lost their last learner with `delete_learned`; returns them.
    pub(crate) fn end_orphans(&mut self, max: usize) -> Vec<Arc<Rule>> {
        self.also_caused_by(Cause::default());
        let mut ended = Vec::new();
        while ended.len() < max {
            let rules = self.next_orphans(max - ended.len());
            let before = ended.len();
            ended.extend(rules.iter().filter_map(|r| self.remove(r.table, &r.matching, r.priority)));
            if ended.len() == before {
                break;
            }
        }
        ended
    }

    /// Some orphans of one table and cookie, `max` at most; empty if there are none.
    fn next_orphans(&self, max: usize) -> Vec<Arc<Rule>> {
        let index = &mut *lock(&self.index);
        while let Some(key) = index.orphans.first().copied() {
            let rules = index.tables.get(&key.0).into_iter().flat_map(|i| i.of_cookie(key.1));
            let orphans: Vec<_> = rules.filter(|r| !r.is_hidden()).take(max).cloned().collect();
            if !orphans.is_empty() {
                return orphans;
            }
            index.orphans.remove(&key);
        }
        Vec::new()
    }

    /// Rules that may have expired; see [`RuleIndex::take_due`].
    pub(crate) fn take_due(&self, now_ms: u64, max: usize) -> Vec<Arc<Rule>> {
        let mut due = Vec::new();
        for index in lock(&self.index).tables.values_mut() {
            due.extend(index.take_due(now_ms, max.saturating_sub(due.len())));
        }
        due
    }

    /// Every rule of every table, hidden ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.all().flat_map(|t| t.rules.iter())
    }

    /// Number of rules in a table.
    pub fn rule_count(&self, id: TableId) -> usize {
        self.table(id).map_or(0, |t| t.rules.len())
    }

    /// Number of rules that OpenFlow can see.
    pub fn visible_count(&self, id: TableId) -> usize {
        let hidden = lock(&self.index).tables.get(&id).map_or(0, RuleIndex::hidden);
        self.rule_count(id).saturating_sub(hidden)
    }
}
