//! Assignments against hand-made tables and against plain reimplementations of each policy; load and balance in
//! virtual time.

use super::assign::*;
use super::balance::*;
use super::load::*;
use super::*;
use dpif::Numa;
use dpif::{AutoBalance, RxqAssign};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn id(port: u32, queue: u16) -> QueueId {
    QueueId { port: DpPort(port), queue }
}

fn queue(port: u32, number: u16, load: f64, pinned: Option<u16>) -> Queue {
    Queue { id: id(port, number), numa: Numa(0), load, pinned }
}

fn threads(cores: &[u16]) -> Vec<Thread> {
    cores.iter().map(|core| Thread { core: *core, numa: Numa(0) }).collect()
}

fn policy(assign: RxqAssign) -> Policy {
    Policy { assign, isolate: true }
}

/// Assigns anew; returns the cores in the order of ports and queues.
fn cores(threads: &[Thread], queues: &[Queue], policy: Policy) -> Vec<u16> {
    assign(threads, queues, &BTreeMap::new(), policy).core.into_values().collect()
}

#[test]
fn each_rule_by_hand() {
    let two = threads(&[1, 2]);
    let loads = |loads: &[f64]| -> Vec<Queue> {
        loads.iter().zip(1..).map(|(load, port)| queue(port, 0, *load, None)).collect()
    };
    for (rule, given, expected) in [
        (RxqAssign::RoundRobin, &[0.0, 0.0, 0.0, 0.0][..], &[1, 2, 1, 2][..]),
        (RxqAssign::RoundRobin, &[1.0, 50.0, 20.0][..], &[1, 2, 1][..]),
        // Up and down again.
        (RxqAssign::Cycles, &[0.0, 0.0, 0.0, 0.0, 0.0][..], &[1, 2, 2, 1, 1][..]),
        // The largest first: 50 and 1 on the first core, 30 and 20 on the second.
        (RxqAssign::Cycles, &[1.0, 50.0, 20.0, 30.0][..], &[1, 1, 2, 2][..]),
        // Each to the least load: 50 on the first, 30 and 19 on the second, then 10 on the second, 5 on the first.
        (RxqAssign::Group, &[50.0, 30.0, 19.0, 10.0, 5.0][..], &[1, 2, 2, 2, 1][..]),
        // Queues of unknown cost go to the core with the fewest.
        (RxqAssign::Group, &[90.0, 5.0, 4.0, 3.0, 0.0, 0.0][..], &[1, 2, 2, 2, 1, 1][..]),
    ] {
        assert_eq!(cores(&two, &loads(given), policy(rule)), expected, "{rule:?} {given:?}");
    }
}

#[test]
fn pinned_queues_go_to_their_cores_and_isolate_them() {
    let queues = [queue(1, 0, 0.0, Some(2)), queue(1, 1, 0.0, None), queue(2, 0, 0.0, None)];
    let plan = assign(&threads(&[0, 1, 2]), &queues, &BTreeMap::new(), policy(RxqAssign::RoundRobin));
    assert_eq!(plan.core, [(id(1, 0), 2), (id(1, 1), 0), (id(2, 0), 1)].into());
    assert_eq!((plan.isolated, plan.notes), ([2].into(), BTreeSet::new()));
    let shared = Policy { assign: RxqAssign::Group, isolate: false };
    let plan = assign(&threads(&[0, 2]), &queues, &BTreeMap::new(), shared);
    assert_eq!(plan.core, [(id(1, 0), 2), (id(1, 1), 0), (id(2, 0), 0)].into());
    assert!(plan.isolated.is_empty());
}

#[test]
fn a_core_without_a_thread_is_no_place_to_be_pinned_to() {
    let queues = [queue(1, 0, 0.0, Some(7))];
    let plan = assign(&threads(&[0]), &queues, &BTreeMap::new(), policy(RxqAssign::Cycles));
    assert_eq!(plan.core, [(id(1, 0), 0)].into());
    assert_eq!(plan.notes, [Note::NoThread(id(1, 0), 7)].into());
    assert!(plan.isolated.is_empty());
}

