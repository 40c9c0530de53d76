//! [`Rules`]: the rules of all providers of a datapath, and the flows of its cores that use them.
//!
//! Cores may hold the same flow: same input port, and key under mask. They share one rule, which lives as long as one
//! of them. Counters of the device belong to the oldest user, so that each packet counts once; its time of last use
//! counts for all users, so that none of them idles out.
//!
//! Invariants: each rule has users; each user that names a rule is in its list; at most [`RULES_MAX`] rules and
//! [`USERS_MAX`] users.

use super::latency::Latency;
use super::{Accepted, FlowOffload, OffloadRule, RuleId};
use dpif::{DpAction, FlowPut, FlowRecord, FlowStats, OffloadStats, Offloaded, OpResult, PmdId, ReplySink};
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum rules of a datapath.
pub(super) const RULES_MAX: usize = 16_384;
/// Maximum flows that use them.
pub(super) const USERS_MAX: usize = 32_768;

/// Effect of an executed operation on rules.
pub(crate) enum Kind {
    /// Nothing.
    Other,
    /// Its result has flows or counters.
    Read,
    /// As [`Kind::Read`], for counters of flows used at that time or later.
    Counters(u64),
    /// It modified a flow.
    Modify(Ufid, Arc<[DpAction]>),
    /// It deleted a flow.
    Delete,
    /// It deleted all flows of its core.
    Flush,
}

/// The answer to a batch of operations.
pub(crate) struct Answer {
    /// The core.
    pub(crate) pmd: PmdId,
    /// As in the batch.
    pub(crate) tag: u64,
    /// One for each result.
    pub(crate) kinds: Vec<Kind>,
    /// The core's results.
    pub(crate) results: Vec<OpResult>,
    /// As in the batch.
    pub(crate) reply: Option<Arc<dyn ReplySink>>,
}

impl Answer {
    /// Sends it.
    pub(crate) fn send(self) {
        if let Some(reply) = self.reply {
            reply.done(self.pmd, self.tag, self.results);
        }
    }
}

/// A core's flow.
type UserId = (PmdId, Ufid);

/// A match: key under mask, and mask. The key includes the input port.
type Matching = (FlowKey, KeyMask);

struct Rule {
    port: DpPort,
    matching: Box<Matching>,
    mark: u32,
    actions: Arc<[DpAction]>,
    accepted: Accepted,
    /// Counters of the device, as far as users have them.
    seen: FlowStats,
    /// The oldest first.
    users: Vec<UserId>,
}

#[derive(Default)]
struct User {
    /// `None`: its rule was removed.
    rule: Option<RuleId>,
    /// Its part of the counters.
    counted: FlowStats,
    /// The device's last use before.
    used_before_ms: u64,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Rules {
    providers: BTreeMap<DpPort, Box<dyn FlowOffload>>,
    rules: HashMap<RuleId, Rule>,
    by_matching: HashMap<Matching, RuleId>,
    users: HashMap<UserId, User>,
    /// Number of rules so far.
    named: u64,
    refused: u64,
    latency: Latency,
}

impl Rules {
    /// Adds a provider.
    pub(super) fn port_add(&mut self, port: DpPort, provider: Box<dyn FlowOffload>) {
        self.providers.insert(port, provider);
    }

    /// Removes the rules of a port, and its provider.
    pub(super) fn port_del(&mut self, port: DpPort) {
        let rules = self.rules.iter().filter(|(_, rule)| rule.port == port);
        let ids: Vec<RuleId> = rules.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.remove(id));
        self.providers.remove(&port);
    }

    /// Removes all rules and providers.
    pub(super) fn clear(&mut self) {
        let ports: Vec<DpPort> = self.providers.keys().copied().collect();
        ports.into_iter().for_each(|port| self.port_del(port));
    }

    /// A core has put a flow. Its rule is a new one, or the one of the same flow of another core.
    pub(super) fn put(&mut self, pmd: PmdId, flow: &FlowPut, mark: u32) {
        let accepted = self.try_put(pmd, flow, mark);
        self.refused += u64::from(!accepted);
        log::debug!(target: "dpif_netdev", "{} to add netdev flow {}", outcome(accepted), flow.ufid);
    }

