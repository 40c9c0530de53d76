//! [`Pace`]: decides by the rate of frames whether a receive queue deserves a ring.
//!
//! Rates are measured over at least [`WINDOW_US`]. Two fast windows in a row ask for a ring; one burst does not. Ten slow
//! seconds give it back.

/// Minimum time of a measurement.
pub(super) const WINDOW_US: u64 = 100_000;
/// Frames a second from which a window is fast.
pub(super) const FAST_PPS: u64 = 10_000;
/// Fast windows in a row that ask for a ring.
const FAST_WINDOWS: u32 = 2;
/// Frames a second below which a window is slow.
pub(super) const SLOW_PPS: u64 = 1_000;
/// Time of slow windows after which a ring is given back.
pub(super) const SLOW_US: u64 = 10_000_000;
/// Time without an empty queue after which it counts as overloaded.
const OVERLOADED_US: u64 = 1_000_000;

/// The result of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// No change.
    Keep,
    /// Frames come fast.
    Grow,
    /// Frames have come slowly for long.
    GiveBack,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Pace {
    frames: u64,
    /// The queue was empty at some time of the window.
    emptied: bool,
    window_us: u64,
    fast_windows: u32,
    slow_since_us: Option<u64>,
    full_since_us: Option<u64>,
}

impl Pace {
    /// Counts received frames; `emptied`: none is left.
    #[inline]
    pub(super) fn count(&mut self, frames: usize, emptied: bool) {
        self.frames += frames as u64;
        self.emptied |= emptied;
    }

    /// Ends a window that is long enough.
    pub(super) fn review(&mut self, now_us: u64) -> Advice {
        let elapsed_us = now_us.saturating_sub(self.window_us);
        if elapsed_us < WINDOW_US {
            return Advice::Keep;
        }
        let (frames, emptied) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.emptied));
        self.window_us = now_us;
        let rate = frames.saturating_mul(1_000_000) / elapsed_us;
        self.fast_windows = if rate >= FAST_PPS { self.fast_windows.saturating_add(1) } else { 0 };
        since(&mut self.slow_since_us, rate < SLOW_PPS, now_us);
        since(&mut self.full_since_us, frames > 0 && !emptied, now_us);
        if self.fast_windows >= FAST_WINDOWS {
            Advice::Grow
        } else if self.slow_since_us.is_some_and(|since| now_us - since >= SLOW_US) {
            Advice::GiveBack
        } else {
            Advice::Keep
        }
    }

    /// Whether the queue was never empty for a second before the last review.
    pub(super) fn is_overloaded(&self) -> bool {
        self.full_since_us.is_some_and(|since| self.window_us.saturating_sub(since) >= OVERLOADED_US)
    }
}

/// Keeps the first time since which a condition holds.
fn since(first_us: &mut Option<u64>, holds: bool, now_us: u64) {
    *first_us = if holds { first_us.or(Some(now_us)) } else { None };
}
