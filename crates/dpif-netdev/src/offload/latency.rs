//! [`Latency`]: averages of the time from the request of a put to its end.

use dpif::OffloadLatency;

/// Puts over which the exponential average mostly extends.
const EXPONENTIAL_PUTS: f64 = 100.0;

/// Running averages and their deviations, in microseconds.
#[derive(Default)]
pub(super) struct Latency {
    count: u64,
    mean: f64,
    /// Sum of squared differences from the mean.
    squares: f64,
    recent: f64,
    recent_variance: f64,
}

impl Latency {
    /// Adds a sample.
    pub(super) fn add(&mut self, us: u64) {
        let us = us as f64;
        self.count += 1;
        let before = us - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (us - self.mean);
        if self.count == 1 {
            self.recent = us;
            return;
        }
        let weight = 2.0 / (EXPONENTIAL_PUTS + 1.0);
        let difference = us - self.recent;
        self.recent += weight * difference;
        self.recent_variance = (1.0 - weight) * (self.recent_variance + weight * difference * difference);
    }

    /// The averages, rounded down.
    pub(super) fn shown(&self) -> OffloadLatency {
        let deviation = if self.count > 1 { (self.squares / (self.count - 1) as f64).sqrt() } else { 0.0 };
        OffloadLatency {
            mean_us: self.mean as u64,
            deviation_us: deviation as u64,
            recent_us: self.recent as u64,
            recent_deviation_us: self.recent_variance.sqrt() as u64,
        }
    }
}
