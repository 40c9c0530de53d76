//! Lines of the log about settings of forwarding threads and the placement of their queues, in the words of OVS.

use super::plan::QueueId;
use dpif::{AutoBalance, Numa, RxqAssign, ThreadPlan};

/// The module of the lines.
const MODULE: &str = "dpif_netdev";
/// `emc-insert-inv-prob` without a value.
const EMC_INSERT_INV_PROB: u32 = 100;

/// Logs changed settings; without former ones those that OVS logs at the start of a datapath.
pub(super) fn settings(before: Option<&ThreadPlan>, now: &ThreadPlan) {
    changed_settings(before, now).into_iter().for_each(|line| log::info!(target: MODULE, "{line}"));
}

fn changed_settings(before: Option<&ThreadPlan>, now: &ThreadPlan) -> Vec<String> {
    let mut lines = Vec::new();
    let usual = ThreadPlan::default();
    let of = before.unwrap_or(&usual);
    if of.flush_us != now.flush_us {
        lines.push(format!("Flushing interval for tx queues set to {} us", now.flush_us));
    }
    let insert = |plan: &ThreadPlan| plan.cache.emc_insert_inv_prob.unwrap_or(EMC_INSERT_INV_PROB);
    if insert(of) != insert(now) {
        lines.push(match insert(now) {
            0 => "EMC insertion probability changed to zero".to_string(),
            n => format!("EMC insertion probability changed to 1/{n} (~{:.2}%)", 100.0 / f64::from(n)),
        });
    }
    if of.perf_metrics != now.perf_metrics {
        let state = if now.perf_metrics { "enabled" } else { "disabled" };
        lines.push(format!("PMD performance metrics collection {state}"));
    }
    if of.cache.smc_enable.unwrap_or_default() != now.cache.smc_enable.unwrap_or_default() {
        let state = if now.cache.smc_enable.unwrap_or_default() { "enabled" } else { "disabled" };
        lines.push(format!("SMC cache is {state}"));
    }
    if of.assign != now.assign {
        lines.push(format!("Rxq to PMD assignment mode changed to: '{}'.", now.assign.name()));
    }
    if before.is_none_or(|of| of.isolate != now.isolate) {
        let does = if now.isolate { "isolates" } else { "does not isolate" };
        lines.push(format!("pmd-rxq-affinity {does} PMD core"));
    }
    balance(before.map(|plan| &plan.balance), &now.balance, &mut lines);
    if before.is_none_or(|of| of.sleep.default_us != now.sleep.default_us) {
        lines.push(format!("Default PMD thread max sleep: {:4} us.", now.sleep.default_us));
    }
    lines
}

fn balance(before: Option<&AutoBalance>, now: &AutoBalance, lines: &mut Vec<String>) {
    if before == Some(now) {
        return;
    }
    let AutoBalance { enabled, interval_min, load_threshold_percent, improvement_threshold_percent } = now;
    if before.is_none_or(|of| of.interval_min != *interval_min) {
        lines.push(format!("PMD auto load balance interval set to {interval_min} mins"));
    }
    if before.is_none_or(|of| of.improvement_threshold_percent != *improvement_threshold_percent) {
        lines.push(format!(
            "PMD auto load balance improvement threshold set to {improvement_threshold_percent}%"
        ));
    }
    if before.is_none_or(|of| of.load_threshold_percent != *load_threshold_percent) {
        lines.push(format!("PMD auto load balance load threshold set to {load_threshold_percent}%"));
    }
    lines.push(if *enabled {
        format!(
            "PMD auto load balance is enabled, interval {interval_min} mins, pmd load threshold \
             {load_threshold_percent}%, improvement threshold {improvement_threshold_percent}%."
        )
    } else {
        "PMD auto load balance is disabled.".to_string()
    });
}

/// Logs the longest sleep of a thread.
pub(super) fn max_sleep(numa: Numa, core: u16, max_us: u64) {
    log::info!(
        target: MODULE,
        "PMD thread on numa_id: {}, core id: {core:2}, max sleep: {max_us:4} us.",
        numa.0
    );
}

/// A queue that is placed.
pub(super) struct Placed<'a> {
    pub(super) id: QueueId,
    pub(super) port: &'a str,
    pub(super) core: u16,
    pub(super) numa: Numa,
    pub(super) is_pinned: bool,
    /// Cycles that it cost in the last minute.
    pub(super) cycles: u64,
}

