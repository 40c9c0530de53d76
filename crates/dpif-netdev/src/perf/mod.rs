//! Iteration statistics of a forwarding thread: `pmd-perf-show` and `pmd-perf-log-set`.
//!
//! An iteration is one pass of the thread's loop. The number of iterations and the time slept are always counted: an
//! addition per pass. With `pmd-perf-metrics` each pass is also entered into histograms and histories, from the
//! differences of the core's counters: without work per packet or clock reads.
//!
//! The slow path is another thread, so the cycles of an upcall are those until its reply. There are no vhost-user
//! ports: the statistics of their queues are 0.

mod histogram;
mod text;

#[cfg(test)]
mod tests;

use dpif::{Iterations, PerfLog, PmdStats};
use histogram::Histogram;
use std::collections::VecDeque;

pub(crate) use text::show;

const HISTORY_LEN: usize = PerfLog::HISTORY_LEN;

/// One iteration, or all of a millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pass {
    /// Number of the iteration, or of the millisecond.
    number: u64,
    iterations: u64,
    cycles: u64,
    packets: u64,
    bursts: u64,
    upcalls: u64,
    /// Answered upcalls, and their waiting cycles.
    answers: u64,
    answers_cycles: u64,
}

impl Pass {
    fn add(&mut self, other: &Pass) {
        self.iterations += other.iterations;
        self.cycles += other.cycles;
        self.packets += other.packets;
        self.bursts += other.bursts;
        self.upcalls += other.upcalls;
        self.answers += other.answers;
        self.answers_cycles += other.answers_cycles;
    }
}

/// Data kept only with `pmd-perf-metrics`.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    iteration_cycles: Histogram,
    iteration_packets: Histogram,
    packet_cycles: Histogram,
    batch_packets: Histogram,
    iteration_upcalls: Histogram,
    upcall_cycles: Histogram,
    /// All iterations, and the cycles of those with packets.
    sum: Pass,
    packets_cycles: u64,
    /// The newest last.
    iterations: VecDeque<Pass>,
    milliseconds: VecDeque<Pass>,
    this_ms: Pass,
    /// Receive batches of the current iteration.
    bursts: u64,
    /// The counters at the end of the last iteration: packets, upcalls, replies, their waits.
    seen: [u64; 4],
}

impl Metrics {
    fn new(stats: &PmdStats) -> Metrics {
        Metrics {
            iteration_cycles: Histogram::new(&histogram::ITERATION_CYCLES),
            iteration_packets: Histogram::new(&histogram::ITERATION_PACKETS),
            packet_cycles: Histogram::new(&histogram::PACKET_CYCLES),
            batch_packets: Histogram::new(&histogram::BATCH_PACKETS),
            iteration_upcalls: Histogram::new(&histogram::ITERATION_UPCALLS),
            upcall_cycles: Histogram::new(&histogram::UPCALL_CYCLES),
            sum: Pass::default(),
            packets_cycles: 0,
            iterations: VecDeque::with_capacity(HISTORY_LEN),
            milliseconds: VecDeque::with_capacity(HISTORY_LEN),
            this_ms: Pass::default(),
            bursts: 0,
            seen: counters(stats),
        }
    }

    fn end_iteration(&mut self, number: u64, cycles: u64, clock: &Clock, now: Now, stats: &PmdStats) -> Pass {
        let now_seen = counters(stats);
        let [packets, upcalls, answers, waited_us] =
            std::array::from_fn(|i| now_seen[i].saturating_sub(self.seen[i]));
        self.seen = now_seen;
        let pass = Pass {
            number,
            iterations: 1,
            cycles,
            packets,
            bursts: std::mem::take(&mut self.bursts),
            upcalls,
            answers,
            answers_cycles: if answers > 0 {
                (waited_us as f64 * clock.cycles_per_us(now)) as u64
            } else {
                0
            },
        };
        self.iteration_cycles.add(cycles);
        self.iteration_packets.add(packets);
        if let Some(each) = cycles.checked_div(packets) {
            self.packet_cycles.add(each);
            self.packets_cycles += cycles;
        }
        self.iteration_upcalls.add(upcalls);
        if let Some(each) = pass.answers_cycles.checked_div(answers) {
            self.upcall_cycles.add(each);
        }
        self.sum.add(&pass);
        remember(&mut self.iterations, pass);
        let ms = now.us / 1000;
        if self.this_ms.number != ms {
            let over = std::mem::replace(&mut self.this_ms, Pass { number: ms, ..Pass::default() });
            if over.iterations > 0 {
                remember(&mut self.milliseconds, over);
            }
        }
        self.this_ms.add(&pass);
        pass
    }

    /// The last of them alone.
    fn shortened(mut self, iterations: usize, milliseconds: usize) -> Metrics {
        self.iterations.drain(..self.iterations.len().saturating_sub(iterations));
        self.milliseconds.drain(..self.milliseconds.len().saturating_sub(milliseconds));
        self
    }
}

fn counters(stats: &PmdStats) -> [u64; 4] {
    [stats.received, stats.upcalls, stats.answers, stats.answers_us]
}

fn remember(history: &mut VecDeque<Pass>, pass: Pass) {
    if history.len() == HISTORY_LEN {
        history.pop_front();
    }
    history.push_back(pass);
}

/// A point in time, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Now {
    pub(crate) us: u64,
    pub(crate) cycles: u64,
}

/// Rate of the cycle counter, measured from some point on.
#[derive(Clone, Copy, Debug)]
struct Clock(Now);

