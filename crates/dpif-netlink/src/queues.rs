//! Upcalls read from the kernel and not served yet: three bounded queues per input port, served in
//! deficit round robin. Control packets of link protocols ([`Upcall::is_of_session`]) go first, up to half of what is taken. A flooding port fills only its own queues.
//!
//! They belong to one handler. [`PortUpcalls`] counts a port's upcalls over all handlers.

use dpif::DeficitRoundRobin;
use dpif::{Upcall, UpcallKind, Upcalls};
use flow::DpPort;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, Ordering};

/// Misses that may wait per port and handler.
pub(super) const MISSES_PER_PORT: usize = 512;
/// Maximum waiting packets for controllers and the slow path per port and handler.
pub(super) const ACTIONS_PER_PORT: usize = 256;
/// Maximum waiting control packets of link protocols per port and handler.
pub(super) const SESSIONS_PER_PORT: usize = 256;

/// Counts of a port's upcalls held and dropped by handlers.
#[derive(Default)]
pub(super) struct PortUpcalls {
    /// Read, and not served yet.
    pub(super) waiting: AtomicU64,
    /// Dropped because the port's queue was full.
    pub(super) refused: AtomicU64,
    /// Reports of lost upcalls on the port's socket.
    pub(super) overruns: AtomicU64,
    /// The port was removed.
    pub(super) gone: AtomicBool,
}

struct Queue {
    port: Arc<PortUpcalls>,
    misses: VecDeque<Box<Upcall>>,
    actions: VecDeque<Box<Upcall>>,
    sessions: VecDeque<Box<Upcall>>,
    listed: bool,
    /// Listed for its control packets.
    sessions_listed: bool,
    actions_next: bool,
}

impl Queue {
    fn new(port: Arc<PortUpcalls>) -> Queue {
        Queue {
            port,
            misses: VecDeque::new(),
            actions: VecDeque::new(),
            sessions: VecDeque::new(),
            listed: false,
            sessions_listed: false,
            actions_next: false,
        }
    }

    fn pop(&mut self) -> Option<Box<Upcall>> {
        // Alternates, so that neither kind starves the other.
        self.actions_next = !self.actions_next;
        let popped = match self.actions_next {
            true => self.misses.pop_front().or_else(|| self.actions.pop_front()),
            false => self.actions.pop_front().or_else(|| self.misses.pop_front()),
        };
        self.served(popped)
    }

    fn pop_session(&mut self) -> Option<Box<Upcall>> {
        let popped = self.sessions.pop_front();
        self.served(popped)
    }

    fn served(&self, popped: Option<Box<Upcall>>) -> Option<Box<Upcall>> {
        if popped.is_some() {
            self.port.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        popped
    }

    fn is_empty(&self) -> bool {
        self.misses.is_empty() && self.actions.is_empty() && self.sessions.is_empty()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Queues {
    ports: HashMap<DpPort, Queue>,
    order: DeficitRoundRobin<DpPort>,
    sessions_order: DeficitRoundRobin<DpPort>,
    /// Control packets among those last taken.
    sessions_taken: usize,
    len: usize,
}

impl Queues {
    /// Upcalls in all of them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of upcalls of that port, of either kind, certain to fit.
    pub(super) fn room(&self, port: DpPort) -> usize {
        let Some(queue) = self.ports.get(&port) else { return ACTIONS_PER_PORT };
        (MISSES_PER_PORT - queue.misses.len())
            .min(ACTIONS_PER_PORT - queue.actions.len())
            .min(SESSIONS_PER_PORT - queue.sessions.len())
    }

    /// Whether no upcall of that port waits.
    pub(super) fn is_empty(&self, port: DpPort) -> bool {
        self.ports.get(&port).is_none_or(Queue::is_empty)
    }

    /// Whether [`Queues::push`] would accept an upcall.
    pub(super) fn has_room(&self, upcall: &Upcall) -> bool {
        let Some(queue) = self.ports.get(&upcall.rx_port) else { return true };
        if upcall.is_of_session() {
            return queue.sessions.len() < SESSIONS_PER_PORT;
        }
        match upcall.kind {
            UpcallKind::Miss => queue.misses.len() < MISSES_PER_PORT,
            UpcallKind::Action(_) => queue.actions.len() < ACTIONS_PER_PORT,
        }
    }

    /// Appends an upcall to the queue of its port and updates `state`, or drops and counts it; `false` then.
    pub(super) fn push(&mut self, upcall: Box<Upcall>, state: impl FnOnce() -> Arc<PortUpcalls>) -> bool {
        let (port, has_room) = (upcall.rx_port, self.has_room(&upcall));
        let queue = self.ports.entry(port).or_insert_with(|| Queue::new(state()));
        if !has_room {
            queue.port.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        queue.port.waiting.fetch_add(1, Ordering::Relaxed);
        self.len += 1;
        if upcall.is_of_session() {
            queue.sessions.push_back(upcall);
            if !std::mem::replace(&mut queue.sessions_listed, true) {
                self.sessions_order.enter(port);
            }
            return true;
        }
        match upcall.kind {
            UpcallKind::Miss => queue.misses.push_back(upcall),
            UpcallKind::Action(_) => queue.actions.push_back(upcall),
        }
        if !std::mem::replace(&mut queue.listed, true) {
            self.order.enter(port);
        }
        true
    }

    /// Up to `max` upcalls, fairly from all ports.
    pub(super) fn take(&mut self, max: usize) -> Upcalls {
        let ports = RefCell::new(&mut self.ports);
        let emptied = |port: DpPort, unlist: fn(&mut Queue)| {
            let ports = &mut *ports.borrow_mut();
            let queue = ports.get_mut(&port)?;
            unlist(queue);
            if queue.port.gone.load(Ordering::Relaxed) && queue.is_empty() {
                ports.remove(&port);
            }
            None
        };
        let pop = |port: &DpPort| ports.borrow_mut().get_mut(port)?.pop_session();
        let unlist = |port| emptied(port, |queue| queue.sessions_listed = false);
        let mut taken = self.sessions_order.take(max.div_ceil(2), pop, unlist);
        self.sessions_taken = taken.len();
        let pop = |port: &DpPort| ports.borrow_mut().get_mut(port)?.pop();
        let unlist = |port| emptied(port, |queue| queue.listed = false);
        taken.extend(self.order.take(max - taken.len(), pop, unlist));
        self.len -= taken.len();
        taken
    }

    /// See [`DeficitRoundRobin::ahead`].
    pub(super) fn ahead(&self) -> usize {
        self.sessions_taken + self.order.ahead()
    }

    /// All upcalls, in the order of each port.
    pub(super) fn drain(&mut self) -> Upcalls {
        let mut all = Vec::new();
        while self.len > 0 {
            all.append(&mut self.take(usize::MAX));
        }
        all
    }
}

#[cfg(test)]
mod tests;
