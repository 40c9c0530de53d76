//! Automatic load balance: when threads are overloaded for long, and a dry run of sharing the queues out anew makes their loads
//! more even, it is worth doing.

use super::QueueId;
use super::assign::{Assignment, Policy, Queue, Thread, assign};
use super::load::INTERVALS;
use dpif::{AutoBalance, RxqAssign};
use std::collections::BTreeMap;

/// What a thread did in the last whole interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Busy {
    pub(crate) core: u16,
    pub(crate) percent: f64,
}

/// What came of a dry run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DryRun {
    /// Variance of the threads' loads as they are, in percent squared.
    pub(crate) current: f64,
    /// What it would be.
    pub(crate) estimate: f64,
}

impl DryRun {
    /// By how much the variance would be less, in percent.
    pub(crate) fn improvement_percent(&self) -> f64 {
        if self.current > 0.0 { (self.current - self.estimate) / self.current * 100.0 } else { 0.0 }
    }
}

/// Watches the threads' loads.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Balancer {
    /// The interval that was looked at last.
    interval: Option<u64>,
    /// Intervals in a row in which a thread was overloaded, by core.
    overloaded: BTreeMap<u16, usize>,
    /// When a dry run was made last.
    tried_us: Option<u64>,
}

impl Balancer {
    /// Whether the threads' loads of `interval`, which is over, are to be shown to [`Balancer::observe`].
    pub(crate) fn wants(&self, interval: u64) -> bool {
        self.interval.is_none_or(|seen| seen < interval)
    }

    /// Takes the loads of an interval; `true` when a dry run is due: a thread was overloaded for a minute, and the last
    /// trial is long enough ago.
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

/// Tries what sharing out anew would bring, without doing it. `None` when it can bring nothing: queues in turn do not follow
/// loads, and two threads that are not isolated are needed, one of them with more than one queue.
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

/// Mean of the squared distances from the mean; 0 of nothing.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}