impl Clock {
    fn cycles_per_us(&self, now: Now) -> f64 {
        let us = now.us.saturating_sub(self.0.us).max(1);
        now.cycles.saturating_sub(self.0.cycles) as f64 / us as f64
    }
}

/// Iterations to log, after the following ones.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    first: u64,
    last: u64,
}

/// See the module documentation.
pub(crate) struct Perf {
    /// Start of the thread.
    clock: Clock,
    /// Start of counting.
    since: Now,
    /// Start of the current iteration.
    began_cycles: u64,
    iterations: u64,
    busy_iterations: u64,
    sleeps: u64,
    slept_cycles: u64,
    metrics: Option<Box<Metrics>>,
    log: PerfLog,
    suspicion: Option<Suspicion>,
}

impl Perf {
    pub(crate) fn new(now: Now) -> Perf {
        Perf {
            clock: Clock(now),
            since: now,
            began_cycles: now.cycles,
            iterations: 0,
            busy_iterations: 0,
            sleeps: 0,
            slept_cycles: 0,
            metrics: None,
            log: PerfLog::default(),
            suspicion: None,
        }
    }

    /// Restarts counting, with the thread's present counters.
    pub(crate) fn clear(&mut self, now: Now, stats: &PmdStats) {
        let metrics = self.metrics.is_some();
        *self = Perf { clock: self.clock, log: self.log, ..Perf::new(now) };
        self.set(metrics, self.log, stats);
    }

    /// Sets whether histograms and histories are kept, and which iterations are logged.
    pub(crate) fn set(&mut self, metrics: bool, log: PerfLog, stats: &PmdStats) {
        match (metrics, &self.metrics) {
            (true, None) => self.metrics = Some(Box::new(Metrics::new(stats))),
            (false, _) => self.metrics = None,
            _ => {}
        }
        if !log.on || !metrics {
            self.suspicion = None;
        }
        self.log = log;
    }

    /// Records a batch of a receive queue.
    #[inline]
    pub(crate) fn count_burst(&mut self, packets: usize) {
        if let Some(metrics) = &mut self.metrics {
            metrics.bursts += 1;
            metrics.batch_packets.add(packets as u64);
        }
    }

    /// Ends an iteration, of which the thread slept `slept_cycles`.
    #[inline]
    pub(crate) fn end_iteration(&mut self, now: Now, worked: bool, slept_cycles: u64, stats: &PmdStats) {
        let number = self.iterations;
        self.iterations += 1;
        self.busy_iterations += u64::from(worked);
        self.sleeps += u64::from(slept_cycles > 0);
        self.slept_cycles += slept_cycles;
        let began = std::mem::replace(&mut self.began_cycles, now.cycles);
        if let Some(metrics) = &mut self.metrics {
            let cycles = now.cycles.saturating_sub(began).saturating_sub(slept_cycles);
            let pass = metrics.end_iteration(number, cycles, &self.clock, now, stats);
            if self.log.on {
                self.watch(&pass, now);
            }
        }
    }

    #[inline(never)]
    fn watch(&mut self, pass: &Pass, now: Now) {
        let took_us = pass.cycles as f64 / self.clock.cycles_per_us(now).max(f64::MIN_POSITIVE);
        if took_us > self.log.longer_than_us as f64 {
            let last = pass.number + self.log.after as u64;
            match &mut self.suspicion {
                Some(known) if self.log.extend => known.last = last,
                Some(_) => {}
                none => {
                    let number = pass.number;
                    log::warn!(
                        target: "pmd_perf",
                        "Suspicious iteration (Excessive total cycles): iter={number} duration={took_us:.0} us"
                    );
                    *none = Some(Suspicion { first: number.saturating_sub(self.log.before as u64), last });
                }
            }
        }
        let (Some(over), Some(metrics)) = (self.suspicion.filter(|s| pass.number >= s.last), &self.metrics)
        else {
            return;
        };
        self.suspicion = None;
        let neighbours =
            metrics.iterations.iter().rev().filter(|p| (over.first..=over.last).contains(&p.number));
        log::warn!(target: "pmd_perf", "Neighborhood of suspicious iteration:");
        text::iterations(neighbours)
            .lines()
            .for_each(|line| log::warn!(target: "pmd_perf", "{}", line.trim_end()));
    }

    /// The report, with the last entries of the histories.
    pub(crate) fn snapshot(&self, now: Now, stats: &PmdStats, lengths: [usize; 2]) -> PerfShown {
        let [iterations, milliseconds] = lengths;
        PerfShown {
            duration_us: now.us.saturating_sub(self.since.us),
            cycles_per_us: self.clock.cycles_per_us(now),
            stats: *stats,
            iterations: self.iterations,
            busy_iterations: self.busy_iterations,
            sleeps: self.sleeps,
            slept_cycles: self.slept_cycles,
            metrics: self.metrics.clone().map(|m| Box::new(m.shortened(iterations, milliseconds))),
        }
    }
}

/// Report of a thread for `pmd-perf-show`.
#[derive(Clone, Debug)]
pub(crate) struct PerfShown {
    duration_us: u64,
    cycles_per_us: f64,
    stats: PmdStats,
    iterations: u64,
    busy_iterations: u64,
    sleeps: u64,
    slept_cycles: u64,
    metrics: Option<Box<Metrics>>,
}

impl PerfShown {
    /// The counters alone.
    pub(crate) fn iterations(&self) -> Iterations {
        let slept_us =
            if self.cycles_per_us > 0.0 { (self.slept_cycles as f64 / self.cycles_per_us) as u64 } else { 0 };
        Iterations { all: self.iterations, busy: self.busy_iterations, sleeps: self.sleeps, slept_us }
    }
}