/// Logs where queues are placed: pinned ones first.
pub(super) fn placement(assign: RxqAssign, placed: &[Placed<'_>]) {
    placement_lines(assign, placed).into_iter().for_each(|line| log::info!(target: MODULE, "{line}"));
}

fn placement_lines(assign: RxqAssign, placed: &[Placed<'_>]) -> Vec<String> {
    let measured = |queue: &Placed<'_>| match assign {
        RxqAssign::RoundRobin => String::new(),
        RxqAssign::Cycles | RxqAssign::Group => format!(" (measured processing cycles {})", queue.cycles),
    };
    let line = |queue: &Placed<'_>, how: &str, end: &str| {
        let (Placed { id, port, core, numa, .. }, cycles) = (queue, measured(queue));
        let (numa, rxq) = (numa.0, id.queue);
        format!("Core {core:2} on numa node {numa} {how} port '{port}' rx queue {rxq}{cycles}{end}")
    };
    let (pinned, free): (Vec<_>, Vec<_>) = placed.iter().partition(|queue| queue.is_pinned);
    let mut lines: Vec<String> = pinned.into_iter().map(|queue| line(queue, "is pinned with", "")).collect();
    if !free.is_empty() {
        lines.push(format!("Performing pmd to rx queue assignment using {} algorithm.", assign.name()));
    }
    lines.extend(free.into_iter().map(|queue| line(queue, "assigned", ".")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::{CacheSettings, SleepMax};
    use flow::DpPort;

    /// The lines of OVS 3.5 after the same settings.
    #[test]
    fn settings_are_announced_as_by_ovs() {
        let usual = ThreadPlan::default();
        assert_eq!(
            changed_settings(None, &usual),
            [
                "pmd-rxq-affinity isolates PMD core",
                "PMD auto load balance interval set to 1 mins",
                "PMD auto load balance improvement threshold set to 25%",
                "PMD auto load balance load threshold set to 95%",
                "PMD auto load balance is disabled.",
                "Default PMD thread max sleep:    0 us.",
            ]
        );
        assert!(changed_settings(Some(&usual), &usual).is_empty());
        let on = AutoBalance { enabled: true, ..AutoBalance::default() };
        let cache = |emc_insert_inv_prob, smc_enable| CacheSettings { emc_insert_inv_prob, smc_enable };
        for (now, expected) in [
            (
                ThreadPlan { balance: on, ..usual.clone() },
                "PMD auto load balance is enabled, interval 1 mins, pmd load threshold 95%, improvement threshold 25%.",
            ),
            (
                ThreadPlan { balance: AutoBalance { interval_min: 5, ..on }, ..usual.clone() },
                "PMD auto load balance interval set to 5 mins\nPMD auto load balance is enabled, interval 5 mins, pmd \
                 load threshold 95%, improvement threshold 25%.",
            ),
            (
                ThreadPlan { assign: RxqAssign::Group, isolate: false, ..usual.clone() },
                "Rxq to PMD assignment mode changed to: 'group'.\npmd-rxq-affinity does not isolate PMD core",
            ),
            (
                ThreadPlan { sleep: SleepMax { default_us: 50, ..SleepMax::default() }, ..usual.clone() },
                "Default PMD thread max sleep:   50 us.",
            ),
            (
                ThreadPlan { cache: cache(Some(0), Some(true)), ..usual.clone() },
                "EMC insertion probability changed to zero\nSMC cache is enabled",
            ),
            (
                ThreadPlan { cache: cache(Some(50), None), ..usual.clone() },
                "EMC insertion probability changed to 1/50 (~2.00%)",
            ),
            (
                ThreadPlan {
                    perf_metrics: true,
                    flush_us: 70,
                    cache: cache(Some(50), Some(true)),
                    assign: RxqAssign::Group,
                    ..usual.clone()
                },
                "Flushing interval for tx queues set to 70 us\nEMC insertion probability changed to 1/50 (~2.00%)\nPMD \
                 performance metrics collection enabled\nSMC cache is enabled\nRxq to PMD assignment mode changed to: \
                 'group'.",
            ),
        ] {
            assert_eq!(changed_settings(Some(&usual), &now).join("\n"), expected);
        }
    }

    #[test]
    fn placement_is_announced_as_by_ovs() {
        let placed = |queue, is_pinned| Placed {
            id: QueueId { port: DpPort(1), queue },
            port: "p1",
            core: 1,
            numa: Numa(0),
            is_pinned,
            cycles: 7,
        };
        assert_eq!(
            placement_lines(RxqAssign::Cycles, &[placed(0, false), placed(1, true)]),
            [
                "Core  1 on numa node 0 is pinned with port 'p1' rx queue 1 (measured processing cycles 7)",
                "Performing pmd to rx queue assignment using cycles algorithm.",
                "Core  1 on numa node 0 assigned port 'p1' rx queue 0 (measured processing cycles 7).",
            ]
        );
        assert_eq!(
            placement_lines(RxqAssign::RoundRobin, &[placed(0, false)])[1],
            "Core  1 on numa node 0 assigned port 'p1' rx queue 0."
        );
    }
}
