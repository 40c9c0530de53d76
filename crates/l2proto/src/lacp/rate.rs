//! A bounded rate: tokens that return with time.

use crate::saved::fields;

/// Allows bursts of some events, and later one at each interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    burst: u64,
    interval_ms: u64,
    /// Milliseconds' worth of tokens at `filled_ms`.
    credit_ms: u64,
    filled_ms: u64,
}

impl Rate {
    /// Full: `burst` events are allowed at once, later one each `interval_ms`.
    pub(super) const fn new(burst: u64, interval_ms: u64) -> Rate {
        Rate { burst, interval_ms, credit_ms: burst * interval_ms, filled_ms: 0 }
    }

    /// Counts an event now; `false` if it is too early.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        self.fill(now_ms);
        let is_allowed = self.credit_ms >= self.interval_ms;
        if is_allowed {
            self.credit_ms -= self.interval_ms;
        }
        is_allowed
    }

    /// Time from which the next event is allowed: `now_ms`, or later.
    pub(super) fn next_ms(&mut self, now_ms: u64) -> u64 {
        self.fill(now_ms);
        now_ms + self.interval_ms.saturating_sub(self.credit_ms)
    }

    fn fill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        self.credit_ms = self.credit_ms.saturating_add(passed_ms).min(self.burst * self.interval_ms);
        self.filled_ms = self.filled_ms.max(now_ms);
    }

    /// Keeps the tokens of a rate from another process in their range.
    pub(super) fn bound(&mut self) {
        self.credit_ms = self.credit_ms.min(self.burst * self.interval_ms);
        if self.filled_ms == u64::MAX {
            self.filled_ms = 0;
        }
    }
}

fields!(Rate; credit_ms; times: filled_ms);
