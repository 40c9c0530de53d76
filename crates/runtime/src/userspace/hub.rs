//! Upcall queues: one bounded pair per physical input port, filled by forwarding threads without waiting and emptied by
//! handlers in deficit round robin. A port that floods fills its own queues and nobody else's.

use dpif::{Upcall, UpcallKind};
use flow::DpPort;
use ofproto::upcall::{BATCH_MAX_UPCALLS, DeficitRoundRobin};
use std::sync::Arc;
use std::time::Duration;
use sync::{AtomicU64, BoundedQueue, Ordering, Parker, Snapshot, Unparker};

/// Misses that may wait per port.
const MISSES_PER_PORT: usize = 1024;
/// Packets for controllers and the slow path that may wait per port.
const ACTIONS_PER_PORT: usize = 512;

/// The queues of one port.
pub(crate) struct PortQueues {
    port: DpPort,
    misses: BoundedQueue<Upcall>,
    actions: BoundedQueue<Upcall>,
    handler: Unparker,
    waiting: AtomicU64,
    turn: AtomicU64,
}

impl PortQueues {
    /// Queues an upcall, or gives it back.
    pub(crate) fn push(&self, upcall: Upcall) -> Result<(), Box<Upcall>> {
        let queue = match upcall.kind {
            UpcallKind::Miss => &self.misses,
            UpcallKind::Action(_) => &self.actions,
        };
        queue.push(upcall).map_err(Box::new)?;
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.handler.unpark();
        }
        Ok(())
    }

    /// Upcalls that wait now.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Option<Upcall> {
        // In turn, so that neither kind keeps the other waiting.
        let upcall = match self.turn.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.misses.pop().or_else(|| self.actions.pop()),
            _ => self.actions.pop().or_else(|| self.misses.pop()),
        }?;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(upcall)
    }
}

type Queues = Vec<Arc<PortQueues>>;

/// The queues of one handler's ports.
pub(crate) struct HandlerQueues {
    queues: Snapshot<Queues>,
    unparker: Unparker,
}

/// All queues, by handler: a port's upcalls go to one handler, so their order is kept.
pub(crate) struct UpcallHub {
    handlers: Vec<Arc<HandlerQueues>>,
    /// Upcalls that ended with their port.
    ended: AtomicU64,
}

/// The receiving end of one handler.
pub(crate) struct Handler {
    queues: Arc<HandlerQueues>,
    parker: Parker,
    drr: DeficitRoundRobin,
}

impl UpcallHub {
    /// A hub for `handlers` handlers, and their receiving ends.
    pub(crate) fn new(handlers: usize) -> (UpcallHub, Vec<Handler>) {
        let (mut shared, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..handlers.max(1) {
            let parker = Parker::new();
            let queues = Arc::new(HandlerQueues {
                queues: Snapshot::new(Vec::new()),
                unparker: parker.unparker().clone(),
            });
            shared.push(queues.clone());
            ends.push(Handler { queues, parker, drr: DeficitRoundRobin::default() });
        }
        (UpcallHub { handlers: shared, ended: AtomicU64::new(0) }, ends)
    }

    /// Makes the queues of a port.
    pub(crate) fn port_add(&self, port: DpPort) -> Arc<PortQueues> {
        let handler = &self.handlers[port.0 as usize % self.handlers.len()];
        let queues = Arc::new(PortQueues {
            port,
            misses: BoundedQueue::new(MISSES_PER_PORT),
            actions: BoundedQueue::new(ACTIONS_PER_PORT),
            handler: handler.unparker.clone(),
            waiting: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        });
        let mut all = Queues::clone(&handler.queues.load());
        all.push(queues.clone());
        handler.queues.store(Arc::new(all));
        queues
    }

    /// Forgets the queues of a port, which no thread fills any more; what waits in them ends, counted.
    pub(crate) fn port_del(&self, port: DpPort) {
        for handler in &self.handlers {
            let (gone, left): (Queues, Queues) =
                handler.queues.load().iter().cloned().partition(|q| q.port == port);
            handler.queues.store(Arc::new(left));
            // A handler that read the list before takes some of them yet: each is taken once.
            let ended: usize = gone.iter().map(|q| std::iter::from_fn(|| q.pop()).count()).sum();
            self.ended.fetch_add(ended as u64, Ordering::Relaxed);
        }
    }

    /// Upcalls that ended because their port was removed (`DropReason::PortRemoved`), since the start.
    pub(crate) fn ended_with_port(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Wakes all handlers.
    pub(crate) fn wake(&self) {
        self.handlers.iter().for_each(|h| h.unparker.unpark());
    }

    /// Wakes one handler, by its number.
    pub(crate) fn unparker(&self, handler: usize) -> Unparker {
        self.handlers[handler].unparker.clone()
    }
}

impl Handler {
    /// Up to a batch of upcalls, fairly from all ports; waits for `timeout` when there are none.
    pub(crate) fn take(&mut self, timeout: Duration) -> Vec<Upcall> {
        let taken = self.take_now();
        if !taken.is_empty() {
            return taken;
        }
        self.parker.park_timeout(timeout);
        self.take_now()
    }

    fn take_now(&mut self) -> Vec<Upcall> {
        let queues = self.queues.queues.load();
        self.drr.take(queues.len(), BATCH_MAX_UPCALLS, |i| queues[i].pop())
    }
}

#[cfg(test)]
mod tests;
