//! [`RuleIndex`]: the rules of a bridge by cookie, by output port and by deadline. The writer of the tables reads it; translation
//! never does.
//!
//! It follows each change of the newest version of the tables ([`RuleChange`]), those of an open transaction included; an abort undoes
//! them. A reader of another version looks each rule up there, since the index may hold other rules.

use crate::rule::{Rule, RuleTimeouts};
use flow::{OfPort, TableId};
use ofp_actions::{Action, Reference};
use rapidhash::{RapidHashMap, RapidHashSet};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A change of one rule in a table: added (`after` alone), removed (`before` alone) or modified.
#[derive(Clone, Debug)]
pub struct RuleChange {
    /// The rule before.
    pub before: Option<Arc<Rule>>,
    /// The rule after.
    pub after: Option<Arc<Rule>>,
}

/// A rule by its identity.
#[derive(Clone, Debug)]
struct ById(Arc<Rule>);

impl PartialEq for ById {
    fn eq(&self, other: &ById) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ById {}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// A set of rules, small when it holds one.
#[derive(Debug)]
enum RuleSet {
    One(ById),
    Many(Box<ManyRules>),
}

/// Two rules or more, and their number by table.
#[derive(Debug, Default)]
struct ManyRules {
    rules: RapidHashSet<ById>,
    by_table: BTreeMap<TableId, usize>,
}

impl ManyRules {
    fn insert(&mut self, rule: ById) {
        let table = rule.0.table;
        if self.rules.insert(rule) {
            *self.by_table.entry(table).or_default() += 1;
        }
    }