#[test]
fn a_queue_is_polled_even_if_all_threads_are_isolated() {
    let queues = [queue(1, 0, 0.0, Some(0)), queue(1, 1, 0.0, Some(1)), queue(2, 0, 0.0, None)];
    let plan = assign(&threads(&[0, 1]), &queues, &BTreeMap::new(), policy(RxqAssign::Cycles));
    assert!(plan.core.contains_key(&id(2, 0)));
    assert_eq!(plan.notes, [Note::AllIsolated(id(2, 0))].into());
}

#[test]
fn a_node_of_its_own_is_preferred() {
    let far = Thread { core: 0, numa: Numa(0) };
    let near = Thread { core: 1, numa: Numa(1) };
    let queues = [Queue { numa: Numa(1), ..queue(1, 0, 0.0, None) }, queue(2, 0, 0.0, None)];
    assert_eq!(cores(&[far, near], &queues, policy(RxqAssign::Cycles)), [1, 0]);
    assert_eq!(cores(&[far], &queues, policy(RxqAssign::Cycles)), [0, 0]);
}

#[test]
fn adding_or_removing_a_port_moves_no_other_queues() {
    let two = threads(&[0, 1]);
    let all: Vec<Queue> = (1..=6).map(|port| queue(port, 0, 0.0, None)).collect();
    let mut kept = BTreeMap::new();
    for n in 1..=6 {
        let plan = assign(&two, &all[..n], &kept, policy(RxqAssign::Cycles));
        assert!(kept.iter().all(|(id, core)| plan.core.get(id) == Some(core)));
        kept = plan.core;
    }
    assert_eq!(kept.values().copied().collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1], "as when shared out at once");
    // Two of one thread's three are removed: it gets the next two.
    kept.retain(|q, core| *core == 1 || *q == id(1, 0));
    let rest: Vec<Queue> = [1, 2, 3, 6, 7, 8].into_iter().map(|port| queue(port, 0, 0.0, None)).collect();
    let plan = assign(&two, &rest, &kept, policy(RxqAssign::Cycles));
    assert_eq!((plan.core[&id(7, 0)], plan.core[&id(8, 0)]), (0, 0));
}

/// Plain versions of the policies, for unpinned queues.
fn oracle(cores: &[u16], queues: &[Queue], rule: RxqAssign) -> BTreeMap<QueueId, u16> {
    let mut sorted = queues.to_vec();
    sorted.sort_by(|a, b| match rule {
        RxqAssign::RoundRobin => a.id.cmp(&b.id),
        _ => b.load.total_cmp(&a.load).then(a.id.cmp(&b.id)),
    });
    let up_and_down: Vec<u16> = cores.iter().chain(cores.iter().rev()).copied().collect();
    let mut sums = vec![(0.0, 0); cores.len()];
    let mut out = BTreeMap::new();
    for (n, queue) in sorted.iter().enumerate() {
        let core = match rule {
            RxqAssign::RoundRobin => cores[n % cores.len()],
            RxqAssign::Cycles => up_and_down[n % up_and_down.len()],
            RxqAssign::Group => {
                let mut best = 0;
                for at in 1..cores.len() {
                    let less_load = sums[at].0 < sums[best].0;
                    let fewer = sums[at].1 < sums[best].1;
                    let better = match queue.load > 0.0 {
                        true => less_load || sums[at].0 == sums[best].0 && fewer,
                        false => fewer,
                    };
                    best = if better { at } else { best };
                }
                sums[best] = (sums[best].0 + queue.load, sums[best].1 + 1);
                cores[best]
            }
        };
        out.insert(queue.id, core);
    }
    out
}

