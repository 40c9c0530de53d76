//! Rules changed while a connection is paused, by the number of their last change.

use ofproto::events::RuleEvent;
use ofproto::rule::Rule;
use rapidhash::RapidHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// When a rule changed.
pub(crate) struct Stamp {
    /// The rule as it is.
    pub(super) rule: Arc<Rule>,
    /// Number of the change that put the first rule in its place; 0 if it is older than the stamps.
    first: u64,
    /// Number of the last change that added it.
    pub(super) added: u64,
}

/// See the module documentation. Bounded by the number of rules.
#[derive(Default)]
pub(crate) struct Stamps {
    by_change: BTreeMap<u64, Stamp>,
    /// Number of the last change of a rule, by its identity.
    of_rule: RapidHashMap<usize, u64>,
    /// Number of the next change; `None` without paused connections.
    next: Option<u64>,
}

fn id_of(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule) as usize
}

impl Stamps {
    /// Number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.next.unwrap_or_default()
    }

    /// Lets a connection pause before change `n`; not if other paused connections are elsewhere.
    pub(super) fn join(&mut self, n: u64) -> bool {
        *self.next.get_or_insert(n) == n
    }

    /// Number of the change that put the first rule in the place of this one; 0 if that is long ago.
    pub(super) fn first_of(&self, rule: &Arc<Rule>) -> u64 {
        self.stamp(rule).map_or(0, |s| s.first)
    }

    fn stamp(&self, rule: &Arc<Rule>) -> Option<&Stamp> {
        self.by_change.get(self.of_rule.get(&id_of(rule))?)
    }

    /// Follows change `n`.
    pub(super) fn apply(&mut self, n: u64, event: &RuleEvent) {
        self.next = Some(n + 1);
        let (before, after) = (&event.change.before, &event.change.after);
        let old = before.as_ref().and_then(|rule| self.by_change.remove(&self.of_rule.remove(&id_of(rule))?));
        let Some(rule) = after.clone() else { return };
        let is_new = before.is_none();
        let changed =
            is_new || event.cause.adds || before.as_ref().is_some_and(|before| super::differ(before, &rule));
        if !changed && old.is_none() {
            return;
        }
        let old_added = old.as_ref().map_or(0, |s| s.added);
        let stamp = Stamp {
            first: if is_new { n } else { old.map_or(0, |s| s.first) },
            added: if is_new || event.cause.adds { n } else { old_added },
            rule,
        };
        self.of_rule.insert(id_of(&stamp.rule), n);
        self.by_change.insert(n, stamp);
    }

    /// Rules changed from change `n` on, in the order of their last changes.
    pub(super) fn since(&self, n: u64) -> impl Iterator<Item = (u64, &Stamp)> {
        self.by_change.range(n..).map(|(n, stamp)| (*n, stamp))
    }
}
