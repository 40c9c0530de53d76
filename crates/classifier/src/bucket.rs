//! The rules of a subtable that share one hash: nearly always one rule, or one match at several priorities.
//!
//! Invariant: `first` is the highest of all by [`Key`]'s order, so the first entry with the values sought is the one of
//! highest priority.

use std::cmp::Reverse;

/// What tells rules of one subtable apart. Orders by descending priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    priority: Reverse<i32>,
    /// The words under the subtable's mask.
    values: Box<[u64]>,
}

impl Key {
    pub(crate) fn new(priority: i32, values: Box<[u64]>) -> Key {
        Key { priority: Reverse(priority), values }
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
pub(crate) struct Bucket<R> {
    first: (Key, R),
    rest: imbl::OrdMap<Key, R>,
}

impl<R: Clone> Bucket<R> {
    pub(crate) fn new(key: Key, rule: R) -> Bucket<R> {
        Bucket { first: (key, rule), rest: imbl::OrdMap::new() }
    }

    /// All rules, highest priority first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &R)> {
        std::iter::once((&self.first.0, &self.first.1)).chain(self.rest.iter())
    }

    /// The rule of highest priority whose values satisfy `matches`.
    #[inline]
    pub(crate) fn best(&self, matches: impl Fn(&[u64]) -> bool) -> Option<(i32, &R)> {
        if matches(self.first.0.values()) {
            return Some((self.first.0.priority(), &self.first.1));
        }
        self.rest.iter().find(|(key, _)| matches(key.values())).map(|(key, rule)| (key.priority(), rule))
    }

    /// The rule of exactly that key.
    pub(crate) fn get(&self, key: &Key) -> Option<&R> {
        if self.first.0 == *key { Some(&self.first.1) } else { self.rest.get(key) }
    }

    /// Adds a rule; returns the one it replaces.
    pub(crate) fn insert(&mut self, key: Key, rule: R) -> Option<R> {
        if self.first.0 == key {
            return Some(std::mem::replace(&mut self.first.1, rule));
        }
        if key < self.first.0 {
            let (key, rule) = std::mem::replace(&mut self.first, (key, rule));
            return self.rest.insert(key, rule);
        }
        self.rest.insert(key, rule)
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, key: &Key) -> Removed<R> {
        if self.first.0 != *key {
            return self.rest.remove(key).map_or(Removed::Nothing, Removed::One);
        }
        let Some(next) = self.rest.get_min().map(|(next, _)| next.clone()) else {
            return Removed::Last(self.first.1.clone());
        };
        let Some(next) = self.rest.remove_with_key(&next) else { unreachable!("the key was just read") };
        Removed::One(std::mem::replace(&mut self.first, next).1)
    }
}

/// Outcome of [`Bucket::remove`].
pub(crate) enum Removed<R> {
    /// There is no such rule.
    Nothing,
    /// The rule is out.
    One(R),
    /// It was the only one and is still in: the bucket itself must go.
    Last(R),
}