fn some_queues() -> impl Strategy<Value = Vec<Queue>> {
    let one = (1..6u32, 0..4u16, 0..40u32, proptest::option::weighted(0.3, 0..5u16));
    proptest::collection::vec(one, 0..20).prop_map(|all| {
        let unique: BTreeMap<QueueId, Queue> = all
            .into_iter()
            .map(|(port, n, load, pin)| (id(port, n), queue(port, n, f64::from(load / 4), pin)))
            .collect();
        unique.into_values().collect()
    })
}

fn some_rule() -> impl Strategy<Value = RxqAssign> {
    prop_oneof![Just(RxqAssign::RoundRobin), Just(RxqAssign::Cycles), Just(RxqAssign::Group)]
}

proptest! {
    #[test]
    fn as_the_plain_rules_say(queues in some_queues(), rule in some_rule(), n in 1..5u16) {
        let free: Vec<Queue> = queues.iter().map(|q| Queue { pinned: None, ..*q }).collect();
        let cores: Vec<u16> = (0..n).collect();
        let plan = assign(&threads(&cores), &free, &BTreeMap::new(), policy(rule));
        prop_assert_eq!(plan.core, oracle(&cores, &free, rule));
    }

    #[test]
    fn every_queue_is_polled_once_pins_hold_and_nothing_kept_moves_without_need(
        queues in some_queues(), rule in some_rule(), n in 1..5u16, isolate: bool, before in 1..5u16,
    ) {
        let policy = Policy { assign: rule, isolate: isolate || rule != RxqAssign::Group };
        let kept = assign(&threads(&(0..before).collect::<Vec<_>>()), &queues, &BTreeMap::new(), policy).core;
        let plan = assign(&threads(&(0..n).collect::<Vec<_>>()), &queues, &kept, policy);
        prop_assert_eq!(plan.core.len(), queues.len());
        for q in &queues {
            let core = plan.core[&q.id];
            prop_assert!(core < n);
            match q.pinned.filter(|pin| *pin < n) {
                Some(pin) => prop_assert_eq!(core, pin),
                None => {
                    let all_isolated = plan.isolated.len() == usize::from(n);
                    prop_assert!(all_isolated || !plan.isolated.contains(&core));
                    let may_stay = |at: &u16| *at < n && !plan.isolated.contains(at);
                    if let Some(at) = kept.get(&q.id).filter(|at| may_stay(at)) {
                        prop_assert_eq!(core, *at);
                    }
                }
            }
        }
        let pinned_to: BTreeSet<u16> = queues.iter().filter_map(|q| q.pinned).filter(|pin| *pin < n).collect();
        prop_assert_eq!(plan.isolated, if policy.isolate { pinned_to } else { BTreeSet::new() });
    }

    #[test]
    fn a_history_knows_the_last_minute(steps in proptest::collection::vec((0..12_000_000u64, 0..1000u64), 1..60)) {
        let start_us = 1_000_000_000;
        let (mut now_us, mut history, mut all) = (start_us, History::new(start_us), Vec::new());
        for (pause_us, cycles) in steps {
            now_us += pause_us;
            history.add(now_us, cycles);
            all.push((now_us, cycles));
            for intervals in [1, 3, INTERVALS] {
                let first = (now_us / INTERVAL_US + 1 - intervals as u64) * INTERVAL_US;
                let sum: u64 = all.iter().filter(|(at, _)| *at >= first).map(|(_, c)| c).sum();
                let span_us = now_us - first.max(start_us);
                let expected = if span_us == 0 { 0.0 } else { sum as f64 / span_us as f64 };
                prop_assert!((history.rate(now_us, intervals) - expected).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn a_history_forgets() {
    let mut history = History::new(0);
    history.add(1, 500);
    assert_eq!((history.in_interval(0), history.in_interval(1)), (500, 0));
    assert!(history.rate(2_000_000, 1) > 0.0);
    assert_eq!(history.rate(60_000_000, INTERVALS), 0.0);
    history.add(3_600_000_000, 7);
    assert_eq!(history.in_interval(0), 0);
    assert_eq!(history.in_interval(720), 7);
}

const SET: AutoBalance = AutoBalance {
    enabled: true,
    interval_min: 2,
    load_threshold_percent: 80,
    improvement_threshold_percent: 25,
};

/// The intervals of 5 s with a due dry run, if core 0 has these loads.
fn trials(intervals: u64, percent: impl Fn(u64) -> f64) -> Vec<u64> {
    let mut balancer = Balancer::default();
    let mut due = Vec::new();
    for interval in 0..intervals {
        assert!(balancer.wants(interval));
        let loads = [Busy { core: 0, percent: percent(interval) }, Busy { core: 1, percent: 10.0 }];
        if balancer.observe(interval, interval * INTERVAL_US, &loads, &SET) {
            due.push(interval);
        }
        assert!(!balancer.wants(interval));
    }
    due
}

#[test]
fn a_minute_of_overload_is_a_reason_to_try_and_then_there_is_a_pause() {
    assert!(trials(100, |_| 79.0).is_empty());
    assert_eq!(trials(60, |_| 80.0), [11, 35, 59], "after a minute, then every two");
    assert!(trials(60, |n| if n % 12 == 11 { 0.0 } else { 100.0 }).is_empty(), "never a whole minute");
    assert_eq!(trials(30, |n| if n < 5 { 0.0 } else { 100.0 }), [16]);
}

#[test]
fn unobserved_intervals_do_not_count() {
    let mut balancer = Balancer::default();
    let load = [Busy { core: 0, percent: 100.0 }];
    assert!((0..11).all(|n| !balancer.observe(n, n * INTERVAL_US, &load, &SET)));
    assert!(!balancer.observe(20, 20 * INTERVAL_US, &load, &SET));
}

#[test]
fn a_dry_run_estimates_the_variance_before_and_after() {
    let two = threads(&[0, 1]);
    let queues: Vec<Queue> =
        [60.0, 30.0, 5.0, 5.0].iter().zip(1..).map(|(load, port)| queue(port, 0, *load, None)).collect();
    let now = |cores: [u16; 4]| Assignment {
        core: queues.iter().map(|q| q.id).zip(cores).collect(),
        ..Assignment::default()
    };
    let tried = dry_run(&two, &queues, &now([0, 0, 1, 1]), policy(RxqAssign::Group)).unwrap();
    assert_eq!((tried.current, tried.estimate), (1600.0, 100.0), "90 and 10, then 60 and 40");
    assert_eq!(tried.improvement_percent(), 93.75);
    let even = dry_run(&two, &queues, &now([0, 1, 1, 1]), policy(RxqAssign::Group)).unwrap();
    assert_eq!(even.improvement_percent(), 0.0);
    // A useless dry run is skipped.
    assert_eq!(dry_run(&two, &queues, &now([0, 0, 1, 1]), policy(RxqAssign::RoundRobin)), None);
    assert_eq!(dry_run(&two[..1], &queues, &now([0; 4]), policy(RxqAssign::Cycles)), None);
    assert_eq!(
        dry_run(&two, &queues[..2], &now([0, 1, 0, 0]), policy(RxqAssign::Cycles)).map(|t| t.current > 0.0),
        Some(true)
    );
    let isolated = Assignment { isolated: [1].into(), ..now([0, 0, 1, 1]) };
    assert_eq!(dry_run(&two, &queues, &isolated, policy(RxqAssign::Cycles)), None);
}

#[test]
fn variances() {
    assert_eq!(variance(&[]), 0.0);
    assert_eq!(variance(&[7.0]), 0.0);
    assert_eq!(variance(&[0.0, 10.0]), 25.0);
    assert_eq!(variance(&[1.0, 2.0, 3.0, 4.0]), 1.25);
}
