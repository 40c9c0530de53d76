//! Learned rules: additions to the tables by packets, in any thread.

use super::{Backer, LEARNED_LATER_MAX};
use crate::events::Cause;
use crate::ports::BridgeId;
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use crate::tables::Tables;
use crate::xlate::LearnedFlow;
use flow::PackedMatch;
use std::sync::Arc;
use sync::lock;

/// The rule that a learned flow becomes.
fn learned_rule(tables: &Tables, matching: PackedMatch, l: &LearnedFlow, now_ms: u64) -> Rule {
    Rule {
        table: l.table,
        matching,
        priority: l.priority.into(),
        cookie: l.cookie,
        timeouts: RuleTimeouts::new(l.idle_timeout_s, l.hard_timeout_s, &l.actions),
        importance: 0,
        flags: l.flags,
        actions: tables.intern(&l.actions),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(RuleStats::new(now_ms)),
    }
}

/// Whether the table can take a learned flow under its limit, or has it already; a rule with another cookie in its
/// place does not count.
pub(super) fn has_room(tables: &Tables, matching: &PackedMatch, l: &LearnedFlow) -> bool {
    let there = tables.find_exactly(l.table, matching, l.priority.into());
    if there.is_none() && !tables.may_add(l.table) {
        return false;
    }
    if l.limit == 0 || there.is_some_and(|r| r.cookie == l.cookie) {
        return true;
    }
    tables.len_of_cookie(l.table, l.cookie) < l.limit as usize
}

impl Backer {
    /// Adds a learned rule, or refreshes the age of an existing one. It keeps its idle time, which only matching
    /// packets refresh, and its timeouts, which may have been shortened, as in OVS. A rule whose actions changed is
    /// replaced.
    pub fn learn_rule(&self, bridge: BridgeId, l: &LearnedFlow, used_ms: u64) -> bool {
        let view = self.view();
        let Some(b) = view.bridge(bridge) else { return false };
        let matching = b.tables.pack(l.table, &l.matching);
        let is_same = |there: &Rule| *there.actions == l.actions[..] && there.cookie == l.cookie;
        if let Some(there) = b.tables.find_exactly(l.table, &matching, l.priority.into())
            && is_same(there)
        {
            // Restarts the hard timeout of a rule from the packet that learns it again. Within a second, the unit of
            // timeouts, it does not justify a new version of the tables.
            let stale = there.timeouts.hard_s() != 0 && there.modified_ms + 1000 <= used_ms;
            if !stale {
                return true;
            }
        }
        let learned = self.change_tables(bridge, |tables| {
            if !has_room(tables, &matching, l) {
                return false;
            }
            let mut rule = learned_rule(tables, matching.clone(), l, used_ms);
            let mut refreshes = false;
            if let Some(there) = tables.find_exactly(l.table, &matching, l.priority.into()) {
                if is_same(there) {
                    rule = Rule::clone(there);
                    refreshes = true;
                }
                rule.stats = there.stats.clone();
                rule.created_ms = there.created_ms;
                rule.modified_ms = used_ms.max(there.modified_ms);
            }
            tables.also_caused_by(Cause { adds: !refreshes, ..Cause::default() });
            let replaces = tables.find_exactly(l.table, &matching, l.priority.into()).is_some();
            if !replaces && !tables.make_room(l.table) {
                return false;
            }
            tables.insert(Arc::new(rule));
            true
        });
        learned.unwrap_or_else(|| self.learn_later(bridge, l, used_ms))
    }

    /// Keeps a learned rule until the open transaction ends; returns whether the queue has space.
    fn learn_later(&self, bridge: BridgeId, l: &LearnedFlow, used_ms: u64) -> bool {
        if let Some(waiting) = lock(&self.open).get_mut(&bridge) {
            let has_room = waiting.len() < LEARNED_LATER_MAX;
            if has_room {
                waiting.push((l.clone(), used_ms));
            }
            return has_room;
        }
        // The transaction ended meanwhile, or the bridge was removed.
        self.view().bridge(bridge).is_some() && self.learn_rule(bridge, l, used_ms)
    }
}
