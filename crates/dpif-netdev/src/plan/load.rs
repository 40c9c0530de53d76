//! Cycles over the last minute, in intervals of 5 s, as shown by `pmd-rxq-show`.

/// Length of an interval.
pub(crate) const INTERVAL_US: u64 = 5_000_000;
/// Number of stored intervals, including the current one.
pub(crate) const INTERVALS: usize = 12;

/// Cycles of the last intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct History {
    since_us: u64,
    /// Number of the newest nonempty interval.
    newest: u64,
    cycles: [u64; INTERVALS],
}

impl History {
    /// Empty, from now on.
    pub(crate) fn new(now_us: u64) -> History {
        History { since_us: now_us, newest: now_us / INTERVAL_US, cycles: [0; INTERVALS] }
    }

    /// Adds cycles to the current interval.
    pub(crate) fn add(&mut self, now_us: u64, cycles: u64) {
        let interval = now_us / INTERVAL_US;
        // Time does not go back; if it did, the newest interval would take the cycles.
        let skipped = interval.saturating_sub(self.newest).min(INTERVALS as u64);
        for n in 1..=skipped {
            self.cycles[place(self.newest + n)] = 0;
        }
        self.newest = self.newest.max(interval);
        self.cycles[place(self.newest)] += cycles;
    }

    /// Cycles per microsecond over the last `intervals` intervals, including the current one, or since the start if
    /// that is shorter.
    pub(crate) fn rate(&self, now_us: u64, intervals: usize) -> f64 {
        let now = now_us / INTERVAL_US;
        let first = (now + 1).saturating_sub(intervals.clamp(1, INTERVALS) as u64);
        let cycles: u64 = (first..=now).map(|n| self.in_interval(n)).sum();
        let span_us = now_us.saturating_sub(self.since_us.max(first * INTERVAL_US));
        if span_us == 0 { 0.0 } else { cycles as f64 / span_us as f64 }
    }

    /// Cycles of all stored intervals.
    pub(crate) fn total(&self, now_us: u64) -> u64 {
        let now = now_us / INTERVAL_US;
        ((now + 1).saturating_sub(INTERVALS as u64)..=now).map(|n| self.in_interval(n)).sum()
    }

    /// Cycles of one interval; 0 if it is not stored.
    pub(crate) fn in_interval(&self, interval: u64) -> u64 {
        let known = interval <= self.newest && interval + INTERVALS as u64 > self.newest;
        if known { self.cycles[place(interval)] } else { 0 }
    }
}

fn place(interval: u64) -> usize {
    (interval % INTERVALS as u64) as usize
}
