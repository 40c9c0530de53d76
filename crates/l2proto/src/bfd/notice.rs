//! Events of a session for the log, with the texts of OVS.
//!
//! A session keeps few of them until its driver takes them, and counts the rest: packets cause some of them. OVS adds
//! the text of `bfd/show` or of the packet to most lines; here they are one line.

use super::message::{Diagnostic, State};

/// Events that wait at most.
const WAITING_MAX: usize = 16;

/// An event for the log, all at level INFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Another state or diagnostic.
    StateChange {
        /// Before.
        from: (State, Diagnostic),
        /// Now.
        to: (State, Diagnostic),
    },
    /// This system asks for other intervals.
    PollStarted,
    /// The other system accepted them.
    PollEnded,
    /// The other system has another multiplier.
    RemoteMultiplier {
        /// Before.
        from: u8,
        /// Now.
        to: u8,
    },
    /// The other system receives at another interval.
    RemoteMinRx {
        /// Now.
        min_rx_ms: u64,
    },
    /// A packet left late, by more than one and a half intervals.
    LateTransmission {
        /// How late.
        delay_ms: u64,
        /// The interval.
        interval_ms: u64,
    },
}

impl Notice {
    /// The line of the log for the session of interface `name`.
    pub fn text(&self, name: &str) -> String {
        match self {
            Notice::StateChange { from, to } => format!(
                "{name}: BFD state change: (bfd.SessionState: {}, bfd.LocalDiag: \"{}\") -> (bfd.SessionState: {}, bfd.LocalDiag: \"{}\")",
                from.0, from.1, to.0, to.1
            ),
            Notice::PollStarted => format!("{name}: Initiating poll sequence"),
            Notice::PollEnded => format!("{name}: Poll sequence terminated."),
            Notice::RemoteMultiplier { from, to } => {
                format!("Interface {name} remote mult value {from} changed to {to}")
            }
            Notice::RemoteMinRx { min_rx_ms } => format!("{name}: New remote min_rx ({min_rx_ms}ms)."),
            Notice::LateTransmission { delay_ms, interval_ms } => format!(
                "{name}: long delay of {delay_ms}ms (expected {interval_ms}ms) sending BFD control message"
            ),
        }
    }
}

/// The events that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    waiting: Vec<Notice>,
    lost: u64,
}

impl Notices {
    pub(super) fn put(&mut self, notice: Notice) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(notice);
        } else {
            self.lost += 1;
        }
    }

    pub(super) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn take(&mut self) -> (Vec<Notice>, u64) {
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lost))
    }
}
