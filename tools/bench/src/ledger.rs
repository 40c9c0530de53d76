//! Counts of received frames: each frame once, unchanged, in order within its flow.

use crate::frames::{Frames, Refused, Stamp};

/// Maximum number of tracked sequence numbers (a bit each); beyond, a frame counts as damaged.
const SEQUENCES_MAX: u64 = 1 << 32;

/// Received frames of one run.
pub(crate) struct Ledger {
    seen: Vec<u64>,
    last_of_flow: Vec<u64>,
    /// Frames counted once.
    pub(crate) received: u64,
    /// Repeated frames.
    pub(crate) duplicates: u64,
    /// Frames of the run with altered bytes.
    pub(crate) damaged: u64,
    /// Frames after a later one of their flow.
    pub(crate) reordered: u64,
    /// Frames of no run.
    pub(crate) foreign: u64,
}

impl Ledger {
    /// An empty one for a run.
    pub(crate) fn new(frames: &Frames) -> Ledger {
        Ledger {
            seen: Vec::new(),
            last_of_flow: vec![0; frames.flows() as usize],
            received: 0,
            duplicates: 0,
            damaged: 0,
            reordered: 0,
            foreign: 0,
        }
    }

    /// Counts a frame; returns its stamp if it is valid and new.
    pub(crate) fn enter(&mut self, frames: &Frames, bytes: &[u8]) -> Option<Stamp> {
        let stamp = match frames.read(bytes) {
            Ok(stamp) if stamp.sequence < SEQUENCES_MAX => stamp,
            Err(Refused::Foreign) => {
                self.foreign += 1;
                return None;
            }
            _ => {
                self.damaged += 1;
                return None;
            }
        };
        let (word, bit) = ((stamp.sequence / 64) as usize, 1 << (stamp.sequence % 64));
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return None;
        }
        self.seen[word] |= bit;
        self.received += 1;
        let last = &mut self.last_of_flow[frames.flow(stamp.sequence) as usize];
        if stamp.sequence < *last {
            self.reordered += 1;
        } else {
            *last = stamp.sequence;
        }
        Some(stamp)
    }

    /// The fault, if any. Missing frames are none: those are losses, explained elsewhere.
    pub(crate) fn fault(&self) -> Option<String> {
        let counts =
            [("duplicates", self.duplicates), ("damaged", self.damaged), ("out of order", self.reordered)];
        let bad: Vec<String> =
            counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
        (!bad.is_empty()).then(|| bad.join(", "))
    }
}
