//! [`ModReport`]: the line of the log about a connection's flow-mods.
//!
//! As in OVS it is due ten seconds after the first of them, but a minute after the report before, and at the
//! connection's end.

use super::{ConnId, Connmgr};
use ofproto::flow_mod::FlowModCounts;
use std::fmt::Write as _;

/// Time from a flow-mod to its report.
const DELAY_MS: u64 = 10_000;
/// Time between two reports.
const INTERVAL_MS: u64 = 60_000;

/// Flow-mods that the log does not have yet.
#[derive(Default)]
pub(super) struct ModReport {
    counts: FlowModCounts,
    first_ms: u64,
    last_ms: u64,
    /// Time of the report; `None` without flow-mods.
    due_ms: Option<u64>,
    /// Earliest time of the next report.
    not_before_ms: u64,
}

impl ModReport {
    /// Counts executed flow-mods.
    pub(super) fn count(&mut self, counts: FlowModCounts, now_ms: u64) {
        if counts == FlowModCounts::default() {
            return;
        }
        if self.due_ms.is_none() {
            let due_ms = self.not_before_ms.max(now_ms + DELAY_MS);
            (self.first_ms, self.due_ms, self.not_before_ms) = (now_ms, Some(due_ms), due_ms + INTERVAL_MS);
        }
        self.last_ms = now_ms;
        self.counts.add(counts);
    }

    /// Time of the report, if there is something to report.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// The report; `None` without flow-mods.
    fn take(&mut self, now_ms: u64) -> Option<String> {
        self.due_ms.take()?;
        let FlowModCounts { adds, deletes, modifications } = std::mem::take(&mut self.counts);
        let ago_s = now_ms.saturating_sub(self.first_ms) / 1000;
        let during_s = (self.last_ms - self.first_ms) / 1000;
        let mut text = format!("{} flow_mods ", adds + deletes + modifications);
        // Writing to a string cannot fail.
        let _ = match during_s {
            _ if during_s == ago_s => write!(text, "in the last {ago_s} s"),
            0 => write!(text, "{ago_s} s ago"),
            _ => write!(text, "in the {during_s} s starting {ago_s} s ago"),
        };
        let kinds = [(adds, "adds"), (deletes, "deletes"), (modifications, "modifications")];
        let kinds = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}"));
        Some(format!("{text} ({})", kinds.collect::<Vec<_>>().join(", ")))
    }
}

impl Connmgr {
    /// A line for the log about a connection's flow-mods, if it is due.
    pub fn take_mod_report(&mut self, id: ConnId, now_ms: u64) -> Option<String> {
        let report = &mut self.conns.get_mut(&id)?.mod_report;
        report.due_ms().filter(|due_ms| *due_ms <= now_ms)?;
        report.take(now_ms)
    }

    /// The report at the connection's end, due or not.
    pub fn take_last_mod_report(&mut self, id: ConnId, now_ms: u64) -> Option<String> {
        self.conns.get_mut(&id)?.mod_report.take(now_ms)
    }
}
