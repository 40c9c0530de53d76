//! Log lines of a session that wait for its driver: few, and at a limited rate, because packets cause them.

use crate::protocol::{LineLevel, LogLine};
use crate::saved::fields;

/// Lines that wait at most.
const WAITING_MAX: usize = 16;
/// Lines after a pause, as in OVS.
const BURST: u64 = 30;
/// Milliseconds for one more line: 20 a minute, as in OVS.
const MS_PER_LINE: u64 = 3000;

/// Lines of one session.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    waiting: Vec<LogLine>,
    lost: u64,
    /// Milliseconds of credit.
    credit_ms: u64,
    credited_ms: u64,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { waiting: Vec::new(), lost: 0, credit_ms: BURST * MS_PER_LINE, credited_ms: 0 }
    }
}

fields!(Lines; credit_ms; times: credited_ms);

impl Lines {
    /// Values of another process in their range.
    pub(crate) fn bound(&mut self) {
        self.credit_ms = self.credit_ms.min(BURST * MS_PER_LINE);
    }

    /// Adds a line, whose text is made only if there is room.
    pub(crate) fn put(
        &mut self,
        module: &'static str,
        level: LineLevel,
        now_ms: u64,
        text: impl FnOnce() -> String,
    ) {
        let passed_ms = now_ms.saturating_sub(self.credited_ms);
        self.credited_ms = now_ms;
        self.credit_ms = self.credit_ms.saturating_add(passed_ms).min(BURST * MS_PER_LINE);
        if self.waiting.len() < WAITING_MAX && self.credit_ms >= MS_PER_LINE {
            self.credit_ms -= MS_PER_LINE;
            self.waiting.push(LogLine { module, level, text: text() });
        } else {
            self.lost += 1;
        }
    }

    /// Whether lines wait.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The lines, and the number of those that were lost.
    pub(crate) fn take(&mut self) -> (Vec<LogLine>, u64) {
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lost))
    }
}
