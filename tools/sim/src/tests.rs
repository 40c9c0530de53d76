//! The invariants over many seeds, and each checker tested with a deliberately broken switch.
//!
//! `SLUICE_SIM_SEED=n` runs one seed, `SLUICE_SIM_SEEDS=n` that many, `SLUICE_LONG=1` longer runs.

mod bonds;
mod vlans;

use crate::{Broken, Coverage, Invariant, Report, run, run_broken, run_for};
use std::time::Instant;

const STEPS: u64 = 1500;
const SEEDS: u64 = 200;
const HOUR_MS: u64 = 3_600_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn show(report: &Report) -> String {
    let seed = report.seed;
    let mut text = format!("seed {seed}: repeat with SLUICE_SIM_SEED={seed} cargo test -p sim invariants\n");
    for v in report.violations.iter().take(3) {
        text += &format!("step {}: {:?}: {}\n", v.step, v.invariant, v.detail);
    }
    text
}

#[test]
fn invariants_hold_in_seeded_runs() {
    if let Some(seed) = number("SLUICE_SIM_SEED") {
        let report = run(seed, number("SLUICE_SIM_STEPS").unwrap_or(STEPS));
        assert!(report.violations.is_empty(), "{}", show(&report));
        return;
    }
    let seeds = number("SLUICE_SIM_SEEDS").unwrap_or(SEEDS);
    let mut sum = Report::default();
    let (mut failed, mut coverage) = (Vec::new(), Vec::new());
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
        coverage.push(r.coverage.clone());
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
    // A run without events proves nothing.
    let enough = sum.received > 500 * seeds && sum.sent > 100 * seeds && sum.flows_put > 20 * seeds;
    assert!(missing_events(&coverage).is_empty(), "never occurred: {:?}", missing_events(&coverage));
    assert!(enough && sum.flows_checked > 50 * seeds && sum.packets_checked > 50 * seeds, "{sum:?}");
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in [3, 4] {
        let (a, b) = (run(seed, 600), run(seed, 600));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}

/// Some seed of a broken switch must violate that invariant.
fn assert_detected(broken: Broken, invariant: Invariant) {
    let detected = (0..12).any(|seed| !run_broken(seed, STEPS, broken, invariant).violations.is_empty());
    assert!(detected, "{broken:?} violates {invariant:?} in no run");
}

#[test]
fn the_megaflow_checker_detects_a_too_wide_mask() {
    assert_detected(Broken::WideMask, Invariant::Megaflow);
}

#[test]
fn the_oracle_detects_a_changed_byte() {
    assert_detected(Broken::CorruptFrame, Invariant::Oracle);
}

#[test]
fn conservation_detects_a_lost_packet() {
    assert_detected(Broken::LostPacket, Invariant::Conservation);
}

#[test]
fn conservation_detects_a_lost_upcall() {
    assert_detected(Broken::LostUpcall, Invariant::Conservation);
}

#[test]
fn bounds_detect_a_queue_without_limit() {
    assert_detected(Broken::UnboundedQueue, Invariant::Bounds);
}

#[test]
fn bounds_detect_flows_that_leak() {
    assert_detected(Broken::ForgottenDelete, Invariant::Bounds);
}

#[test]
fn isolation_detects_a_shared_queue() {
    assert_detected(Broken::SharedQueue, Invariant::Isolation);
}

#[test]
fn the_bundle_checker_detects_half_a_bundle() {
    assert_detected(Broken::SplitBundle, Invariant::Bundle);
}

#[test]
fn the_order_checker_detects_reordered_packets() {
    assert_detected(Broken::Reordered, Invariant::Order);
}

#[test]
fn staleness_detects_flows_that_are_not_revalidated() {
    assert_detected(Broken::NoRevalidation, Invariant::Staleness);
}

#[test]
fn statistics_detect_a_packet_counted_twice() {
    assert_detected(Broken::CountedTwice, Invariant::Statistics);
}

#[test]
fn bounds_detect_flows_above_the_limit() {
    assert_detected(Broken::NoFlowLimit, Invariant::Bounds);
}

#[test]
fn bounds_detect_addresses_above_the_limit() {
    assert_detected(Broken::NoMacLimit, Invariant::Bounds);
}

#[test]
fn isolation_detects_a_port_that_takes_all_flows() {
    assert_detected(Broken::NoShares, Invariant::Isolation);
}

#[test]
fn tracking_detects_forgotten_connections() {
    assert_detected(Broken::ForgottenConnections, Invariant::Tracking);
}

#[test]
#[ignore = "long: an hour of virtual time in each of 100 seeds; run by `make check-long`"]
fn invariants_hold_for_an_hour() {
    if number("SLUICE_LONG").is_none() {
        return;
    }
    let (mut failed, start, mut coverage) = (Vec::new(), Instant::now(), Vec::new());
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
                coverage.push(report.coverage);
            }
            Err(_) => failed.push(format!("seed {seed}: panic")),
        }
    }
    let speed = (count * HOUR_MS) as f64 / 1000.0 / start.elapsed().as_secs_f64();
    println!("{count} hours at {speed:.0} virtual seconds a second");
    assert!(failed.is_empty(), "{} of {count} seeds:\n{}", failed.len(), failed.join("\n"));
    assert!(
        count == 1 || missing_events(&coverage).is_empty(),
        "never occurred: {:?}",
        missing_events(&coverage)
    );
}

