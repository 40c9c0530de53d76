//! Automatic load balance: worthwhile if threads are overloaded for long, and a dry run of a new assignment reduces
//! the variance of their loads.

use super::QueueId;
use super::assign::{Assignment, Policy, Queue, Thread, assign};
use super::load::INTERVALS;
use dpif::{AutoBalance, RxqAssign};
use std::collections::BTreeMap;

/// Load of a thread in the last whole interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Busy {
    pub(crate) core: u16,
    pub(crate) percent: f64,
}

/// Result of a dry run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DryRun {
    /// Current variance of the threads' loads, in percent squared.
    pub(crate) current: f64,
    /// Estimated variance.
    pub(crate) estimate: f64,
}

impl DryRun {
    /// Improvement of the variance, in percent.
    pub(crate) fn improvement_percent(&self) -> f64 {
        if self.current > 0.0 { (self.current - self.estimate) / self.current * 100.0 } else { 0.0 }
    }
}

/// Monitors the threads' loads.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Balancer {
    /// The interval examined last.
    interval: Option<u64>,
    /// Consecutive intervals with an overloaded thread, by core.
    overloaded: BTreeMap<u16, usize>,
    /// Time of the last dry run.
    tried_us: Option<u64>,
}

impl Balancer {
    /// Whether the loads of the completed `interval` are due for [`Balancer::observe`].
    pub(crate) fn wants(&self, interval: u64) -> bool {
        self.interval.is_none_or(|seen| seen < interval)
    }

    /// Records the loads of an interval; `true` if a dry run is due: a thread was overloaded for a minute, and the
    /// last dry run is long enough ago.
    pub(crate) fn observe(&mut self, interval: u64, now_us: u64, loads: &[Busy], set: &AutoBalance) -> bool {
        if self.interval.is_some_and(|seen| seen + 1 != interval) {
            self.overloaded.clear();
        }
        self.interval = Some(interval);
        self.overloaded.retain(|core, _| loads.iter().any(|l| l.core == *core));
        for load in loads {
            let count = self.overloaded.entry(load.core).or_default();
            *count = if load.percent >= f64::from(set.load_threshold_percent) { *count + 1 } else { 0 };
        }
        let pause_us = u64::from(set.interval_min) * 60_000_000;
        let rested = self.tried_us.is_none_or(|tried| now_us >= tried + pause_us);
        let due = rested && self.overloaded.values().any(|count| *count >= INTERVALS);
        if due {
            self.tried_us = Some(now_us);
        }
        due
    }
}

/// Dry run of a new assignment. `None` if it cannot improve anything: round robin ignores loads, and there must be
/// two threads that are not isolated, one of them with more than one queue.
pub(crate) fn dry_run(
    threads: &[Thread],
    queues: &[Queue],
    now: &Assignment,
    policy: Policy,
) -> Option<DryRun> {
    let open: Vec<u16> = threads.iter().map(|t| t.core).filter(|c| !now.isolated.contains(c)).collect();
    let polls = |core: &u16| now.core.values().filter(|c| *c == core).count();
    if policy.assign == RxqAssign::RoundRobin || open.len() < 2 || !open.iter().any(|core| polls(core) > 1) {
        return None;
    }
    let planned = assign(threads, queues, &BTreeMap::new(), policy);
    let loads = |cores: &BTreeMap<QueueId, u16>| -> Vec<f64> {
        let on = |core: &u16| queues.iter().filter(|q| cores.get(&q.id) == Some(core)).map(|q| q.load).sum();
        open.iter().map(on).collect()
    };
    Some(DryRun { current: variance(&loads(&now.core)), estimate: variance(&loads(&planned.core)) })
}

/// Mean of the squared deviations from the mean; 0 without values.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}
