//! Memory of a port: information that it told its neighbour a moment ago.
//!
//! A BPDU has no number. A port that tells X, then Y, then X again cannot see whether an agreement with X answers the first or
//! the second. While old information counts to infinity, the neighbour of such a port holds Y, and the agreement would close a
//! loop. Agreements are doubtful until answers to the first have arrived.

#[cfg(test)]
mod tests;

use super::super::bpdu::Vector;
use crate::saved::fields;

/// Seconds in which a message and its answer arrive, with the tick that has begun.
const DOUBT_S: u16 = 2;
/// Information that a port remembers.
const MAX: usize = 16;

/// A vector and its age in seconds.
type Words = (Vector, u16);

/// Information that a port told, and whether it returned to some.
#[derive(Debug, Default)]
pub(super) struct Told {
    now: Words,
    /// Earlier information, each once, and the seconds that it is remembered.
    before: Vec<(Words, u16)>,
    doubt_while: u16,
}

fields!(Told, start: Told::default(); now, before, doubt_while; times:);

impl Told {
    /// The port tells this from now on.
    pub(super) fn tell(&mut self, vector: Vector, age: u16) {
        let words = (vector, age);
        if words == self.now {
            return;
        }
        if let Some(at) = self.before.iter().position(|(old, _)| *old == words) {
            self.before.remove(at);
            self.doubt_while = DOUBT_S;
        } else if self.before.len() == MAX {
            // More changes than it remembers: each may be one back.
            self.before.remove(0);
            self.doubt_while = DOUBT_S;
        }
        let old = std::mem::replace(&mut self.now, words);
        self.before.push((old, DOUBT_S));
    }

    /// A second passes.
    pub(super) fn count_down(&mut self) {
        self.doubt_while = self.doubt_while.saturating_sub(1);
        self.before.retain_mut(|(_, left_s)| {
            *left_s -= 1;
            *left_s > 0
        });
    }

    /// Values of another process in their range.
    pub(super) fn bound(&mut self) {
        self.before.truncate(MAX);
        self.before.iter_mut().for_each(|(_, left_s)| *left_s = (*left_s).clamp(1, DOUBT_S));
        self.doubt_while = self.doubt_while.min(DOUBT_S);
    }

    /// Whether an agreement may be one with what the port told before.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubt_while > 0
    }
}
