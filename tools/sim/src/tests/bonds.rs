//! The rules of bonds over many seeds.
//!
//! `SLUICE_SIM_SEED=n` runs one seed, `SLUICE_SIM_SEEDS=n` that many, `SLUICE_LONG=1` more and longer ones.

use super::number;
use crate::bonds::{BondReport, run};

#[test]
fn bonds_neither_lose_nor_double_frames() {
    let long = testkit::long();
    let steps = number("SLUICE_SIM_STEPS").unwrap_or(if long { 20_000 } else { 1500 });
    let (first, count) = match number("SLUICE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("SLUICE_SIM_SEEDS").unwrap_or(if long { 1000 } else { 30 })),
    };
    let reports: Vec<BondReport> = (first..first + count).map(|seed| run(seed, steps)).collect();
    let failed = reports.iter().filter_map(|r| Some(format!("seed {}: {}", r.seed, r.violation.as_ref()?)));
    let failed: Vec<String> = failed.collect();
    assert!(
        failed.is_empty(),
        "{} of {count} seeds:\n{}",
        failed.len(),
        failed[..failed.len().min(3)].join("\n")
    );
    if count == 1 {
        return;
    }
    // A run without events proves nothing.
    let sum = |of: fn(&BondReport) -> u64| reports.iter().map(of).sum::<u64>();
    let events = [
        (
            "a frame of each mode",
            reports
                .iter()
                .fold([0; 3], |n, r| [0, 1, 2].map(|i| n[i] + r.by_mode[i]))
                .into_iter()
                .min()
                .unwrap_or(0),
        ),
        ("a received frame", sum(|r| r.received)),
        ("a loss on a dead wire", sum(|r| r.lost)),
        ("a reflected copy", sum(|r| r.reflected)),
        ("a recirculation", sum(|r| r.recirculated)),
        ("a flap", sum(|r| r.flaps)),
        ("a move of load", sum(|r| r.rebalanced)),
        ("a restart", sum(|r| r.restarts)),
        ("a change of members", sum(|r| r.members_changed)),
    ];
    let missing: Vec<&str> = events.iter().filter(|(_, n)| *n < 10).map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "hardly occurred: {missing:?}");
}
