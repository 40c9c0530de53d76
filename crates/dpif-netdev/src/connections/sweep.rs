//! [`Round`]: a walk over all records, spread over the sweep interval.
//!
//! At any time the share of visited records is that of the elapsed interval, which may change meanwhile. A few records are
//! visited together, at its end.

use conntrack::Cursor;

/// Records that are visited together, if there are as many.
const TOGETHER: u32 = 1024;
/// Records between two looks for the end of the thread.
const UNWATCHED: u32 = 1 << 14;

/// See the module documentation.
pub(super) struct Round {
    began_ms: u64,
    at: Cursor,
    visited: u64,
}

impl Round {
    /// Begins now.
    pub(super) fn new(now_ms: u64) -> Round {
        Round { began_ms: now_ms, at: Cursor::default(), visited: 0 }
    }

    /// Visits the records that are due, of `records`. `visit` gets a place and a maximum number of records; it returns
    /// the next place, or `None` after the last record, with which the next round begins. Returns whether it did.
    pub(super) fn go_on(
        &mut self,
        now_ms: u64,
        interval_ms: u32,
        records: u32,
        stops: impl Fn() -> bool,
        mut visit: impl FnMut(Cursor, u32) -> Option<Cursor>,
    ) -> bool {
        let mut due = self.due(now_ms, interval_ms, records);
        while due > 0 && !stops() {
            let some = due.min(UNWATCHED.into()) as u32;
            due -= u64::from(some);
            self.visited += u64::from(some);
            match visit(self.at, some) {
                Some(at) => self.at = at,
                None => {
                    *self = Round::new(now_ms);
                    return true;
                }
            }
        }
        false
    }

    /// Number of records to visit now.
    fn due(&self, now_ms: u64, interval_ms: u32, records: u32) -> u64 {
        let elapsed_ms = now_ms.saturating_sub(self.began_ms);
        if elapsed_ms >= interval_ms.into() {
            return u64::MAX;
        }
        let share = u128::from(records) * u128::from(elapsed_ms) / u128::from(interval_ms);
        let due = (share as u64).saturating_sub(self.visited);
        if due >= TOGETHER.into() { due } else { 0 }
    }
}

#[cfg(test)]
mod tests;
