//! [`DeficitRoundRobin`]: service order of the ports' upcall queues in handlers. Used by every datapath and the
//! simulator.

use std::collections::VecDeque;

/// Upcalls taken by a handler per turn.
pub const BATCH_MAX_UPCALLS: usize = 64;

/// Deficit round robin (Shreedhar and Varghese, 1995) over the nonempty queues, in units of upcalls. The cost of a
/// turn depends on the upcalls served, not on the number of empty queues. A newly nonempty queue is served before
/// the busy ones (as in RFC 8290): a port with few upcalls does not wait for a round of flooding ones. It leaves
/// only when it is found empty in a full round, so it has this priority once per round.
#[derive(Debug)]
pub struct DeficitRoundRobin<Q> {
    /// Queues without a turn so far.
    new: VecDeque<Q>,
    /// The others, in the order of their turns.
    old: VecDeque<Q>,
    /// Remaining quantum of the current queue.
    left: usize,
    /// See [`DeficitRoundRobin::ahead`].
    ahead: usize,
}

/// Quantum: upcalls served per queue and turn.
pub const QUANTUM: usize = 2;

impl<Q> Default for DeficitRoundRobin<Q> {
    fn default() -> DeficitRoundRobin<Q> {
        DeficitRoundRobin { new: VecDeque::new(), old: VecDeque::new(), left: QUANTUM, ahead: 0 }
    }
}

impl<Q> DeficitRoundRobin<Q> {
    /// Adds a newly nonempty queue.
    pub fn enter(&mut self, queue: Q) {
        self.new.push_back(queue);
    }

    /// Takes up to `max` values, fairly; `pop` takes one from a queue. An empty queue leaves, unless `emptied`
    /// returns it because it is nonempty again.
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

    /// Number of values last taken from newly nonempty queues: they come first.
    pub fn ahead(&self) -> usize {
        self.ahead
    }
}

#[cfg(test)]
mod tests;
