//! [`MemoryGrowth`]: lines of the log (`memory`) about the memory that the process holds at most, in the words of OVS:
//! ten seconds after the start, and whenever it has grown by half within ten seconds or more.

use crate::turn::Turn;

const MODULE: &str = "memory";
/// Time between two looks.
const INTERVAL_MS: u64 = 10_000;

/// The peak at the last line.
pub(crate) struct MemoryGrowth {
    started_ms: u64,
    /// Time and kilobytes of the last line.
    reported: Option<(u64, u64)>,
    next_ms: u64,
}

impl MemoryGrowth {
    /// The process starts now.
    pub(crate) fn new(now_ms: u64) -> MemoryGrowth {
        MemoryGrowth { started_ms: now_ms, reported: None, next_ms: now_ms + INTERVAL_MS }
    }

    /// Time of the next look.
    pub(crate) fn turn(&self) -> Turn {
        Turn::at(self.next_ms)
    }

    /// Looks at the peak, if that is due; returns the line for the log.
    fn look(&mut self, now_ms: u64, peak_kb: impl FnOnce() -> Option<u64>) -> Option<String> {
        if now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + INTERVAL_MS;
        let peak_kb = peak_kb()?;
        let seconds = |from_ms: u64| now_ms.saturating_sub(from_ms) as f64 / 1000.0;
        let line = match self.reported {
            None => {
                format!("{peak_kb} kB peak resident set size after {:.1} seconds", seconds(self.started_ms))
            }
            Some((at_ms, before_kb)) if peak_kb >= before_kb + before_kb / 2 => {
                let growth = (peak_kb - before_kb) * 100 / before_kb.max(1);
                format!(
                    "peak resident set size grew {growth}% in last {:.1} seconds, from {before_kb} kB to {peak_kb} kB",
                    seconds(at_ms)
                )
            }
            Some(_) => return None,
        };
        self.reported = Some((now_ms, peak_kb));
        Some(line)
    }

    /// Logs the peak, if it has grown; then [`log_counts`] follows.
    pub(crate) fn run(&mut self, now_ms: u64) -> bool {
        let line = self.look(now_ms, sys::machine::peak_resident_kb);
        line.inspect(|line| log::info!(target: MODULE, "{line}")).is_some()
    }
}

/// Logs the counts of `memory/show`.
pub(crate) fn log_counts(counts: &str) {
    log::info!(target: MODULE, "{counts}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time, peak, and the line.
    #[test]
    fn only_growth_by_half_is_told() {
        let mut growth = MemoryGrowth::new(1000);
        for (now_ms, peak_kb, line) in [
            (10_999, 100, None),
            (11_000, 100, Some("100 kB peak resident set size after 10.0 seconds")),
            (12_000, 900, None),
            (21_000, 149, None),
            (
                31_500,
                150,
                Some("peak resident set size grew 50% in last 20.5 seconds, from 100 kB to 150 kB"),
            ),
        ] {
            assert_eq!(growth.look(now_ms, || Some(peak_kb)).as_deref(), line, "{now_ms}");
        }
    }
}