/// Events that occurred in no run.
fn missing_events(runs: &[Coverage]) -> Vec<&'static str> {
    type Event = (&'static str, fn(&Coverage) -> u64);
    const EVENTS: [Event; 37] = [
        ("an expired address", |w| w.macs_aged),
        ("an evicted address", |w| w.macs_evicted),
        ("a moved address", |w| w.macs_moved),
        ("an idle timeout", |w| w.rules_idle),
        ("a hard timeout", |w| w.rules_hard),
        ("an added or removed port", |w| w.port_changes),
        ("a flow deleted after its port", |w| w.flows_ended),
        ("a port that went down", |w| w.config_changes),
        ("a bundle", |w| w.bundles),
        ("a full upcall queue", |w| w.upcalls_refused),
        ("a full inbox", |w| w.inbox_full),
        ("a full list of parked packets", |w| w.parked_overflow),
        ("a reached flow limit", |w| w.flow_limit_reached),
        ("a drop by a meter", |w| w.metered),
        ("a recirculation", |w| w.recirculated),
        ("a slow-path packet", |w| w.slow),
        ("a packet-in", |w| w.packet_ins),
        ("a packet-out", |w| w.packet_outs),
        ("a stalled thread", |w| w.stalls),
        ("a jump of the clock", |w| w.jumps),
        ("a second core", |w| w.cores.saturating_sub(1)),
        ("a connection", |w| w.connections),
        ("a connection in both trackers", |w| w.connections_compared),
        ("the end of a connection", |w| w.connections_ended),
        ("a full tracker", |w| w.connections_full),
        ("exhausted translations", |w| w.no_tuple),
        ("an established packet", |w| w.established),
        ("a reply", |w| w.tracked_replies),
        ("a translated packet", |w| w.translated),
        ("a translation in both directions", |w| w.translated_back),
        ("a reassembled datagram", |w| w.fragments_completed),
        ("a datagram reassembled by both", |w| w.fragments_compared),
        ("a datagram that left in fragments", |w| w.datagrams),
        ("a datagram that was not complete in time", |w| w.fragments_late),
        ("a fragment without a place", |w| w.fragments_refused),
        ("an expected connection", |w| w.expected),
        ("a related connection", |w| w.related),
    ];
    let never = |(_, count): &&Event| !runs.iter().any(|w| count(w) > 0);
    EVENTS.iter().filter(never).map(|(name, _)| *name).collect()
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
