//! The classifier's interface to a rule.

use flow::PackedMatch;
use std::sync::Arc;

/// A rule of a classifier. The results of these methods never change while the rule is in a classifier.
pub trait ClsRule {
    /// Its match.
    fn matching(&self) -> &PackedMatch;

    /// Higher wins.
    fn priority(&self) -> i32;

    /// Whether it is one clause of a conjunction, which does not match by itself.
    fn is_soft(&self) -> bool;
}

impl<R: ClsRule> ClsRule for Arc<R> {
    fn matching(&self) -> &PackedMatch {
        R::matching(self)
    }

    fn priority(&self) -> i32 {
        R::priority(self)
    }

    fn is_soft(&self) -> bool {
        R::is_soft(self)
    }
}
