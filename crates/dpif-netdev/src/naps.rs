//! [`Naps`]: timed sleeps between small bursts (`pmd-sleep-max`), so that packets come in larger bursts and the core rests.
//!
//! Each burst below half a batch makes the next sleep a little longer, up to the bound; a larger one ends them.

use std::time::Duration;

/// By how much each timed sleep is longer than the last one.
const STEP_US: u64 = 1;

/// See the module. The default permits none.
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

    /// A burst came.
    pub(crate) fn note_burst(&mut self, packets: usize) {
        self.largest_burst = self.largest_burst.max(packets);
    }

    /// The sleep that is due after the bursts since the last call, of `burst_packets` at most each.
    pub(crate) fn next(&mut self, burst_packets: usize) -> Option<Duration> {
        // A burst that fills half a batch shows that there is too much to do for timed sleeps.
        let busy = std::mem::take(&mut self.largest_burst) >= burst_packets.div_ceil(2);
        self.nap_us = if busy { 0 } else { (self.nap_us + STEP_US).min(self.max_us) };
        (self.nap_us > 0).then(|| Duration::from_micros(self.nap_us))
    }
}

#[cfg(test)]
mod tests;
