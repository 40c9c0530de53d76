//! [`Zones`]: limits and timeout policies that the database sets for a datapath's connection tracking zones.
//!
//! Steps of [`ZonePlanner`] run some per turn of the main loop. Settings that the datapath lacks or refuses are logged
//! once and returned for the status of its bridges; refused steps run again with the next configuration or request.
//! An unused timeout policy is removed after a round of the revalidator, since flows may name it until then, and
//! again after a while if the datapath still uses it.

use dpif::{Connections, CtZone, DpifError, TimeoutAttr, TimeoutId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use vswitch::config::CtConfig;
use vswitch::plan::{ZonePlanner, ZoneStep};

/// Steps per turn: one is at most some requests to the kernel.
const STEPS_PER_TURN: usize = 32;
/// Unused policies removed per call.
const REMOVED_AT_ONCE: usize = 32;
/// Pause before another attempt to remove policies in use, as in Open vSwitch.
const BUSY_PAUSE_MS: u64 = 20_000;
/// Failures of a configuration that are logged and shown.
const FAILURES_SHOWN: usize = 3;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Zones {
    /// As in the database.
    config: Arc<CtConfig>,
    planner: ZonePlanner,
    /// The first ones of the present configuration, and their number.
    failures: (Vec<String>, usize),
    /// The text last returned by [`Zones::take_report`].
    reported: Option<String>,
    /// Unused policies may be removed after this round of the revalidator; `None`: order one.
    after_round: Option<u64>,
    next_removal_ms: u64,
}

impl Zones {
    /// The zones of a new datapath: none. Policies of a former process become unused.
    pub(crate) fn new(datapath: &str, tracker: Option<&dyn Connections>) -> Zones {
        let left_behind = match tracker.and_then(Connections::timeout_policies).map(|p| p.list()) {
            // Without support there are none.
            None | Some(Err(DpifError::Unsupported(_))) => Vec::new(),
            Some(Ok(ids)) => ids,
            Some(Err(e)) => {
                log::warn!(target: "ct_dpif", "{datapath}: cannot list timeout policies: {e}");
                Vec::new()
            }
        };
        Zones { planner: ZonePlanner::new(left_behind), ..Zones::default() }
    }

    /// Whether the database sets any limit, so that commands may not.
    pub(crate) fn own_limits(&self) -> bool {
        self.config.sets_limits()
    }

    /// Takes a new configuration.
    pub(crate) fn set(&mut self, datapath: &str, tracker: Option<&dyn Connections>, config: Arc<CtConfig>) {
        self.config = config;
        self.plan(datapath, tracker);
    }

    /// Plans failed steps again.
    pub(crate) fn retry(&mut self, datapath: &str, tracker: Option<&dyn Connections>) {
        if self.failures.1 > 0 {
            self.plan(datapath, tracker);
        }
    }

    fn plan(&mut self, datapath: &str, tracker: Option<&dyn Connections>) {
        self.failures = Default::default();
        let mut possible = self.config.clone();
        if tracker.is_none() {
            if *possible != CtConfig::default() {
                self.failed(format!("{datapath} tracks no connections: limits and timeouts of its zones (datapaths) have no effect"));
            }
            possible = Arc::default();
        } else if let Some(policies) = tracker.and_then(Connections::timeout_policies) {
            let policies = policies.ignored();
            let sets =
                |attr: &&TimeoutAttr| possible.zones.values().any(|z| z.timeouts.get(**attr).is_some());
            let ignored: Vec<_> = policies.iter().filter(sets).map(|attr| attr.key()).collect();
            if !ignored.is_empty() {
                let ignored = ignored.join(", ");
                self.failed(format!(
                    "{datapath} has no timeout {ignored}: in timeout policies it has no effect"
                ));
            }
        } else if possible.sets_timeouts() {
            self.failed(format!(
                "{datapath} has fixed timeouts of connections: timeout policies of its zones (datapaths) have no effect"
            ));
            let zones = Arc::make_mut(&mut possible).zones.values_mut();
            zones.for_each(|zone| zone.timeouts = Default::default());
        }
        self.planner.plan(possible);
    }

    fn failed(&mut self, why: String) {
        let (first, count) = &mut self.failures;
        *count += 1;
        if first.len() < FAILURES_SHOWN {
            log::error!(target: "ofproto_dpif", "{why}");
            first.push(why);
        }
    }

    /// Executes some steps; returns whether some are left. `assign` publishes the policies of zones to translations.
    pub(crate) fn run(
        &mut self,
        datapath: &str,
        tracker: Option<&dyn Connections>,
        assign: &mut dyn FnMut(BTreeMap<u16, TimeoutId>),
    ) -> bool {
        for _ in 0..STEPS_PER_TURN {
            let Some(step) = self.planner.next_step() else { break };
            let result = match (tracker, &step) {
                (_, ZoneStep::Assign(zones)) => {
                    assign(zones.clone());
                    self.after_round = None;
                    Ok(())
                }
                (Some(tracker), step) => execute(tracker, step),
                // Without a tracker only removals are planned, of nothing.
                (None, _) => Ok(()),
            };
            if let Err(e) = &result {
                self.failed(format!("{datapath}: {}: {e}", described(&step)));
                // A part of a policy may exist.
                self.after_round = None;
            }
            self.planner.done(step, result.is_ok());
        }
        !self.planner.is_settled()
    }

    /// Whether no step is left.
    pub(crate) fn is_settled(&self) -> bool {
        self.planner.is_settled()
    }

    /// The failures of the present configuration, if they changed since the last call; `Some(None)`: none any more.
    pub(crate) fn take_report(&mut self) -> Option<Option<String>> {
        if !self.planner.is_settled() {
            return None;
        }
        let (first, count) = &self.failures;
        let mut text = first.join("; ");
        if *count > first.len() {
            // Writing to a string cannot fail.
            let _infallible = write!(text, "; and {} more", count - first.len());
        }
        let text = (!text.is_empty()).then_some(text);
        (text != self.reported).then(|| {
            self.reported.clone_from(&text);
            text
        })
    }

    /// Removes unused policies, once a round of the revalidator is complete: `finished` of them are, and `order`
    /// begins one and returns its number.
    pub(crate) fn remove_unused(
        &mut self,
        tracker: Option<&dyn Connections>,
        finished: u64,
        now_ms: u64,
        order: &mut dyn FnMut() -> u64,
    ) {
        if self.planner.leaving().is_empty() || !self.planner.is_settled() {
            return;
        }
        match self.after_round {
            None => (self.after_round, self.next_removal_ms) = (Some(order()), 0),
            Some(round) if finished > round && now_ms >= self.next_removal_ms => self.remove(tracker, now_ms),
            Some(_) => {}
        }
    }

    fn remove(&mut self, tracker: Option<&dyn Connections>, now_ms: u64) {
        let Some(policies) = tracker.and_then(Connections::timeout_policies) else { return };
        let some: Vec<_> = self.planner.leaving().iter().take(REMOVED_AT_ONCE).copied().collect();
        let mut busy = 0;
        for id in &some {
            match policies.delete(*id) {
                Err(DpifError::Busy(_)) => busy += 1,
                Err(e) if !matches!(e, DpifError::NotFound(_)) => {
                    log::warn!(target: "ct_dpif", "cannot remove timeout policy {}: {e}", id.0);
                    self.planner.left(*id);
                }
                Ok(()) | Err(_) => self.planner.left(*id),
            }
        }
        if busy == some.len() {
            self.next_removal_ms = now_ms + BUSY_PAUSE_MS;
        }
    }

    /// The datapath ends: removes the database's limits and policies from its tracker, which may outlive it.
    /// `remove` removes the datapath and its flows, after which policies are free.
    pub(crate) fn end(mut self, datapath: &str, tracker: Option<&dyn Connections>, remove: impl FnOnce()) {
        self.set(datapath, tracker, Arc::default());
        while self.run(datapath, tracker, &mut |_| ()) {}
        remove();
        let Some(policies) = tracker.and_then(Connections::timeout_policies) else { return };
        for id in self.planner.leaving() {
            if let Err(e) = policies.delete(*id)
                && !matches!(e, DpifError::NotFound(_))
            {
                log::warn!(target: "ct_dpif", "{datapath}: timeout policy {} stays: {e}", id.0);
            }
        }
    }
}

fn execute(tracker: &dyn Connections, step: &ZoneStep) -> Result<(), DpifError> {
    match step {
        ZoneStep::SetPolicy(id, policy) => match tracker.timeout_policies() {
            Some(policies) => policies.set(*id, policy),
            None => Err(DpifError::Unsupported("its timeouts are fixed".to_string())),
        },
        ZoneStep::Assign(_) => Ok(()),
        ZoneStep::SetLimits(limits) => tracker.set_limits(limits),
        ZoneStep::RemoveLimits(zones) => tracker.remove_limits(zones),
    }
}

/// The failed step, for a log line.
fn described(step: &ZoneStep) -> String {
    fn named(zones: &[CtZone]) -> String {
        let name = |zone: &CtZone| match zone {
            CtZone::Default => "the default".to_string(),
            CtZone::Zone(number) => format!("zone {number}"),
        };
        match zones {
            [] => "no zone".to_string(),
            [one] => name(one),
            [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        }
    }
    match step {
        ZoneStep::SetPolicy(id, policy) => {
            let timeouts = policy.iter().map(|(attr, seconds)| format!("{}={seconds}", attr.key()));
            let timeouts = timeouts.collect::<Vec<_>>().join(",");
            format!("cannot set timeout policy {} ({timeouts}): its zones have default timeouts", id.0)
        }
        ZoneStep::Assign(_) => "cannot assign timeout policies".to_string(),
        ZoneStep::SetLimits(limits) => {
            let zones: Vec<CtZone> = limits.iter().map(|(zone, _)| *zone).collect();
            format!("cannot set the limit of {}", named(&zones))
        }
        ZoneStep::RemoveLimits(zones) => format!("cannot remove the limit of {}", named(zones)),
    }
}

#[cfg(test)]
mod tests;
