//! [`DeficitRoundRobin`]: the order in which handlers serve the upcall queues of ports. Every datapath and the simulator use it.

use std::collections::VecDeque;

/// How many upcalls a handler takes at a turn.
pub const BATCH_MAX_UPCALLS: usize = 64;

/// Deficit round robin (Shreedhar and Varghese, 1995) over the queues that hold something, in units of upcalls. A turn costs
/// what it serves, however many queues are empty. A queue that was empty has its first turn before those that never are (as RFC
/// 8290 has it): who asks for little does not wait for a round of those who flood. It leaves only when it is found empty in a
/// round of all, so it comes first once a round.
#[derive(Debug)]
pub struct DeficitRoundRobin<Q> {
    /// Those that have not had a turn yet.
    new: VecDeque<Q>,
    /// The others, in the order of their turns.
    old: VecDeque<Q>,
    /// What the queue whose turn it is may still have served.
    left: usize,
    /// See [`DeficitRoundRobin::ahead`].
    ahead: usize,
}

/// How many upcalls a queue may have served before the next queue's turn.
pub const QUANTUM: usize = 2;

impl<Q> Default for DeficitRoundRobin<Q> {
    fn default() -> DeficitRoundRobin<Q> {
        DeficitRoundRobin { new: VecDeque::new(), old: VecDeque::new(), left: QUANTUM, ahead: 0 }
    }
}

impl<Q> DeficitRoundRobin<Q> {
    /// A queue that was not here holds something.
    pub fn enter(&mut self, queue: Q) {
        self.new.push_back(queue);
    }

    /// Takes up to `max` values, fairly; `pop` takes one from a queue. A queue that gives none leaves, unless `emptied` gives it
    /// back because it holds something again.
    pub fn take<T>(
        &mut self,
        max: usize,
        mut pop: impl FnMut(&Q) -> Option<T>,
        mut emptied: impl FnMut(Q) -> Option<Q>,
    ) -> Vec<T> {
        let mut out = Vec::new();
        self.ahead = 0;
        while out.len() < max {
            let is_new = !self.new.is_empty();
            let turns = if is_new { &mut self.new } else { &mut self.old };
            let Some(queue) = turns.front() else { break };
            let value = pop(queue);
            let is_empty = value.is_none();
            self.ahead += usize::from(is_new && !is_empty);
            out.extend(value);
            self.left -= usize::from(!is_empty);
            if is_empty || self.left == 0 {
                self.left = QUANTUM;
                let served = turns.pop_front();
                let stays = if is_empty && !is_new { served.and_then(&mut emptied) } else { served };
                self.old.extend(stays);
            }
        }
        out
    }

    /// How many of the values taken last came from queues that had been empty: they are the first of them.
    pub fn ahead(&self) -> usize {
        self.ahead
    }
}

#[cfg(test)]
mod tests;
