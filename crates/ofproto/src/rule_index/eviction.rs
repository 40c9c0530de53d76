//! Rules of a table that may be evicted: those with a timeout, in groups by fields of their matches.
//!
//! The largest group loses a rule first; of equal ones, any. In a group the rule of the least importance goes, of those
//! the one that expires first. Deadlines move as rules are used; a rule is ordered by the deadline last seen, and a
//! bounded number of outdated ones is put right when a rule is to be evicted.

use super::{deadline_ms, id_of};
use crate::rule::Rule;
use flow::SubField;
use rapidhash::RapidHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Outdated deadlines put right for one eviction.
const REFRESHED_MAX: usize = 32;

/// Values of the fields.
type Key = Box<[u128]>;
/// Importance, deadline, identity.
type Place = (u16, u64, usize);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Eviction {
    fields: Arc<[SubField]>,
    groups: RapidHashMap<Key, BTreeMap<Place, Arc<Rule>>>,
    by_size: BTreeSet<(usize, Key)>,
    place_of: RapidHashMap<usize, Place>,
}

impl Eviction {
    /// Groups by these fields.
    pub(super) fn new(fields: Arc<[SubField]>) -> Eviction {
        let (groups, place_of) = (RapidHashMap::default(), RapidHashMap::default());
        Eviction { fields, groups, by_size: BTreeSet::new(), place_of }
    }

    fn key_of(&self, rule: &Rule) -> Key {
        let matching = rule.matching.unpack();
        self.fields.iter().map(|field| field.get(matching.flow())).collect()
    }

    /// Changes a group, and its place by size.
    fn change(&mut self, key: Key, change: impl FnOnce(&mut BTreeMap<Place, Arc<Rule>>)) {
        let group = self.groups.entry(key.clone()).or_default();
        let before = group.len();
        change(group);
        let after = group.len();
        if before == after && after > 0 {
            return;
        }
        if after == 0 {
            self.groups.remove(&key);
        } else {
            self.by_size.insert((after, key.clone()));
        }
        self.by_size.remove(&(before, key));
    }

    pub(super) fn insert(&mut self, rule: &Arc<Rule>) {
        let Some(at_ms) = deadline_ms(rule).filter(|_| !rule.is_hidden()) else { return };
        let place = (rule.importance, at_ms, id_of(rule));
        self.place_of.insert(id_of(rule), place);
        self.change(self.key_of(rule), |group| drop(group.insert(place, rule.clone())));
    }

    pub(super) fn remove(&mut self, rule: &Arc<Rule>) {
        if let Some(place) = self.place_of.remove(&id_of(rule)) {
            self.change(self.key_of(rule), |group| drop(group.remove(&place)));
        }
    }

    /// The rule to evict; it stays until it is removed from its table.
    pub(super) fn victim(&mut self) -> Option<Arc<Rule>> {
        let (_, key) = self.by_size.last()?;
        let group = self.groups.get_mut(key)?;
        for _ in 0..REFRESHED_MAX {
            let first = group.first_entry()?;
            let (importance, seen_ms, id) = *first.key();
            match deadline_ms(first.get()) {
                Some(at_ms) if at_ms > seen_ms => {
                    let place = (importance, at_ms, id);
                    let rule = first.remove();
                    self.place_of.insert(id, place);
                    group.insert(place, rule);
                }
                _ => break,
            }
        }
        group.first_key_value().map(|(_, rule)| rule.clone())
    }
}
