//! [`Naps`]: timed sleeps between small bursts (`pmd-sleep-max`), for larger bursts and an idle processor.
//!
//! Each burst below half a batch makes the next sleep slightly longer, up to the maximum; a larger one ends them.

use std::time::Duration;

/// Increment of each timed sleep.
const STEP_US: u64 = 1;

/// See the module documentation. The default permits none.
#[derive(Default)]
pub(crate) struct Naps {
    max_us: u64,
    nap_us: u64,
    /// Packets of the largest burst since the last call of [`Naps::next`].
    largest_burst: usize,
}

impl Naps {
    /// Permits sleeps of up to that length; 0 permits none.
    pub(crate) fn set_max(&mut self, us: u64) {
        (self.max_us, self.nap_us) = (us, 0);
    }

    /// Records a received burst.
    pub(crate) fn note_burst(&mut self, packets: usize) {
        self.largest_burst = self.largest_burst.max(packets);
    }

    /// The next sleep after the bursts since the last call, of at most `burst_packets` each.
    pub(crate) fn next(&mut self, burst_packets: usize) -> Option<Duration> {
        // A burst of at least half a batch indicates too much load for timed sleeps.
        let busy = std::mem::take(&mut self.largest_burst) >= burst_packets.div_ceil(2);
        self.nap_us = if busy { 0 } else { (self.nap_us + STEP_US).min(self.max_us) };
        (self.nap_us > 0).then(|| Duration::from_micros(self.nap_us))
    }
}

#[cfg(test)]
mod tests;
