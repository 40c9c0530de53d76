//! The rows, a module for each way to measure. Every round measures all sides in turn.

pub(crate) mod ablation;
pub(crate) mod connections;
pub(crate) mod first;
pub(crate) mod idle;
pub(crate) mod ovn;
pub(crate) mod pcap;
pub(crate) mod restart;
pub(crate) mod rules;
pub(crate) mod setup;
pub(crate) mod streams;
pub(crate) mod tunnel;
pub(crate) mod veth;

use crate::report::{Sample, SideSamples};
use anyhow::Result;
use std::time::Duration;

/// Rounds and durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// A point of a rate or of idleness.
    pub(crate) time: Duration,
    /// Before each point.
    pub(crate) warm_up: Duration,
}

/// Numbers runs, so that no frame is attributed to another run.
#[derive(Default)]
pub(crate) struct Runs(u32);

impl Runs {
    fn next(&mut self) -> u32 {
        self.0 += 1;
        // The process id keeps runs of two processes apart.
        std::process::id() << 12 | self.0
    }
}

/// Calls `measure` for every side in turn, `rounds` times.
fn in_turn<T>(
    rounds: usize,
    sides: &mut [T],
    name: impl Fn(&T) -> String,
    mut measure: impl FnMut(&mut T) -> Result<Sample>,
) -> Vec<SideSamples> {
    let mut all: Vec<SideSamples> =
        sides.iter().map(|s| SideSamples { side: name(s), samples: Vec::new() }).collect();
    for _ in 0..rounds {
        for (side, into) in sides.iter_mut().zip(&mut all) {
            let failed = |e: anyhow::Error| Sample { fault: Some(format!("{e:#}")), ..Sample::default() };
            into.samples.push(measure(side).unwrap_or_else(failed));
        }
    }
    all
}

/// Another value of the rounds that made `first`: those of each side, in the same order; `None` for a failed round.
fn values_of<T>(first: &[SideSamples], seen: &[Vec<Option<T>>], value: fn(&T) -> f64) -> Vec<SideSamples> {
    let sample = |round: &Option<T>| Sample { value: round.as_ref().map(value), ..Sample::default() };
    let side = |(first, rounds): (&SideSamples, &Vec<Option<T>>)| SideSamples {
        side: first.side.clone(),
        samples: rounds.iter().map(sample).collect(),
    };
    first.iter().zip(seen).map(side).collect()
}