    fn remove(&mut self, rule: &ById) {
        if self.rules.remove(rule)
            && let Some(n) = self.by_table.get_mut(&rule.0.table)
        {
            *n -= 1;
        }
    }
}

impl RuleSet {
    fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let (one, many) = match self {
            RuleSet::One(rule) => (Some(rule), None),
            RuleSet::Many(many) => (None, Some(many.rules.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten()).map(|rule| &rule.0)
    }

    fn len(&self) -> usize {
        match self {
            RuleSet::One(_) => 1,
            RuleSet::Many(many) => many.rules.len(),
        }
    }

    fn len_of(&self, table: TableId) -> usize {
        match self {
            RuleSet::One(rule) => usize::from(rule.0.table == table),
            RuleSet::Many(many) => many.by_table.get(&table).copied().unwrap_or(0),
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
        let rule = ById(rule.clone());
        match self.0.get_mut(&key) {
            None => drop(self.0.insert(key, RuleSet::One(rule))),
            Some(RuleSet::Many(many)) => many.insert(rule),
            Some(one) => {
                let mut many = ManyRules::default();
                one.iter().for_each(|first| many.insert(ById(first.clone())));
                many.insert(rule);
                *one = RuleSet::Many(Box::new(many));
            }
        }
    }

    fn remove(&mut self, key: &K, rule: &Arc<Rule>) {
        let rule = ById(rule.clone());
        let is_empty = match self.0.get_mut(key) {
            None => false,
            Some(RuleSet::One(one)) => *one == rule,
            Some(RuleSet::Many(many)) => {
                many.remove(&rule);
                many.rules.is_empty()
            }
        };
        if is_empty {
            self.0.remove(key);
        }
    }

    fn get(&self, key: K) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.get(&key).into_iter().flat_map(RuleSet::iter)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct RuleIndex {
    by_cookie: Multimap<u64>,
    by_output: Multimap<OfPort>,
    /// Rules with timeouts by the time, in milliseconds, at which they may end, and by their identity.
    by_deadline: BTreeMap<(u64, usize), Arc<Rule>>,
    /// The time of each rule of `by_deadline`, by its identity.
    deadline_of: RapidHashMap<usize, u64>,
    /// Rules whose timeouts packets may shorten.
    shrinking: RapidHashSet<ById>,
    /// Number of rules that learn under (table, cookie) and delete the learned rules with themselves.
    learners: RapidHashMap<(TableId, u64), usize>,
}

/// Ports that a list of actions outputs to, `CONTROLLER` included.
fn outputs(actions: &[Action]) -> Vec<OfPort> {
    let mut ports = Vec::new();
    for action in actions {
        action.references(&mut |reference| match reference {
            Reference::Output(port) if !ports.contains(&port) => ports.push(port),
            Reference::Output(_) | Reference::Meter(_) | Reference::Learned(..) | Reference::OwnTimeouts => {}
        });
    }
    ports
}

/// Tables and cookies of the rules that a rule learns and deletes with itself.
pub(crate) fn learners(rule: &Rule) -> Vec<(TableId, u64)> {
    let mut keys = Vec::new();
    for action in rule.actions.iter() {
        action.references(&mut |reference| match reference {
            Reference::Learned(table, cookie) => keys.push((table, cookie)),
            Reference::Output(_) | Reference::Meter(_) | Reference::OwnTimeouts => {}
        });
    }
    keys
}

/// When a rule may end at the earliest, in milliseconds, as far as its counters tell now.
fn deadline_ms(rule: &Rule) -> Option<u64> {
    let timeouts = rule.timeouts.now();
    let end =
        |since_ms: u64, timeout_s: u16| (timeout_s != 0).then(|| since_ms + u64::from(timeout_s) * 1000);
    let hard = end(rule.modified_ms, timeouts.hard_s);
    let idle = end(rule.stats.used_ms(), timeouts.idle_s);
    hard.into_iter().chain(idle).min()
}

fn id_of(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule) as usize
}

impl RuleIndex {
    /// Follows a change of the tables.
    pub(crate) fn apply(&mut self, change: &RuleChange) {
        change.before.iter().for_each(|rule| self.remove(rule));
        change.after.iter().for_each(|rule| self.insert(rule));
    }

    fn insert(&mut self, rule: &Arc<Rule>) {
        self.by_cookie.insert(rule.cookie, rule);
        outputs(&rule.actions).into_iter().for_each(|port| self.by_output.insert(port, rule));
        learners(rule).into_iter().for_each(|key| *self.learners.entry(key).or_default() += 1);
        match &rule.timeouts {
            RuleTimeouts::Shrinking(_) => drop(self.shrinking.insert(ById(rule.clone()))),
            RuleTimeouts::Fixed(_) => {
                if let Some(at_ms) = deadline_ms(rule) {
                    self.arm(rule.clone(), at_ms);
                }
            }
        }
    }

    fn remove(&mut self, rule: &Arc<Rule>) {
        self.by_cookie.remove(&rule.cookie, rule);
        outputs(&rule.actions).iter().for_each(|port| self.by_output.remove(port, rule));
        for key in learners(rule) {
            if let Some(n) = self.learners.get_mut(&key) {
                *n -= 1;
                if *n == 0 {
                    self.learners.remove(&key);
                }
            }
        }
        if rule.has_timeout() {
            self.shrinking.remove(&ById(rule.clone()));
            if let Some(at_ms) = self.deadline_of.remove(&id_of(rule)) {
                self.by_deadline.remove(&(at_ms, id_of(rule)));
            }
        }
    }

    /// Enters a rule under a time.
    fn arm(&mut self, rule: Arc<Rule>, at_ms: u64) {
        self.deadline_of.insert(id_of(&rule), at_ms);
        self.by_deadline.insert((at_ms, id_of(&rule)), rule);
    }

    /// Rules that may end by now: at most `max` with a deadline, and all rules whose timeouts packets shorten. A rule that was used
    /// meanwhile is entered under its new deadline. A rule that is returned comes again in the next call, unless it ends.
    pub(crate) fn take_due(&mut self, now_ms: u64, max: usize) -> Vec<Arc<Rule>> {
        let mut due: Vec<Arc<Rule>> = self.shrinking.iter().map(|rule| rule.0.clone()).collect();
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

    /// Rules of a cookie.
    pub(crate) fn of_cookie(&self, cookie: u64) -> impl Iterator<Item = &Arc<Rule>> {
        self.by_cookie.get(cookie)
    }

    /// Number of rules of a cookie.
    pub(crate) fn len_of_cookie(&self, cookie: u64) -> usize {
        self.by_cookie.0.get(&cookie).map_or(0, RuleSet::len)
    }

    /// Number of rules of a cookie in a table.
    pub(crate) fn len_of_cookie_in(&self, cookie: u64, table: TableId) -> usize {
        self.by_cookie.0.get(&cookie).map_or(0, |set| set.len_of(table))
    }

    /// Rules that output to a port.
    pub(crate) fn of_output(&self, port: OfPort) -> impl Iterator<Item = &Arc<Rule>> {
        self.by_output.get(port)
    }

    /// Number of rules that output to a port.
    pub(crate) fn len_of_output(&self, port: OfPort) -> usize {
        self.by_output.0.get(&port).map_or(0, RuleSet::len)
    }

    /// Whether a rule learns under that table and cookie and deletes the learned rules with itself.
    pub(crate) fn has_learner(&self, key: &(TableId, u64)) -> bool {
        self.learners.contains_key(key)
    }
}

#[cfg(test)]
mod tests;
