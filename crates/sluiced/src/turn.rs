//! Scheduling of the main loop's sources of work.
//!
//! Sockets, the database, OpenFlow, expiry and waiting commands each do a bounded amount of work per turn and return
//! a [`Turn`]; the main loop sleeps until the earliest of them, and not at all if any has more.

use std::time::Duration;

/// Time of the next turn of a source of work, without an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Turn {
    at_ms: u64,
}

impl Turn {
    /// No work left: the next turn follows an event.
    pub const DONE: Turn = Turn { at_ms: u64::MAX };
    /// More work is ready.
    pub const MORE: Turn = Turn { at_ms: 0 };

    /// At a time, in milliseconds of the monotonic clock.
    pub fn at(at_ms: u64) -> Turn {
        Turn { at_ms }
    }

    /// More, if so; else done.
    pub fn more_if(more: bool) -> Turn {
        if more { Turn::MORE } else { Turn::DONE }
    }

    /// The earlier of both.
    pub fn and(self, other: Turn) -> Turn {
        Turn { at_ms: self.at_ms.min(other.at_ms) }
    }

    /// Maximum sleep of the main loop: 0 if more work is ready, at most `max_ms`.
    pub fn wait(self, now_ms: u64, max_ms: u64) -> Duration {
        Duration::from_millis(self.at_ms.saturating_sub(now_ms).min(max_ms))
    }
}

impl From<Option<u64>> for Turn {
    /// At a time, or none.
    fn from(at_ms: Option<u64>) -> Turn {
        at_ms.map_or(Turn::DONE, Turn::at)
    }
}

impl FromIterator<Turn> for Turn {
    fn from_iter<I: IntoIterator<Item = Turn>>(turns: I) -> Turn {
        turns.into_iter().fold(Turn::DONE, Turn::and)
    }
}

/// Executes `first`, then its follow-ups from `step`, and so on for `max` steps; returns the rest for the next turn.
pub fn in_steps<T>(first: Vec<T>, max: usize, mut step: impl FnMut(Vec<T>) -> Vec<T>) -> Vec<T> {
    let mut left = first;
    for _ in 0..max {
        if left.is_empty() {
            break;
        }
        left = step(left);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_a_turn_leaves_are_done_in_the_next() {
        let mut done = Vec::new();
        let mut left = vec![0];
        for turn in 1..=4 {
            // Each step causes the next one, up to the tenth.
            left = in_steps(left, 3, |now| {
                done.extend(&now);
                now.into_iter().map(|n| n + 1).filter(|n| *n < 10).collect()
            });
            assert_eq!(done.len(), (3 * turn).min(10));
        }
        assert_eq!((done, left), ((0..10).collect(), Vec::new()));
    }

    #[test]
    fn the_loop_sleeps_until_the_earliest_turn_and_never_while_there_is_more() {
        for (turns, wait_ms) in [
            (&[][..], 1000),
            (&[Turn::DONE, Turn::more_if(false)], 1000),
            (&[Turn::at(7_300), Turn::DONE, Turn::at(7_200)], 200),
            (&[Turn::at(9_000), Turn::from(Some(8_500))], 1000),
            (&[Turn::at(6_000), Turn::from(None)], 0),
            (&[Turn::DONE, Turn::MORE, Turn::at(7_900)], 0),
            (&[Turn::more_if(true)], 0),
        ] {
            let all: Turn = turns.iter().copied().collect();
            assert_eq!(all.wait(7_000, 1000), Duration::from_millis(wait_ms), "{turns:?}");
        }
    }
}
