//! Cycles over the last minute: in intervals of 5 s, as `pmd-rxq-show` tells them.

/// Length of an interval.
pub(crate) const INTERVAL_US: u64 = 5_000_000;
/// Intervals remembered, the one under way included.
pub(crate) const INTERVALS: usize = 12;

/// What was spent in each of the last intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct History {
    since_us: u64,
    /// Number of the newest interval that has something.
    newest: u64,
    cycles: [u64; INTERVALS],
}

impl History {
    /// Nothing, from now on.
    pub(crate) fn new(now_us: u64) -> History {
        History { since_us: now_us, newest: now_us / INTERVAL_US, cycles: [0; INTERVALS] }
    }

    /// Adds cycles to the interval of now.
    pub(crate) fn add(&mut self, now_us: u64, cycles: u64) {
        let interval = now_us / INTERVAL_US;
        // Time does not go back; were it to, the newest interval takes what comes.
        let skipped = interval.saturating_sub(self.newest).min(INTERVALS as u64);
        for n in 1..=skipped {
            self.cycles[place(self.newest + n)] = 0;
        }
        self.newest = self.newest.max(interval);
        self.cycles[place(self.newest)] += cycles;
    }

    /// Cycles a microsecond over the last `intervals` intervals, the one under way included, or since the beginning if that
    /// is less.
    pub(crate) fn rate(&self, now_us: u64, intervals: usize) -> f64 {
        let now = now_us / INTERVAL_US;
        let first = (now + 1).saturating_sub(intervals.clamp(1, INTERVALS) as u64);
        let cycles: u64 = (first..=now).map(|n| self.in_interval(n)).sum();
        let span_us = now_us.saturating_sub(self.since_us.max(first * INTERVAL_US));
        if span_us == 0 { 0.0 } else { cycles as f64 / span_us as f64 }
    }

    /// Cycles of one interval; 0 when it is not remembered.
    pub(crate) fn in_interval(&self, interval: u64) -> u64 {
        let known = interval <= self.newest && interval + INTERVALS as u64 > self.newest;
        if known { self.cycles[place(interval)] } else { 0 }
    }
}

fn place(interval: u64) -> usize {
    (interval % INTERVALS as u64) as usize
}
