//! [`RuleIndex`]: the rules of a table by cookie, output port, meter, group and deadline. Only the writer of the tables
//! reads it, never translation.
//!
//! It follows each change of the newest version of its table ([`RuleChange`]), those of an open transaction
//! included, which undoes them on failure. A reader of another version looks each rule up there, since the index may
//! hold other rules.

mod eviction;

use crate::rule::{Rule, RuleTimeouts};
use eviction::Eviction;
use flow::{SubField, TableId};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use ofp_actions::Reference;
use openflow::msg::flow_mod::FlowModFlags;
use rapidhash::RapidHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

/// A change of one rule in a table: added (`after` alone), removed (`before` alone) or modified.
#[derive(Clone, Debug)]
pub struct RuleChange {
    /// The rule before.
    pub before: Option<Arc<Rule>>,
    /// The rule after.
    pub after: Option<Arc<Rule>>,
}

/// Rules by identity; compact for a single rule.
#[derive(Debug, Default)]
enum RuleSet {
    #[default]
    Empty,
    One(Arc<Rule>),
    Many(Box<HashTable<Arc<Rule>>>),
}

/// Hash of a rule's identity: addresses differ in their middle bits.
fn hash_of(rule: &Arc<Rule>) -> u64 {
    (id_of(rule) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

impl RuleSet {
    fn insert(&mut self, rule: &Arc<Rule>) {
        match self {
            RuleSet::Empty => *self = RuleSet::One(rule.clone()),
            RuleSet::One(one) if Arc::ptr_eq(one, rule) => {}
            RuleSet::One(one) => {
                let mut many = HashTable::with_capacity(2);
                many.insert_unique(hash_of(one), one.clone(), hash_of);
                many.insert_unique(hash_of(rule), rule.clone(), hash_of);
                *self = RuleSet::Many(Box::new(many));
            }
            RuleSet::Many(many) => {
                let place = many.entry(hash_of(rule), |r| Arc::ptr_eq(r, rule), hash_of);
                if let Entry::Vacant(place) = place {
                    place.insert(rule.clone());
                }
            }
        }
    }

    fn remove(&mut self, rule: &Arc<Rule>) {
        match self {
            RuleSet::Empty => {}
            RuleSet::One(one) => {
                if Arc::ptr_eq(one, rule) {
                    *self = RuleSet::Empty;
                }
            }
            RuleSet::Many(many) => {
                if let Ok(there) = many.find_entry(hash_of(rule), |r| Arc::ptr_eq(r, rule)) {
                    there.remove();
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let (one, many) = match self {
            RuleSet::Empty => (None, None),
            RuleSet::One(one) => (Some(one), None),
            RuleSet::Many(many) => (None, Some(many.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn len(&self) -> usize {
        match self {
            RuleSet::Empty => 0,
            RuleSet::One(_) => 1,
            RuleSet::Many(many) => many.len(),
        }
    }
}

/// Rules by a key.
#[derive(Debug)]
struct Multimap<K>(RapidHashMap<K, RuleSet>);

impl<K> Default for Multimap<K> {
    fn default() -> Multimap<K> {
        Multimap(RapidHashMap::default())
    }
}

impl<K: Eq + Hash> Multimap<K> {
    fn insert(&mut self, key: K, rule: &Arc<Rule>) {
        self.0.entry(key).or_default().insert(rule);
    }

    fn remove(&mut self, key: &K, rule: &Arc<Rule>) {
        let Some(rules) = self.0.get_mut(key) else { return };
        rules.remove(rule);
        if rules.len() == 0 {
            self.0.remove(key);
        }
    }

    fn get(&self, key: K) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.get(&key).into_iter().flat_map(RuleSet::iter)
    }

    fn len_of(&self, key: &K) -> usize {
        self.0.get(key).map_or(0, RuleSet::len)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct RuleIndex {
    by_cookie: Multimap<u64>,
    /// By the ports, meters, groups and tunnel metadata of their actions, and the tunnel metadata of their matches.
    by_reference: Multimap<Reference>,
    /// Rules with `SEND_FLOW_REM`.
    send_flow_rem: RuleSet,
    /// Rules of the switch itself.
    hidden: usize,
    /// Rules with timeouts, by earliest expiry in milliseconds and identity.
    by_deadline: BTreeMap<(u64, usize), Arc<Rule>>,
    /// The time of each rule of `by_deadline`, by its identity.
    deadline_of: RapidHashMap<usize, u64>,
    /// Rules whose timeouts packets may shorten.
    shrinking: RuleSet,
    /// Number of rules that learn under (table, cookie) and delete the learned rules at their own removal.
    learners: RapidHashMap<(TableId, u64), usize>,
    /// Rules that may be evicted; `None` if the table does not evict.
    eviction: Option<Box<Eviction>>,
}

/// References of a rule's actions and match, each once.
fn references(rule: &Rule) -> Vec<Reference> {
    let mut all: Vec<_> = rule.matching.metadata_indices().map(Reference::TunMetadata).collect();
    for action in rule.actions.iter() {
        action.references(&mut |reference| {
            if !all.contains(&reference) {
                all.push(reference);
            }
        });
    }
    all
}

/// Earliest expiry of a rule in milliseconds, by its current counters.
fn deadline_ms(rule: &Rule) -> Option<u64> {
    let timeouts = rule.timeouts.now();
    let end =
        |since_ms: u64, timeout_s: u16| (timeout_s != 0).then(|| since_ms + u64::from(timeout_s) * 1000);
    let hard = end(rule.renewed_ms(), timeouts.hard_s);
    let idle = end(rule.stats.used_ms(), timeouts.idle_s);
    hard.into_iter().chain(idle).min()
}

fn id_of(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule) as usize
}

impl RuleIndex {
    /// Follows a change of the tables. Adds tables and cookies to `orphans` whose last learner is removed.
    pub(crate) fn apply(&mut self, change: &RuleChange, orphans: &mut BTreeSet<(TableId, u64)>) {
        change.after.iter().for_each(|rule| self.insert(rule));
        change.before.iter().for_each(|rule| self.remove(rule, orphans));
    }

    fn insert(&mut self, rule: &Arc<Rule>) {
        self.eviction.iter_mut().for_each(|eviction| eviction.insert(rule));
        self.by_cookie.insert(rule.cookie, rule);
        for reference in references(rule) {
            match reference {
                Reference::Output(_)
                | Reference::Meter(_)
                | Reference::Group(_)
                | Reference::TunMetadata(_) => {
                    self.by_reference.insert(reference, rule);
                }
                Reference::Learned(table, cookie) => {
                    *self.learners.entry((table, cookie)).or_default() += 1;
                }
                Reference::OwnTimeouts | Reference::OwnCookie => {}
            }
        }
        self.hidden += usize::from(rule.is_hidden());
        if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) {
            self.send_flow_rem.insert(rule);
        }
        match &rule.timeouts {
            RuleTimeouts::Shrinking(_) => self.shrinking.insert(rule),
            RuleTimeouts::Fixed(_) => {
                if let Some(at_ms) = deadline_ms(rule) {
                    self.arm(rule.clone(), at_ms);
                }
            }
        }
    }

    fn remove(&mut self, rule: &Arc<Rule>, orphans: &mut BTreeSet<(TableId, u64)>) {
        self.eviction.iter_mut().for_each(|eviction| eviction.remove(rule));
        self.by_cookie.remove(&rule.cookie, rule);
        for reference in references(rule) {
            match reference {
                Reference::Output(_)
                | Reference::Meter(_)
                | Reference::Group(_)
                | Reference::TunMetadata(_) => {
                    self.by_reference.remove(&reference, rule);
                }
                Reference::Learned(table, cookie) => {
                    orphans.extend(self.remove_learner((table, cookie)));
                }
                Reference::OwnTimeouts | Reference::OwnCookie => {}
            }
        }
        self.hidden -= usize::from(rule.is_hidden());
        if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) {
            self.send_flow_rem.remove(rule);
        }
        if rule.has_timeout() {
            self.shrinking.remove(rule);
            if let Some(at_ms) = self.deadline_of.remove(&id_of(rule)) {
                self.by_deadline.remove(&(at_ms, id_of(rule)));
            }
        }
    }

    /// Unregisters a learner under this key; returns the key if it was the last one.
    fn remove_learner(&mut self, key: (TableId, u64)) -> Option<(TableId, u64)> {
        let n = self.learners.get_mut(&key)?;
        *n -= 1;
        if *n > 0 {
            return None;
        }
        self.learners.remove(&key);
        Some(key)
    }

    /// Enters a rule under a time.
    fn arm(&mut self, rule: Arc<Rule>, at_ms: u64) {
        self.deadline_of.insert(id_of(&rule), at_ms);
        self.by_deadline.insert((at_ms, id_of(&rule)), rule);
    }

    /// Rules that may have expired: at most `max` with a deadline, and all rules whose timeouts packets shorten. A
    /// rule used meanwhile gets a new deadline. A returned rule is returned again by the next call, unless it is
    /// removed.
    pub(crate) fn take_due(&mut self, now_ms: u64, max: usize) -> Vec<Arc<Rule>> {
        let mut due: Vec<Arc<Rule>> = self.shrinking.iter().cloned().collect();
        let timed = due.len();
        let mut left = max;
        while left > 0
            && let Some(first) = self.by_deadline.first_entry()
            && first.key().0 <= now_ms
        {
            left -= 1;
            let rule = first.remove();
            match deadline_ms(&rule) {
                Some(at_ms) if at_ms > now_ms => self.arm(rule, at_ms),
                _ => due.push(rule),
            }
        }
        due[timed..].iter().for_each(|rule| self.arm(rule.clone(), now_ms));
        due
    }

    /// The index of an empty table; `evicts_by`: fields that group its rules, if it evicts.
    pub(crate) fn of_table(evicts_by: Option<Arc<[SubField]>>) -> RuleIndex {
        let eviction = evicts_by.map(|fields| Box::new(Eviction::new(fields)));
        RuleIndex { eviction, ..RuleIndex::default() }
    }

    /// Changes whether and how the table evicts: one walk over its rules.
    pub(crate) fn set_eviction(&mut self, evicts_by: Option<Arc<[SubField]>>) {
        let rules = self.by_cookie.0.values().flat_map(RuleSet::iter);
        self.eviction = evicts_by.map(|fields| {
            let mut eviction = Eviction::new(fields);
            rules.for_each(|rule| eviction.insert(rule));
            Box::new(eviction)
        });
    }

    /// The rule to evict next.
    pub(crate) fn victim(&mut self) -> Option<Arc<Rule>> {
        self.eviction.as_mut()?.victim()
    }

    /// Rules of a cookie.
    pub(crate) fn of_cookie(&self, cookie: u64) -> impl Iterator<Item = &Arc<Rule>> {
        self.by_cookie.get(cookie)
    }

    /// Number of rules of a cookie.
    pub(crate) fn len_of_cookie(&self, cookie: u64) -> usize {
        self.by_cookie.len_of(&cookie)
    }

    /// Rules whose actions refer to a port, meter or group.
    pub(crate) fn users(&self, of: Reference) -> impl Iterator<Item = &Arc<Rule>> {
        self.by_reference.get(of)
    }

    /// Number of rules whose actions refer to a port, meter or group.
    pub(crate) fn len_of_users(&self, of: Reference) -> usize {
        self.by_reference.len_of(&of)
    }

    /// Rules with `SEND_FLOW_REM`.
    pub(crate) fn send_flow_rem(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.send_flow_rem.iter()
    }

    /// Number of rules with `SEND_FLOW_REM`.
    pub(crate) fn send_flow_rem_len(&self) -> usize {
        self.send_flow_rem.len()
    }

    /// Number of rules of the switch itself.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Whether a rule learns under that table and cookie and deletes the learned rules at its own removal.
    pub(crate) fn has_learner(&self, key: &(TableId, u64)) -> bool {
        self.learners.contains_key(key)
    }

    /// Tables and cookies of rules that delete their learned rules at their own removal.
    pub(crate) fn learners(&self) -> impl Iterator<Item = (TableId, u64)> {
        self.learners.keys().copied()
    }
}

#[cfg(test)]
mod tests;
