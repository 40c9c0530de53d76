//! The rules of a subtable that share one hash: nearly always one rule, or one match at several priorities.

use std::cmp::Reverse;
use std::sync::Arc;

/// What tells rules of one subtable apart. Orders by descending priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    priority: Reverse<i32>,
    /// The words under the subtable's mask, shared with the rule's match.
    values: Arc<[u64]>,
}

impl Key {
    pub(crate) fn new(priority: i32, values: Arc<[u64]>) -> Key {
        Key { priority: Reverse(priority), values }
    }

    /// Whether it is the key of that priority and these values.
    fn is(&self, priority: i32, values: &Arc<[u64]>) -> bool {
        self.priority.0 == priority && (Arc::ptr_eq(&self.values, values) || self.values == *values)
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority.0
    }

    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }
}

/// The rules of one hash.
#[derive(Clone)]
pub(crate) enum Bucket<R> {
    /// One rule.
    One(Key, R),
    /// Two rules or more, highest priority first.
    Many(Arc<imbl::OrdMap<Key, R>>),
}

impl<R: Clone> Bucket<R> {
    pub(crate) fn new(key: Key, rule: R) -> Bucket<R> {
        Bucket::One(key, rule)
    }

    /// All rules, highest priority first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &R)> {
        let (one, many) = match self {
            Bucket::One(key, rule) => (Some((key, rule)), None),
            Bucket::Many(rules) => (None, Some(rules)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|rules| rules.iter()))
    }

    /// The rule of highest priority whose values satisfy `matches`.
    #[inline]
    pub(crate) fn best(&self, matches: impl Fn(&[u64]) -> bool) -> Option<(i32, &R)> {
        match self {
            Bucket::One(key, rule) => matches(key.values()).then(|| (key.priority(), rule)),
            Bucket::Many(rules) => {
                let found = rules.iter().find(|(key, _)| matches(key.values()));
                found.map(|(key, rule)| (key.priority(), rule))
            }
        }
    }

    /// The rule of exactly that priority and these values.
    pub(crate) fn get(&self, priority: i32, values: &Arc<[u64]>) -> Option<&R> {
        match self {
            Bucket::One(own, rule) => own.is(priority, values).then_some(rule),
            Bucket::Many(rules) => rules.get(&Key::new(priority, values.clone())),
        }
    }

    /// Adds a rule; returns the one it replaces.
    pub(crate) fn insert(&mut self, key: Key, rule: R) -> Option<R> {
        match self {
            Bucket::One(own, there) if *own == key => Some(std::mem::replace(there, rule)),
            Bucket::One(own, there) => {
                let mut rules = imbl::OrdMap::unit(own.clone(), there.clone());
                rules.insert(key, rule);
                *self = Bucket::Many(Arc::new(rules));
                None
            }
            Bucket::Many(rules) => Arc::make_mut(rules).insert(key, rule),
        }
    }

    /// Removes one of several rules.
    pub(crate) fn remove(&mut self, priority: i32, values: &Arc<[u64]>) -> Option<R> {
        let Bucket::Many(rules) = self else { return None };
        let rules = Arc::make_mut(rules);
        let removed = rules.remove(&Key::new(priority, values.clone()))?;
        if rules.len() == 1
            && let Some((own, rule)) = rules.get_min().cloned()
        {
            *self = Bucket::One(own, rule);
        }
        Some(removed)
    }
}