    fn try_put(&mut self, pmd: PmdId, flow: &FlowPut, mark: u32) -> bool {
        let user = (pmd, flow.ufid);
        if self.users.contains_key(&user) || self.users.len() >= USERS_MAX {
            return false;
        }
        let matching = (flow.key.masked(&flow.mask), flow.mask);
        if let Some(id) = self.by_matching.get(&matching).copied() {
            self.sync(id);
            return self.replace(id, &flow.actions) && self.join(id, user);
        }
        let port = flow.key.in_port();
        let id = RuleId(self.named);
        let Some(provider) = self.providers.get_mut(&port).filter(|_| self.rules.len() < RULES_MAX) else {
            return false;
        };
        let (key, mask) = (&matching.0, &matching.1);
        let rule = OffloadRule { id, mark, key, mask, actions: &flow.actions };
        let Some(accepted) = provider.put(&rule) else { return false };
        self.named += 1;
        let actions = flow.actions.clone();
        let seen = FlowStats::default();
        let matching = Box::new(matching);
        self.by_matching.insert(*matching, id);
        self.rules.insert(id, Rule { port, matching, mark, actions, accepted, seen, users: Vec::new() });
        self.join(id, user)
    }

    fn join(&mut self, id: RuleId, user: UserId) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        rule.users.push(user);
        let used_before_ms = rule.seen.used_ms;
        self.users.insert(user, User { rule: Some(id), used_before_ms, ..User::default() });
        true
    }

    /// Replaces the actions of a rule; `false` if the provider refused and the rule was removed.
    fn replace(&mut self, id: RuleId, actions: &Arc<[DpAction]>) -> bool {
        let Some(rule) = self.rules.get_mut(&id) else { return false };
        if rule.actions == *actions {
            return true;
        }
        let Some(provider) = self.providers.get_mut(&rule.port) else { return false };
        let (key, mask) = (&rule.matching.0, &rule.matching.1);
        match provider.put(&OffloadRule { id, mark: rule.mark, key, mask, actions }) {
            Some(accepted) => {
                rule.accepted = accepted;
                rule.actions = actions.clone();
                true
            }
            None => {
                self.remove(id);
                false
            }
        }
    }

    /// Removes a rule. Its users get its last counters, and keep theirs until they end.
    fn remove(&mut self, id: RuleId) {
        let Some(rule) = self.rules.get(&id) else { return };
        let last = self.providers.get_mut(&rule.port).and_then(|provider| provider.del(id));
        self.credit(id, last);
        let Some(rule) = self.rules.remove(&id) else { return };
        self.by_matching.remove(&*rule.matching);
        for user in rule.users {
            self.users.entry(user).and_modify(|user| user.rule = None);
        }
    }

    /// Reads the counters of a rule; `false` if it has none.
    fn sync(&mut self, id: RuleId) -> bool {
        let Some(rule) = self.rules.get(&id) else { return false };
        let now = self.providers.get_mut(&rule.port).and_then(|provider| provider.stats(id));
        self.credit(id, now);
        now.is_some()
    }

    /// Gives the users of a rule what the device counted since the last time.
    fn credit(&mut self, id: RuleId, now: Option<FlowStats>) {
        let (Some(rule), Some(now)) = (self.rules.get_mut(&id), now) else { return };
        let seen = std::mem::replace(&mut rule.seen, now);
        for (n, user) in rule.users.iter().enumerate() {
            let Some(user) = self.users.get_mut(user) else { continue };
            if n == 0 {
                user.counted.packets += now.packets.saturating_sub(seen.packets);
                user.counted.bytes += now.bytes.saturating_sub(seen.bytes);
                user.counted.tcp_flags |= now.tcp_flags;
            }
            if now.used_ms > user.used_before_ms {
                user.counted.used_ms = user.counted.used_ms.max(now.used_ms);
            }
        }
    }

    /// A flow of a core has ended: adds its final counters.
    pub(super) fn end(&mut self, pmd: PmdId, flow: &mut FlowRecord) {
        if let Some(user) = self.leave((pmd, flow.ufid)) {
            add(&mut flow.stats, &user.counted);
        }
    }

    /// Removes a user, and its rule if it was the last one; returns its final counters.
    fn leave(&mut self, id: UserId) -> Option<User> {
        if let Some(rule) = self.users.get(&id)?.rule {
            self.sync(rule);
            let users = self.rules.get_mut(&rule).map(|rule| &mut rule.users);
            if users.is_some_and(|users| users.len() == 1) {
                self.remove(rule);
                log::debug!(target: "dpif_netdev", "succeed to delete netdev flow {}", id.1);
            } else if let Some(rule) = self.rules.get_mut(&rule) {
                rule.users.retain(|user| *user != id);
            }
        }
        self.users.remove(&id)
    }

    /// Carries out what executed operations mean for rules, and adds the counters of devices to their results.
    pub(super) fn complete(&mut self, answer: &mut Answer) {
        let pmd = answer.pmd;
        for (kind, result) in answer.kinds.iter().zip(&mut answer.results) {
            match (kind, result) {
                (Kind::Delete, OpResult::Flow(flow)) => self.end(pmd, flow),
                (Kind::Read, OpResult::Flow(flow)) => self.show(pmd, flow),
                (Kind::Read, OpResult::Dump(flows, _)) => flows.iter_mut().for_each(|f| self.show(pmd, f)),
                (Kind::Counters(since_ms), OpResult::Counters(flows, _)) => {
                    for (ufid, stats) in &mut *flows {
                        self.count((pmd, *ufid), stats);
                    }
                    flows.retain(|(_, stats)| stats.used_ms >= *since_ms);
                }
                (Kind::Modify(ufid, actions), OpResult::Done) => self.modify((pmd, *ufid), actions),
                (Kind::Flush, OpResult::Done) => self.flush(pmd),
                // It failed, or concerns no rule.
                _ => {}
            }
        }
    }

    fn modify(&mut self, user: UserId, actions: &Arc<[DpAction]>) {
        let Some(id) = self.users.get(&user).and_then(|user| user.rule) else { return };
        let accepted = self.replace(id, actions);
        self.refused += u64::from(!accepted);
        log::debug!(target: "dpif_netdev", "{} to modify netdev flow {}", outcome(accepted), user.1);
    }

    fn flush(&mut self, pmd: PmdId) {
        let users: Vec<UserId> = self.users.keys().filter(|user| user.0 == pmd).copied().collect();
        for user in users {
            // Nobody asks for the counters of flushed flows.
            self.leave(user);
        }
    }

    /// Adds the device's part of a flow's counters; returns the rule that counts on.
    fn count(&mut self, id: UserId, stats: &mut FlowStats) -> Option<RuleId> {
        let rule = self.users.get(&id)?.rule;
        let counts = rule.filter(|rule| self.sync(*rule));
        add(stats, &self.users.get(&id)?.counted);
        counts
    }

    fn show(&mut self, pmd: PmdId, flow: &mut FlowRecord) {
        let Some(rule) = self.count((pmd, flow.ufid), &mut flow.stats) else { return };
        flow.offloaded = match self.rules.get(&rule).map(|rule| rule.accepted) {
            Some(Accepted::Executes(layer)) => Offloaded::Full(layer),
            Some(Accepted::Marks) => Offloaded::Partial,
            None => Offloaded::No,
        };
    }

    /// Adds a sample of the time that a put took.
    pub(super) fn note_latency(&mut self, us: u64) {
        self.latency.add(us);
    }

    /// Statistics.
    pub(super) fn stats(&self) -> OffloadStats {
        OffloadStats {
            enqueued: 0,
            inserted: self.providers.values().map(|provider| provider.inserted()).sum(),
            refused: self.refused,
            latency: self.latency.shown(),
        }
    }
}

#[cfg(test)]
impl Rules {
    /// Rules and users.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.rules.len(), self.users.len())
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        assert_eq!(self.rules.len(), self.by_matching.len());
        for (id, rule) in &self.rules {
            assert!(!rule.users.is_empty() && self.by_matching[&rule.matching] == *id);
            assert!(rule.users.iter().all(|user| self.users[user].rule == Some(*id)));
        }
        let named = self.users.values().filter(|user| user.rule.is_some()).count();
        assert_eq!(named, self.rules.values().map(|rule| rule.users.len()).sum::<usize>());
    }
}

fn outcome(accepted: bool) -> &'static str {
    if accepted { "succeed" } else { "failed" }
}

fn add(stats: &mut FlowStats, more: &FlowStats) {
    stats.packets += more.packets;
    stats.bytes += more.bytes;
    stats.used_ms = stats.used_ms.max(more.used_ms);
    stats.tcp_flags |= more.tcp_flags;
}
