//! Times of the stages of upcalls, as histograms for the metrics: counted only while metrics are served.
//!
//! A stage is what an upcall waits for: its handler (`wait`), the translation of all upcalls taken together with it
//! (`translate`), the datapath's answer about its new flow (`install`). Upcalls of the main core neither wait nor are answered.

use sync::{AtomicBool, AtomicU64, Ordering};

/// Upper bounds of the buckets, in microseconds; a last bucket has the longer ones.
pub(crate) const BOUNDS_US: [u64; 15] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// A stage. `as usize` indexes the histograms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// From the reception of the packet until a handler takes the upcall.
    Wait,
    /// Until the operations are known.
    Translate,
    /// Until the datapath reports the new flow.
    Install,
}

impl Stage {
    /// All stages, in order.
    pub(crate) const ALL: [Stage; 3] = [Stage::Wait, Stage::Translate, Stage::Install];

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Wait => "wait",
            Stage::Translate => "translate",
            Stage::Install => "install",
        }
    }
}

struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// A histogram as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    /// Counts by bucket.
    pub(crate) buckets: [u64; BUCKETS],
    /// Sum of their times.
    pub(crate) sum_us: u64,
}

impl Times {
    /// Counts one time.
    pub(crate) fn add(&mut self, us: u64) {
        self.buckets[bucket(us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

static ON: AtomicBool = AtomicBool::new(false);
static HISTOGRAMS: [Histogram; 3] =
    [const { Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) } }; 3];

/// Starts or stops counting. The counters stay.
pub(crate) fn set_on(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// The time now, while counting.
pub(crate) fn begin() -> Option<u64> {
    ON.load(Ordering::Relaxed).then(sys::clock::machine_us)
}

/// Counts a stage that `upcalls` left together.
pub(crate) fn end(stage: Stage, began_us: Option<u64>, upcalls: usize) {
    if let Some(began_us) = began_us {
        count(stage, sys::clock::machine_us().saturating_sub(began_us), upcalls as u64);
    }
}

/// Counts the waits of upcalls received at these times of the switch's clock, while counting.
pub(crate) fn waited(received_us: impl Iterator<Item = u64>) {
    if ON.load(Ordering::Relaxed) {
        let now_us = sys::clock::monotonic_us();
        received_us.for_each(|at_us| count(Stage::Wait, now_us.saturating_sub(at_us), 1));
    }
}

fn count(stage: Stage, us: u64, upcalls: u64) {
    let Histogram { buckets, sum_us } = &HISTOGRAMS[stage as usize];
    buckets[bucket(us)].fetch_add(upcalls, Ordering::Relaxed);
    sum_us.fetch_add(us.saturating_mul(upcalls), Ordering::Relaxed);
}

fn bucket(us: u64) -> usize {
    BOUNDS_US.partition_point(|bound| *bound < us)
}

/// The histogram of a stage.
pub(crate) fn read(stage: Stage) -> Times {
    let Histogram { buckets, sum_us } = &HISTOGRAMS[stage as usize];
    Times {
        buckets: std::array::from_fn(|n| buckets[n].load(Ordering::Relaxed)),
        sum_us: sum_us.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_is_not_below_it() {
        for (us, expected) in [(0, 0), (10, 0), (11, 1), (25, 1), (1_000, 6), (1_000_000, 14), (u64::MAX, 15)]
        {
            assert_eq!(bucket(us), expected, "{us}");
        }
    }
}
