//! The laws over many seeds, and each checker shown to notice a switch that is broken on purpose.
//!
//! `SLUICE_SIM_SEED=n` runs one seed, `SLUICE_SIM_SEEDS=n` that many, `SLUICE_LONG=1` longer runs.

use crate::{Broken, Law, Report, Work, run, run_broken, run_for};
use std::time::Instant;

const STEPS: u64 = 1500;
const SEEDS: u64 = 200;
const HOUR_MS: u64 = 3_600_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn show(report: &Report) -> String {
    let seed = report.seed;
    let mut text = format!("seed {seed}: repeat with SLUICE_SIM_SEED={seed} cargo test -p sim laws\n");
    for v in report.violations.iter().take(3) {
        text += &format!("step {}: {:?} law: {}\n", v.step, v.law, v.detail);
    }
    text
}

#[test]
fn laws_hold_in_seeded_runs() {
    if let Some(seed) = number("SLUICE_SIM_SEED") {
        let report = run(seed, number("SLUICE_SIM_STEPS").unwrap_or(STEPS));
        assert!(report.violations.is_empty(), "{}", show(&report));
        return;
    }
    let seeds = number("SLUICE_SIM_SEEDS").unwrap_or(SEEDS);
    let mut sum = Report::default();
    let (mut failed, mut work) = (Vec::new(), Vec::new());
    let half = |odd: u64| (odd..seeds).step_by(2).map(|seed| run(seed, STEPS)).collect::<Vec<_>>();
    let reports = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut reports = half(0);
        reports.extend(other.join().expect("the runs of the other half"));
        reports
    });
    for r in reports {
        sum.received += r.received;
        sum.sent += r.sent;
        sum.flows_put += r.flows_put;
        sum.flows_checked += r.flows_checked;
        sum.packets_checked += r.packets_checked;
        work.push(r.work.clone());
        if !r.violations.is_empty() {
            failed.push(show(&r));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {seeds} seeds:\n{}",
        failed.len(),
        failed[..failed.len().min(5)].join("\n")
    );
    // A run in which nothing happens shows nothing.
    let enough = sum.received > 500 * seeds && sum.sent > 100 * seeds && sum.flows_put > 20 * seeds;
    assert!(lacks(&work).is_empty(), "never came to pass: {:?}", lacks(&work));
    assert!(enough && sum.flows_checked > 50 * seeds && sum.packets_checked > 50 * seeds, "{sum:?}");
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in [3, 4] {
        let (a, b) = (run(seed, 600), run(seed, 600));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}

/// Some seed of a broken switch must show a violation of that law.
fn notices(broken: Broken, law: Law) {
    let noticed = (0..12).any(|seed| !run_broken(seed, STEPS, broken, law).violations.is_empty());
    assert!(noticed, "{broken:?} is no violation of the {law:?} law in any run");
}

#[test]
fn the_megaflow_checker_notices_a_mask_that_is_too_wide() {
    notices(Broken::WideMask, Law::Megaflow);
}

#[test]
fn the_oracle_notices_a_changed_byte() {
    notices(Broken::CorruptFrame, Law::Oracle);
}

#[test]
fn conservation_notices_a_lost_packet() {
    notices(Broken::LostPacket, Law::Conservation);
}

#[test]
fn conservation_notices_a_lost_upcall() {
    notices(Broken::LostUpcall, Law::Conservation);
}

#[test]
fn bounds_notice_a_queue_without_limit() {
    notices(Broken::UnboundedQueue, Law::Bounds);
}

#[test]
fn bounds_notice_flows_that_stay() {
    notices(Broken::ForgottenDelete, Law::Bounds);
}

#[test]
fn isolation_notices_a_shared_queue() {
    notices(Broken::SharedQueue, Law::Isolation);
}

#[test]
fn the_bundle_checker_notices_half_a_bundle() {
    notices(Broken::SplitBundle, Law::Bundle);
}

#[test]
fn the_order_checker_notices_packets_that_changed_places() {
    notices(Broken::Reordered, Law::Order);
}

#[test]
fn staleness_notices_flows_that_are_not_revalidated() {
    notices(Broken::NoRevalidation, Law::Staleness);
}

#[test]
fn statistics_notice_a_packet_counted_twice() {
    notices(Broken::CountedTwice, Law::Statistics);
}

#[test]
fn bounds_notice_more_flows_than_allowed() {
    notices(Broken::NoFlowLimit, Law::Bounds);
}

#[test]
fn bounds_notice_more_addresses_than_allowed() {
    notices(Broken::NoMacLimit, Law::Bounds);
}

#[test]
fn isolation_notices_a_port_that_takes_all_flows() {
    notices(Broken::NoShares, Law::Isolation);
}

#[test]
#[ignore = "long: an hour of virtual time in each of 100 seeds; run by `make check-long`"]
fn laws_hold_for_an_hour() {
    if number("SLUICE_LONG").is_none() {
        return;
    }
    let (mut failed, start, mut work) = (Vec::new(), Instant::now(), Vec::new());
    let (first, count) = match number("SLUICE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (1000, number("SLUICE_SIM_SEEDS").unwrap_or(100)),
    };
    for seed in first..first + count {
        let begun = Instant::now();
        match std::panic::catch_unwind(|| run_for(seed, HOUR_MS)) {
            Ok(report) => {
                println!("{seed}: {:.1} s {report:?}", begun.elapsed().as_secs_f64());
                failed.extend((!report.violations.is_empty()).then(|| show(&report)));
                work.push(report.work);
            }
            Err(_) => failed.push(format!("seed {seed}: panic")),
        }
    }
    let speed = (count * HOUR_MS) as f64 / 1000.0 / start.elapsed().as_secs_f64();
    println!("{count} hours at {speed:.0} virtual seconds a second");
    assert!(failed.is_empty(), "{} of {count} seeds:\n{}", failed.len(), failed.join("\n"));
    assert!(count == 1 || lacks(&work).is_empty(), "never came to pass: {:?}", lacks(&work));
}

/// What came to pass in no run.
fn lacks(runs: &[Work]) -> Vec<&'static str> {
    type Figure = (&'static str, fn(&Work) -> u64);
    const FIGURES: [Figure; 20] = [
        ("an address that aged out", |w| w.macs_aged),
        ("an address that went for lack of room", |w| w.macs_evicted),
        ("an address that moved", |w| w.macs_moved),
        ("an idle timeout", |w| w.rules_idle),
        ("a hard timeout", |w| w.rules_hard),
        ("a port that came or went", |w| w.port_changes),
        ("a port that went down", |w| w.config_changes),
        ("a bundle", |w| w.bundles),
        ("a full upcall queue", |w| w.upcalls_refused),
        ("a full inbox", |w| w.inbox_full),
        ("a full parking lot", |w| w.parked_overflow),
        ("a flow limit that was reached", |w| w.flow_limit_reached),
        ("a meter that dropped", |w| w.metered),
        ("a recirculation", |w| w.recirculated),
        ("a slow-path packet", |w| w.slow),
        ("a packet-in", |w| w.packet_ins),
        ("a packet-out", |w| w.packet_outs),
        ("a thread that stood still", |w| w.stalls),
        ("a jump of the clock", |w| w.jumps),
        ("a second core", |w| w.cores.saturating_sub(1)),
    ];
    let never = |(_, figure): &&Figure| !runs.iter().any(|w| figure(w) > 0);
    FIGURES.iter().filter(never).map(|(name, _)| *name).collect()
}

#[test]
fn the_corpus_of_pipeline_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/pipeline");
    testkit::replay_corpus(folder, crate::fuzz::pipeline);
}

#[test]
fn the_corpus_of_actions_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/actions");
    testkit::replay_corpus(folder, crate::fuzz::actions);
}

#[test]
fn the_corpus_of_connection_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/connection");
    testkit::replay_corpus(folder, crate::fuzz::connection);
}

#[test]
fn the_corpus_of_configuration_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/configuration");
    testkit::replay_corpus(folder, crate::fuzz::configuration);
}
