//! The rules of a subtable with the same hash: nearly always one rule, or one match at several priorities.

use crate::ClsRule;
use flow::MaskedWords;
use std::cmp::Reverse;
use std::sync::Arc;

/// Identity of a rule in its subtable, ordered by descending priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    priority: Reverse<i32>,
    values: MaskedWords,
}

impl Key {
    fn of<R: ClsRule>(rule: &R) -> Key {
        Key { priority: Reverse(rule.priority()), values: rule.matching().values().clone() }
    }
}

/// Whether a rule has that priority and these values.
fn is<R: ClsRule>(rule: &R, priority: i32, values: &MaskedWords) -> bool {
    rule.priority() == priority && rule.matching().values() == values
}

/// The rules of one hash.
#[derive(Clone, Default)]
pub(crate) enum Bucket<R> {
    /// No rule: the remainder of a moved bucket.
    #[default]
    Empty,
    /// One rule.
    One(R),
    /// Two rules or more, highest priority first.
    Many(Arc<imbl::OrdMap<Key, R>>),
}

impl<R: ClsRule + Clone> Bucket<R> {
    /// All rules, highest priority first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        let (one, many) = match self {
            Bucket::Empty => (None, None),
            Bucket::One(rule) => (Some(rule), None),
            Bucket::Many(rules) => (None, Some(rules)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|rules| rules.values()))
    }

    /// The rule of exactly that priority and these values.
    pub(crate) fn get(&self, priority: i32, values: &MaskedWords) -> Option<&R> {
        match self {
            Bucket::Empty => None,
            Bucket::One(rule) => is(rule, priority, values).then_some(rule),
            Bucket::Many(rules) => rules.get(&Key { priority: Reverse(priority), values: values.clone() }),
        }
    }

    /// Adds a rule; returns the one it replaces.
    pub(crate) fn insert(&mut self, rule: R) -> Option<R> {
        match self {
            Bucket::Empty => {
                *self = Bucket::One(rule);
                None
            }
            Bucket::One(there) if is(there, rule.priority(), rule.matching().values()) => {
                Some(std::mem::replace(there, rule))
            }
            Bucket::One(there) => {
                let mut rules = imbl::OrdMap::unit(Key::of(there), there.clone());
                rules.insert(Key::of(&rule), rule);
                *self = Bucket::Many(Arc::new(rules));
                None
            }
            Bucket::Many(rules) => Arc::make_mut(rules).insert(Key::of(&rule), rule),
        }
    }

    /// Removes a rule of a bucket with several.
    pub(crate) fn remove(&mut self, priority: i32, values: &MaskedWords) -> Option<R> {
        let Bucket::Many(rules) = self else { return None };
        let rules = Arc::make_mut(rules);
        let removed = rules.remove(&Key { priority: Reverse(priority), values: values.clone() })?;
        if rules.len() == 1
            && let Some((_, last)) = rules.get_min()
        {
            *self = Bucket::One(last.clone());
        }
        Some(removed)
    }
}
