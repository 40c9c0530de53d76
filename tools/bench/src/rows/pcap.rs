//! Rows without a network: a capture file replayed endlessly into a port that drops, by the daemons' own
//! counters.

use super::{Effort, in_turn};
use crate::lab::{Interval, Lab};
use crate::report::{Row, Sample, SideSamples};
use crate::works::{self, Work};
use anyhow::{Context, Result};
use testkit::TempDir;

/// Flows of the works with many.
pub(crate) const MANY_FLOWS: u64 = 100_000;
/// Suffix of a side without its cache.
pub(crate) const NO_CACHE: &str = ", no cache";

/// Recirculations of the longest pipeline.
pub(crate) const RECIRCULATIONS_MAX: u64 = 3;

/// A lab, and its cache setting in a turn.
struct Turn {
    lab: usize,
    name: String,
    cache: bool,
}

/// Results of one turn.
fn measure(lab: &mut Lab, effort: Effort) -> Result<Interval> {
    lab.awake(|lab| {
        std::thread::sleep(effort.warm_up);
        lab.count(effort.time)
    })
}

/// The rows of one work: rate, cycles per packet and, if subtables were visited, lookups per hit. `caches`
/// lists for each lab the cache settings to measure: `true` is on.
pub(crate) fn work_rows(
    labs: &mut [Lab],
    work: &Work,
    caches: impl Fn(&Lab) -> Vec<bool>,
    prefix: &str,
    effort: Effort,
) -> Result<Vec<Row>> {
    for lab in labs.iter_mut() {
        lab.awake(|lab| lab.install(work))?;
    }
    let turn = |(at, lab): (usize, &Lab)| -> Vec<Turn> {
        let name = |on: bool| format!("{}{}", lab.name, if on { "" } else { NO_CACHE });
        caches(lab).into_iter().map(|cache| Turn { lab: at, name: name(cache), cache }).collect()
    };
    let mut turns: Vec<Turn> = labs.iter().enumerate().flat_map(turn).collect();
    let mut intervals: Vec<Vec<Option<Interval>>> = turns.iter().map(|_| Vec::new()).collect();
    let mut asked = 0;
    let count = turns.len();
    let mut rates = in_turn(
        effort.rounds,
        &mut turns,
        |t| t.name.clone(),
        |turn| {
            let into = &mut intervals[asked % count];
            asked += 1;
            // In every case this round has an entry.
            into.push(None);
            let lab = &mut labs[turn.lab];
            lab.awake(|lab| lab.set_cache(turn.cache))?;
            let interval = measure(lab, effort)?;
            let rate = interval.stats.received as f64 / interval.seconds / 1e6;
            into.pop();
            into.push(Some(interval));
            Ok(Sample { value: Some(rate), ..Sample::default() })
        },
    );
    for (at, lab) in labs.iter_mut().enumerate() {
        let wrong = lab.awake(Lab::settle).unwrap_or_else(|e| Some(format!("{e:#}")));
        let first = turns.iter().position(|t| t.lab == at);
        if let Some(last) = first.and_then(|side| rates[side].samples.last_mut()) {
            last.fault = last.fault.take().or(wrong);
        }
    }
    let of = |value: fn(&Interval) -> Option<f64>| -> Vec<SideSamples> {
        let sample = |i: &Option<Interval>| Sample { value: i.as_ref().and_then(value), ..Sample::default() };
        let side = |(turn, all): (&Turn, &Vec<Option<Interval>>)| SideSamples {
            side: turn.name.clone(),
            samples: all.iter().map(sample).collect(),
        };
        turns.iter().zip(&intervals).map(side).collect()
    };
    let title = |what: &str| format!("pcap → null, 64-byte UDP, {}, {what}", work.title);
    let id = format!("{prefix}-{}", work.id);
    let row = |suffix: &str, what: &str, unit, sides| Row {
        id: format!("{id}{suffix}"),
        title: title(what),
        unit,
        sides,
    };
    let cycles = of(|i| i.stats.cycles_per_packet());
    let lookups = of(|i| i.stats.lookups_per_hit());
    let mut rows = vec![
        row("", "forwarded", "Mpps", rates),
        row("-cycles", "cycles of the forwarding thread a packet", "cycles", cycles),
    ];
    if work.megaflows > 1 {
        rows.push(row(
            "-lookups",
            "subtables looked into for each packet that no cache named",
            "subtables",
            lookups,
        ));
    }
    Ok(rows)
}

/// Flows of the works with many. DPDK takes a second for each 100,000 frames.
pub(crate) fn many_flows(quick: bool) -> u64 {
    if quick { 10_000 } else { MANY_FLOWS }
}

/// The works compared with the stock daemon with DPDK, which runs with its cache on and off.
pub(crate) fn works(folder: &TempDir, quick: bool) -> Result<Vec<Work>> {
    let many = many_flows(quick);
    Ok(vec![
        works::one_mask(folder, 1, false)?,
        works::one_mask(folder, 1000, false)?,
        works::one_mask(folder, many, false)?,
        works::many_masks(folder, MANY_FLOWS)?,
        works::one_mask(folder, 1000, true)?,
    ])
}

/// Subtables visited per hit, without the cache: two ways to share 16 subtables among eight ports.
pub(crate) fn lookups(lab: &mut Lab, folder: &TempDir, effort: Effort) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    lab.awake(|lab| lab.set_cache(false))?;
    for each in [2, 1] {
        let work = works::shared_subtables(folder, each)?;
        lab.awake(|lab| lab.install(&work))?;
        let samples = in_turn(
            effort.rounds,
            &mut [&mut *lab],
            |l| l.name.clone(),
            |lab| {
                lab.awake(|lab| {
                    std::thread::sleep(effort.warm_up);
                    let interval = lab.count_anew(effort.time)?;
                    let value = interval.stats.lookups_per_hit().context("no subtable was looked into")?;
                    let missed = interval.stats.upcalls + interval.stats.upcalls_failed;
                    let fault = (missed > 0).then(|| format!("{missed} packets had no megaflow"));
                    Ok(Sample { value: Some(value), fault, ..Sample::default() })
                })
            },
        );
        rows.push(Row {
            id: format!("lookups-{each}"),
            title: format!("{}, no cache: subtables looked into for each hit", work.title),
            unit: "subtables",
            sides: samples,
        });
    }
    lab.awake(|lab| lab.set_cache(true))?;
    Ok(rows)
}
