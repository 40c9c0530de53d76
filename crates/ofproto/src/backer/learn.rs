//! Learned rules: additions to the tables by packets, in any thread.

use super::{Backer, LEARNED_LATER_MAX};
use crate::cache::LearnedFlow;
use crate::cause::Cause;
use crate::ids::BridgeId;
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use crate::tables::Tables;
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

/// Whether the rule is the one that a learned flow becomes.
pub(super) fn is_same(there: &Rule, l: &LearnedFlow) -> bool {
    *there.actions == l.actions[..] && there.cookie == l.cookie
}

impl Backer {
    /// Adds a learned rule, or restarts the hard timeout of an existing one. It keeps its idle time, unless that
    /// has passed, and its timeouts, which may have been shortened, as in OVS. A rule whose actions changed is
    /// replaced, unless a later packet learned it. Returns whether there is a rule in its place.
    pub fn learn_rule(&self, bridge: BridgeId, l: &LearnedFlow, used_ms: u64) -> bool {
        let view = self.view();
        let Some(b) = view.bridge(bridge) else { return false };
        let matching = b.tables.pack(l.table, &l.matching);
        let keeps = |there: &Arc<Rule>| {
            let same = is_same(there, l);
            if same {
                there.stats.relearn(used_ms, there.timeouts.idle_s());
            }
            same || there.renewed_ms() > used_ms
        };
        if b.tables.find_exactly(l.table, &matching, l.priority.into()).is_some_and(keeps) {
            return true;
        }
        let learned = self.change_tables(bridge, |tables| {
            // Another thread may have learned it meanwhile.
            let there = tables.find_exactly(l.table, &matching, l.priority.into()).cloned();
            if there.as_ref().is_some_and(keeps) {
                return true;
            }
            if !has_room(tables, &matching, l) {
                return false;
            }
            let mut rule = learned_rule(tables, matching.clone(), l, used_ms);
            tables.also_caused_by(Cause { adds: true, ..Cause::default() });
            match there {
                Some(there) => {
                    rule.stats = there.stats.clone();
                    rule.created_ms = there.created_ms;
                }
                None if !tables.make_room(l.table) => return false,
                None => {}
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
