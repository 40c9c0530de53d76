//! Upcall queues like those of `dpif-netdev`: bounded, one pair per port, emptied in deficit round robin.
//! Checks the isolation invariant: refused upcalls, and turns that an upcall waits.

use crate::report::{Broken, Invariant, Violations};
use dpif::{BATCH_MAX_UPCALLS, DeficitRoundRobin, QUANTUM};
use dpif::{Upcall, UpcallKind};
use flow::DpPort;
use std::collections::VecDeque;

struct Waiting {
    upcall: Box<Upcall>,
    /// Turns of its handler when it was queued.
    turn: u64,
    /// Upcalls ahead of it in its queue.
    ahead: usize,
}

#[derive(Default)]
struct PortQueues {
    port: DpPort,
    misses: VecDeque<Waiting>,
    actions: VecDeque<Waiting>,
    turn: u64,
    /// It is in the list of ports to serve.
    listed: bool,
}

impl PortQueues {
    fn new(port: DpPort) -> PortQueues {
        PortQueues { port, ..PortQueues::default() }
    }

    /// Alternates, so that neither kind starves the other.
    fn pop(&mut self) -> Option<Waiting> {
        self.turn += 1;
        match self.turn % 2 {
            1 => self.misses.pop_front().or_else(|| self.actions.pop_front()),
            _ => self.actions.pop_front().or_else(|| self.misses.pop_front()),
        }
    }
}

struct Handler {
    drr: DeficitRoundRobin<DpPort>,
    turns: u64,
}

/// Placeholder for "no input port".
const NO_PORT: DpPort = DpPort(u32::MAX);

/// See the module.
pub(crate) struct UpcallQueues {
    queues: Vec<PortQueues>,
    handlers: Vec<Handler>,
    misses_max: usize,
    actions_max: usize,
    broken: Option<Broken>,
    /// A port was added or removed: turns are not comparable for a while.
    changed_at_turn: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) taken: u64,
    pub(crate) purged: u64,
}

impl UpcallQueues {
    pub(crate) fn new(
        handlers: usize,
        misses_max: usize,
        actions_max: usize,
        broken: Option<Broken>,
    ) -> UpcallQueues {
        let handler = |_| Handler { drr: DeficitRoundRobin::default(), turns: 0 };
        UpcallQueues {
            // Upcalls without a port, or of a removed port, have their own queues.
            queues: vec![PortQueues::new(NO_PORT)],
            handlers: (0..handlers).map(handler).collect(),
            misses_max,
            actions_max,
            broken,
            changed_at_turn: 0,
            accepted: 0,
            refused: 0,
            taken: 0,
            purged: 0,
        }
    }

    pub(crate) fn port_add(&mut self, port: DpPort) {
        self.queues.push(PortQueues::new(port));
        self.changed_at_turn = self.handlers.iter().map(|h| h.turns).max().unwrap_or(0);
    }

    pub(crate) fn port_del(&mut self, port: DpPort) {
        for q in self.queues.iter().filter(|q| q.port == port) {
            self.purged += (q.misses.len() + q.actions.len()) as u64;
        }
        self.queues.retain(|q| q.port != port);
        self.changed_at_turn = self.handlers.iter().map(|h| h.turns).max().unwrap_or(0);
    }

    /// Queues an upcall, or returns it.
    pub(crate) fn push(
        &mut self,
        upcall: Box<Upcall>,
        violations: &mut Violations,
    ) -> Result<(), Box<Upcall>> {
        let own = self.queues.iter().position(|q| q.port == upcall.rx_port);
        let at = match self.broken {
            Some(Broken::SharedQueue) => Some(0),
            _ => own.or(Some(0)),
        };
        let Some(at) = at else {
            self.refused += 1;
            return Err(upcall);
        };
        let turn = self.handlers[self.handler_of(self.queues[at].port)].turns;
        let of_port = |w: &&Waiting| w.upcall.rx_port == upcall.rx_port;
        let q = &mut self.queues[at];
        let miss = upcall.kind == UpcallKind::Miss;
        let (queue, max) =
            if miss { (&mut q.misses, self.misses_max) } else { (&mut q.actions, self.actions_max) };
        let own_waiting = queue.iter().filter(of_port).count();
        let unbounded = self.broken == Some(Broken::UnboundedQueue);
        if queue.len() >= max && !unbounded {
            if own_waiting < max && own.is_some_and(|at| at != 0) {
                violations.add(Invariant::Isolation, || {
                    format!(
                        "an upcall of port {} refused with {own_waiting} of its own waiting",
                        upcall.rx_port.0
                    )
                });
            }
            self.refused += 1;
            return Err(upcall);
        }
        let ahead = if self.broken == Some(Broken::SharedQueue) { own_waiting } else { queue.len() };
        queue.push_back(Waiting { upcall, turn, ahead });
        self.accepted += 1;
        if queue.len() > max {
            violations.add(Invariant::Bounds, || format!("{} upcalls in a queue for {max}", queue.len()));
        }
        let port = q.port;
        if !std::mem::replace(&mut q.listed, true) {
            let handler = self.handler_of(port);
            self.handlers[handler].drr.enter(port);
        }
        Ok(())
    }

    fn handler_of(&self, port: DpPort) -> usize {
        port.0 as usize % self.handlers.len()
    }

    /// Runs a turn of a handler.
    pub(crate) fn take(&mut self, handler: usize, violations: &mut Violations) -> dpif::Upcalls {
        let count = self.handlers.len();
        let ports = self.queues.iter().filter(|q| q.port.0 as usize % count == handler).count();
        let h = &mut self.handlers[handler];
        let queues = std::cell::RefCell::new(&mut self.queues);
        let taken = h.drr.take(
            BATCH_MAX_UPCALLS,
            |port| queues.borrow_mut().iter_mut().find(|q| q.port == *port)?.pop(),
            |port| {
                let mut queues = queues.borrow_mut();
                queues.iter_mut().filter(|q| q.port == port).for_each(|q| q.listed = false);
                None
            },
        );
        if !taken.is_empty() {
            h.turns += 1;
        }
        self.taken += taken.len() as u64;
        // A port is served QUANTUM upcalls a round, of both kinds in turn. A round is at most QUANTUM of each
        // port, and as many if it was empty before.
        let rounds_per_upcalls = |n: usize| 2 * n / QUANTUM + 2;
        let turns_per_round = (2 * ports * QUANTUM).div_ceil(BATCH_MAX_UPCALLS);
        let own_port = |w: &&Waiting| self.queues[1..].iter().any(|q| q.port == w.upcall.rx_port);
        for w in taken.iter().filter(|w| w.turn > self.changed_at_turn).filter(own_port) {
            let (waited, bound) = (h.turns - w.turn, rounds_per_upcalls(w.ahead) * turns_per_round + 1);
            if waited > bound as u64 {
                let port = w.upcall.rx_port.0;
                violations.add(Invariant::Isolation, || {
                    format!("an upcall of port {port} waited {waited} turns, {bound} are enough")
                });
            }
        }
        taken.into_iter().map(|w| w.upcall).collect()
    }

    /// Number of waiting upcalls.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(|q| q.misses.len() + q.actions.len()).sum()
    }
}
