//! [`ZonePlanner`]: from the connection tracking zones that a datapath has to those of the database, as steps.
//!
//! 1. Create new timeout policies, under the lowest free numbers.
//! 2. Assign policies to zones: translations name them from then on.
//! 3. Change limits, some at a time.
//!
//! Policies without a zone stay until no flow or connection names them: [`ZonePlanner::leaving`] lists them, and the
//! owner removes them later. A step that fails changes nothing here, so the next plan has it again. The owner is the
//! daemon, one planner for each datapath.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use dpif::{CtZone, TimeoutId, TimeoutPolicy};

use crate::config::CtConfig;

/// Limits changed by one step.
const LIMITS_AT_ONCE: usize = 256;

/// A step. The owner executes it and reports its result by [`ZonePlanner::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneStep {
    /// Create a timeout policy.
    SetPolicy(TimeoutId, TimeoutPolicy),
    /// Give zones these policies, and all others none. Cannot fail.
    Assign(BTreeMap<u16, TimeoutId>),
    /// Set limits.
    SetLimits(Vec<(CtZone, u32)>),
    /// Remove limits.
    RemoveLimits(Vec<CtZone>),
}

/// The zones of one datapath, as far as the database sets them.
#[derive(Clone, Debug, Default)]
pub struct ZonePlanner {
    wanted: Arc<CtConfig>,
    queue: VecDeque<Pending>,
    policies: BTreeMap<TimeoutPolicy, TimeoutId>,
    assigned: BTreeMap<u16, TimeoutId>,
    limits: BTreeMap<CtZone, u32>,
    leaving: BTreeSet<TimeoutId>,
}

#[derive(Clone, Debug)]
enum Pending {
    Ready(ZoneStep),
    /// An assignment of the policies that exist by then.
    Assign,
}

impl ZonePlanner {
    /// A planner for a datapath that has these policies of a former process: they leave.
    pub fn new(left_behind: impl IntoIterator<Item = TimeoutId>) -> ZonePlanner {
        ZonePlanner { leaving: left_behind.into_iter().collect(), ..ZonePlanner::default() }
    }

    /// The configuration.
    pub fn wanted(&self) -> &Arc<CtConfig> {
        &self.wanted
    }

    /// Takes a new configuration, and plans all steps to it again.
    pub fn plan(&mut self, wanted: Arc<CtConfig>) {
        self.wanted = wanted;
        self.queue.clear();
        let timeouts = self.wanted.zones.values().map(|zone| zone.timeouts);
        let policies: BTreeSet<TimeoutPolicy> = timeouts.filter(|t| !t.is_empty()).collect();
        let new: Vec<_> = policies.into_iter().filter(|p| !self.policies.contains_key(p)).collect();
        let taken: BTreeSet<TimeoutId> = self.policies.values().chain(&self.leaving).copied().collect();
        let free = (1..=u32::MAX).filter_map(NonZeroU32::new).map(TimeoutId).filter(|id| !taken.contains(id));
        let steps = free.zip(new).map(|(id, policy)| Pending::Ready(ZoneStep::SetPolicy(id, policy)));
        self.queue.extend(steps);
        self.queue.push_back(Pending::Assign);
        self.plan_limits();
    }

    fn plan_limits(&mut self) {
        let own = self.wanted.zones.iter().filter_map(|(zone, c)| Some((CtZone::Zone(*zone), c.limit?)));
        let default = self.wanted.default_limit.map(|limit| (CtZone::Default, limit));
        let wanted: BTreeMap<CtZone, u32> = default.into_iter().chain(own).collect();
        let gone: Vec<CtZone> = self.limits.keys().filter(|z| !wanted.contains_key(z)).copied().collect();
        let new: Vec<_> = wanted.into_iter().filter(|(z, limit)| self.limits.get(z) != Some(limit)).collect();
        let removed = gone.chunks(LIMITS_AT_ONCE).map(|some| ZoneStep::RemoveLimits(some.to_vec()));
        let set = new.chunks(LIMITS_AT_ONCE).map(|some| ZoneStep::SetLimits(some.to_vec()));
        self.queue.extend(removed.chain(set).map(Pending::Ready));
    }

    /// The next step.
    pub fn next_step(&mut self) -> Option<ZoneStep> {
        loop {
            match self.queue.pop_front()? {
                Pending::Ready(step) => return Some(step),
                Pending::Assign => {
                    let zones = self.wanted.zones.iter();
                    let policy = |(zone, c): (&u16, &crate::config::CtZoneConfig)| {
                        Some((*zone, *self.policies.get(&c.timeouts)?))
                    };
                    let assigned = zones.filter_map(policy).collect();
                    if assigned != self.assigned {
                        return Some(ZoneStep::Assign(assigned));
                    }
                }
            }
        }
    }

    /// Whether no step is left.
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty()
    }

    /// Reports the result of a step.
    pub fn done(&mut self, step: ZoneStep, succeeded: bool) {
        match step {
            ZoneStep::SetPolicy(id, policy) if succeeded => {
                self.policies.insert(policy, id);
            }
            // A part of it may exist.
            ZoneStep::SetPolicy(id, _) => {
                self.leaving.insert(id);
            }
            ZoneStep::Assign(assigned) => {
                let used: BTreeSet<TimeoutId> = assigned.values().copied().collect();
                let unused = self.policies.extract_if(.., |_, id| !used.contains(id));
                self.leaving.extend(unused.map(|(_, id)| id));
                self.assigned = assigned;
            }
            ZoneStep::SetLimits(set) if succeeded => self.limits.extend(set),
            ZoneStep::RemoveLimits(zones) if succeeded => {
                self.limits.retain(|zone, _| !zones.contains(zone));
            }
            ZoneStep::SetLimits(_) | ZoneStep::RemoveLimits(_) => {}
        }
    }

    /// Policies to remove.
    pub fn leaving(&self) -> &BTreeSet<TimeoutId> {
        &self.leaving
    }

    /// Reports that a policy is removed: its number is free.
    pub fn left(&mut self, id: TimeoutId) {
        self.leaving.remove(&id);
    }
}

#[cfg(test)]
mod tests;
