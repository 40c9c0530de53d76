//! [`Plain`]: a classifier of rules with a value, for tests that compare only the value.

use crate::{Classifier, ClsRule, Walk};
use flow::{Flow, Mask, Match, PackedMatch};
use std::ops::{Deref, DerefMut};

#[derive(Clone, Debug)]
pub(super) struct PlainRule<T> {
    matching: PackedMatch,
    priority: i32,
    is_soft: bool,
    value: T,
}

impl<T> ClsRule for PlainRule<T> {
    fn matching(&self) -> &PackedMatch {
        &self.matching
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn is_soft(&self) -> bool {
        self.is_soft
    }
}

#[derive(Clone)]
pub(super) struct Plain<T: Clone>(Classifier<PlainRule<T>>);

impl<T: Clone> Deref for Plain<T> {
    type Target = Classifier<PlainRule<T>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: Clone> DerefMut for Plain<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T: Clone> Plain<T> {
    pub(super) fn new(seed: u64) -> Plain<T> {
        Plain(Classifier::new(seed))
    }

    pub(super) fn insert(&mut self, m: &PackedMatch, priority: i32, value: T) -> Option<T> {
        self.0
            .insert(PlainRule { matching: m.clone(), priority, is_soft: false, value })
            .map(|rule| rule.value)
    }

    /// Adds one clause of a conjunction.
    pub(super) fn insert_soft(&mut self, m: &PackedMatch, priority: i32, value: T) {
        self.0.insert(PlainRule { matching: m.clone(), priority, is_soft: true, value });
    }

    pub(super) fn remove(&mut self, m: &PackedMatch, priority: i32) -> Option<T> {
        self.0.remove(m, priority).map(|rule| rule.value)
    }

    pub(super) fn find_exactly(&self, m: &PackedMatch, priority: i32) -> Option<&T> {
        self.0.find_exactly(m, priority).map(|rule| &rule.value)
    }

    pub(super) fn lookup(&self, flow: &Flow, wc: Option<&mut Mask>) -> Option<&T> {
        self.lookup_with_priority(flow, wc).map(|(_, value)| value)
    }

    pub(super) fn lookup_with_priority(&self, flow: &Flow, wc: Option<&mut Mask>) -> Option<(i32, &T)> {
        self.0.lookup(flow, wc).map(|rule| (rule.priority, &rule.value))
    }

    /// The best hard rule, and the soft ones above it.
    pub(super) fn lookup_conjunctive(&self, flow: &Flow, wc: &mut Mask) -> (Option<&T>, Vec<&T>) {
        let found = self.0.lookup_conjunctive(flow, Some(wc));
        (found.hard.map(|rule| &rule.value), found.soft.iter().map(|rule| &rule.value).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Match, i32, &T)> {
        self.0.iter().map(|rule| (rule.matching.unpack(), rule.priority, &rule.value))
    }

    pub(super) fn within(&self, m: &Match) -> impl Iterator<Item = &T> {
        self.0.within(m).map(|rule| &rule.value)
    }

    pub(super) fn walk_on(&self, walk: &mut Walk, m: &Match, max: usize, out: &mut Vec<T>) -> usize {
        let mut rules = Vec::new();
        let looked = self.0.walk_on(walk, m, max, &mut rules);
        out.extend(rules.into_iter().map(|rule| rule.value));
        looked
    }
}
