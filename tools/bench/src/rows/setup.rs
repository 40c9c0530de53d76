//! Rows of flow set-up: frames whose flows each get their own megaflow, replayed endlessly from a given
//! moment. Counted by the daemons themselves, polled many times a second.

use super::{Effort, in_turn};
use crate::lab::{Lab, Now};
use crate::report::{Row, Sample, SideSamples};
use crate::works::Work;
use anyhow::Result;
use std::time::Duration;
use testkit::wait_for;

/// The first phase: this long, or until nearly all megaflows exist.
const FIRST: Duration = Duration::from_secs(1);
/// Percentage of megaflows that counts as nearly all.
const NEARLY_ALL_PERCENT: usize = 95;
/// Interval of queries to a daemon: they take its time.
const PAUSE: Duration = Duration::from_millis(10);
/// Until the first packets are seen.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);

/// One turn: counters at the start, at the end of the first phase, and some time later.
struct Measured {
    begin: Now,
    installed: Now,
    end: Now,
    memory_bytes: u64,
}

impl Measured {
    /// Megaflows a second in the first moments.
    fn rate(&self) -> f64 {
        (self.installed.megaflows - self.begin.megaflows) as f64
            / (self.installed.at - self.begin.at).as_secs_f64()
    }

    /// Million packets per second without rejection, between two moments.
    fn forwarded(from: &Now, to: &Now) -> f64 {
        let stats = to.stats.since(&from.stats);
        let forwarded = stats.received.saturating_sub(stats.upcalls_failed);
        forwarded as f64 / (to.at - from.at).as_secs_f64() / 1e6
    }
}

fn watch(lab: &mut Lab, work: &Work, effort: Effort) -> Result<Measured> {
    let before = lab.begin(work)?;
    let mut first = None;
    // Counted from the last moment without an installed megaflow.
    let mut begin = before;
    wait_for(BEGIN_LIMIT, "the first megaflows", || {
        let now = lab.now();
        if let Ok(now) = now {
            if now.megaflows > 0 {
                first = Some(now);
            } else {
                begin = now;
            }
        }
        first.is_some()
    })?;
    let mut installed = first.unwrap_or(begin);
    while installed.at - begin.at < FIRST && installed.megaflows * 100 < work.megaflows * NEARLY_ALL_PERCENT {
        std::thread::sleep(PAUSE);
        installed = lab.now()?;
    }
    std::thread::sleep(effort.time);
    Ok(Measured { begin, installed, end: lab.now()?, memory_bytes: lab.memory_taken()? })
}

/// The rows of one work.
pub(crate) fn rows(labs: &mut [Lab], work: &Work, effort: Effort) -> Vec<Row> {
    let mut seen: Vec<Vec<Option<Measured>>> = labs.iter().map(|_| Vec::new()).collect();
    let (count, mut asked) = (labs.len(), 0);
    let rates = in_turn(
        effort.rounds,
        labs,
        |lab| lab.name.clone(),
        |lab| {
            let into = &mut seen[asked % count];
            asked += 1;
            into.push(None);
            let (turn, fault) = lab.awake(|lab| {
                let turn = watch(lab, work, effort)?;
                Ok((turn, lab.settle()?))
            })?;
            let sample = Sample { value: Some(turn.rate()), fault, ..Sample::default() };
            into.pop();
            into.push(Some(turn));
            Ok(sample)
        },
    );
    let names: Vec<String> = rates.iter().map(|r| r.side.clone()).collect();
    let of = |value: fn(&Measured) -> f64| -> Vec<SideSamples> {
        let sample = |s: &Option<Measured>| Sample { value: s.as_ref().map(value), ..Sample::default() };
        let side = |(name, all): (&String, &Vec<Option<Measured>>)| SideSamples {
            side: name.clone(),
            samples: all.iter().map(sample).collect(),
        };
        names.iter().zip(&seen).map(side).collect()
    };
    let during = of(|s| Measured::forwarded(&s.begin, &s.installed));
    let after = of(|s| Measured::forwarded(&s.installed, &s.end));
    let memory = of(|s| s.memory_bytes as f64 / s.end.megaflows.max(1) as f64);
    let row = |id: &str, what: &str, unit, sides| Row {
        id: format!("setup-{id}"),
        title: format!("{}: {what}", work.title),
        unit,
        sides,
    };
    vec![
        row("rate", "installed in the first moments", "flows/s", rates),
        row("forwarded-during", "forwarded meanwhile", "Mpps", during),
        row("forwarded-after", "forwarded then", "Mpps", after),
        row("memory", "resident memory taken for each megaflow", "bytes", memory),
    ]
}
