//! Frames, lines and changes of a bridge for its driver.

use super::bpdu::Bpdu;
use crate::protocol::{LearnedChange, LineLevel, LogLine, SessionId};
use std::collections::BTreeSet;

/// Log lines that wait at most.
const LINES_MAX: usize = 64;

/// Frames and changes.
#[derive(Debug, Default)]
pub struct Outbox {
    /// To send, in this order.
    pub frames: Vec<(SessionId, Bpdu)>,
    /// Ports whose state or status changed.
    pub changed: BTreeSet<SessionId>,
    /// Changes of learned addresses, each once.
    pub learned: Vec<(SessionId, LearnedChange)>,
    /// Lines for the log; those of a port lack its name.
    pub lines: Vec<(Option<SessionId>, LogLine)>,
    /// Lines that were lost.
    pub lines_lost: u64,
}

impl Outbox {
    pub(super) fn learned(&mut self, id: SessionId, change: LearnedChange) {
        // A flush of the bridge needs no other one.
        let flushes_all = self.learned.iter().any(|(_, known)| *known == LearnedChange::FlushBridge);
        let is_flush = change != LearnedChange::FlushBridge && matches!(change, LearnedChange::FlushPort);
        if !(flushes_all && (is_flush || change == LearnedChange::FlushBridge))
            && !self.learned.contains(&(id, change))
        {
            self.learned.push((id, change));
        }
    }

    pub(super) fn line(&mut self, module: &'static str, level: LineLevel, text: String) {
        self.push(None, LogLine { module, level, text });
    }

    pub(super) fn line_of(&mut self, id: SessionId, module: &'static str, level: LineLevel, text: String) {
        self.push(Some(id), LogLine { module, level, text });
    }

    fn push(&mut self, id: Option<SessionId>, line: LogLine) {
        match self.lines.len() < LINES_MAX {
            true => self.lines.push((id, line)),
            false => self.lines_lost += 1,
        }
    }
}
