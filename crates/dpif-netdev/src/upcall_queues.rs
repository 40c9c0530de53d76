//! Upcall queues: three bounded ones per physical input port, filled by forwarding threads without blocking and drained
//! by handlers in deficit round robin. A flood on a port fills only its own queues.
//!
//! A port belongs to one handler, which keeps the order of its upcalls. When its queues become non-empty, the port
//! is listed once with that handler. The handler unlists it when it finds the queues empty, and checks once more
//! afterwards: an upcall in between has either been seen or lists the port again. So ports without upcalls cost a
//! handler nothing.
//!
//! Control packets of link protocols have queues of their own ([`Upcall::is_of_session`]), listed separately: a handler takes them
//! first, in turns over their ports, up to half of a batch.

use dpif::{BATCH_MAX_UPCALLS, DeficitRoundRobin};
use dpif::{Upcall, UpcallKind, is_control_packet};
use dpif::{UpcallReceiver, Waker};
use flow::{DpPort, FlowKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sync::{
    AtomicBool, AtomicU64, LimitedQueue, Mutex, Ordering, Parker, ReplyRing, Snapshot, Unparker, lock,
};

/// Maximum waiting misses per port.
const MISSES_PER_PORT: usize = 1024;
/// Maximum waiting misses in total. A port may queue at most as many as there is free space (the dynamic threshold
/// of Choudhury and Hahne, 1998): flooding ports share the space evenly, and others always find some.
const ALL_MISSES: usize = 131_072;
/// Maximum waiting packets for controllers and the slow path, per port.
const ACTIONS_PER_PORT: usize = 512;
/// Maximum waiting control packets of link protocols, per port: tunnels of thousands of sessions may share one.
const SESSIONS_PER_PORT: usize = 2048;
/// Maximum waiting control packets of all ports, shared likewise.
const ALL_SESSIONS: usize = 32_768;
/// Control packets taken at a time, if other upcalls wait.
const SESSIONS_AT_A_TIME: usize = BATCH_MAX_UPCALLS / 2;

/// A queue of a port with a bound over those of all ports.
struct SharedQueue {
    queue: LimitedQueue<Box<Upcall>>,
    /// Upcalls of all ports, and their maximum.
    all: Arc<AtomicU64>,
    all_max: usize,
}

impl SharedQueue {
    fn new(max: usize, all: &Arc<AtomicU64>, all_max: usize) -> SharedQueue {
        SharedQueue { queue: LimitedQueue::new(max), all: all.clone(), all_max }
    }

    fn has_room(&self) -> bool {
        let left = (self.all_max as u64).saturating_sub(self.all.load(Ordering::Relaxed));
        self.queue.has_room() && (self.queue.len() as u64) < left
    }

    fn push(&self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        if !self.has_room() {
            return Err(upcall);
        }
        // Counted before a handler takes it.
        self.all.fetch_add(1, Ordering::Relaxed);
        let queued = self.queue.push(upcall);
        if queued.is_err() {
            self.all.fetch_sub(1, Ordering::Relaxed);
        }
        queued
    }

    fn pop(&self) -> Option<Box<Upcall>> {
        let taken = self.queue.pop()?;
        self.all.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }
}

/// The queues of one port.
pub(crate) struct PortQueues {
    misses: SharedQueue,
    actions: LimitedQueue<Box<Upcall>>,
    sessions: SharedQueue,
    /// Listed with a handler.
    listed: AtomicBool,
    /// Listed for its control packets.
    sessions_listed: AtomicBool,
    turn: AtomicU64,
    handler: Snapshot<Listing>,
}

/// List of a handler's newly non-empty ports.
struct Listing {
    ports: ReplyRing<Arc<PortQueues>>,
    /// Ports whose queue of control packets became non-empty.
    sessions: ReplyRing<Arc<PortQueues>>,
    unparker: Unparker,
}

impl PortQueues {
    /// Queues an upcall, or returns it.
    pub(crate) fn push(self: &Arc<Self>, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        if upcall.is_of_session() {
            self.sessions.push(upcall)?;
            if !self.sessions_listed.swap(true, Ordering::SeqCst) {
                self.list(|listing| &listing.sessions);
            }
            return Ok(());
        }
        match upcall.kind {
            UpcallKind::Miss => self.misses.push(upcall)?,
            UpcallKind::Action(_) => self.actions.push(upcall)?,
        }
        if !self.listed.swap(true, Ordering::SeqCst) {
            self.list(|listing| &listing.ports);
        }
        Ok(())
    }

    /// Whether a miss would be queued now.
    pub(crate) fn has_room(&self) -> bool {
        self.misses.has_room()
    }

    /// Whether a miss of that key would be queued now.
    pub(crate) fn has_room_for(&self, key: &FlowKey) -> bool {
        if is_control_packet(key) { self.sessions.has_room() } else { self.has_room() }
    }

    /// Number of waiting upcalls.
    pub(crate) fn waiting(&self) -> u64 {
        (self.misses.queue.len() + self.actions.len() + self.sessions.queue.len()) as u64
    }

    /// Whether misses of any port wait.
    pub(crate) fn misses_wait(&self) -> bool {
        self.misses.all.load(Ordering::Relaxed) > 0
    }

    /// Lists the port with its handler; with another one, too, if the port moves to it meanwhile.
    fn list(self: &Arc<Self>, ring: fn(&Listing) -> &ReplyRing<Arc<PortQueues>>) {
        let mut handler = self.handler.load();
        loop {
            ring(&handler).push(self.clone());
            handler.unparker.unpark();
            let now = self.handler.load();
            if Arc::ptr_eq(&now, &handler) {
                return;
            }
            handler = now;
        }
    }

    fn pop(&self) -> Option<Box<Upcall>> {
        // Alternates, so that neither kind delays the other.
        match self.turn.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.misses.pop().or_else(|| self.actions.pop()),
            _ => self.actions.pop().or_else(|| self.misses.pop()),
        }
    }

    /// Takes the port off the list for control packets.
    fn unlist_sessions(self: Arc<Self>) -> Option<Arc<Self>> {
        self.sessions_listed.store(false, Ordering::SeqCst);
        let holds = !self.sessions.queue.is_empty();
        (holds && !self.sessions_listed.swap(true, Ordering::SeqCst)).then_some(self)
    }

    /// Unlists the port, unless it is non-empty again.
    fn unlist(self: Arc<Self>) -> Option<Arc<Self>> {
        self.listed.store(false, Ordering::SeqCst);
        let holds = !self.misses.queue.is_empty() || !self.actions.is_empty();
        (holds && !self.listed.swap(true, Ordering::SeqCst)).then_some(self)
    }
}

/// All queues, by port, and their handlers.
pub(crate) struct UpcallQueues {
    state: Mutex<State>,
    /// Upcalls dropped with their port.
    ended: AtomicU64,
    all_misses: Arc<AtomicU64>,
    all_sessions: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    ports: BTreeMap<DpPort, Arc<PortQueues>>,
    handlers: Vec<Arc<Listing>>,
}

impl State {
    fn handler_of(&self, port: DpPort) -> Arc<Listing> {
        self.handlers[port.0 as usize % self.handlers.len()].clone()
    }
}

/// The receiving end of one handler.
pub(crate) struct Handler {
    listing: Arc<Listing>,
    parker: Parker,
    drr: DeficitRoundRobin<Arc<PortQueues>>,
    sessions: DeficitRoundRobin<Arc<PortQueues>>,
    /// Control packets of the last batch.
    sessions_taken: usize,
}

impl UpcallQueues {
    /// Upcall queues without a handler.
    pub(crate) fn new() -> UpcallQueues {
        let upcall_queues = UpcallQueues {
            state: Mutex::default(),
            ended: AtomicU64::new(0),
            all_misses: Arc::default(),
            all_sessions: Arc::default(),
        };
        upcall_queues.set_handlers(1);
        upcall_queues
    }

    /// Distributes the ports over this number of new handlers, at least one; returns their receiving ends. The
    /// previous ones must have ended.
    pub(crate) fn set_handlers(&self, handlers: usize) -> Vec<Handler> {
        let state = &mut *lock(&self.state);
        let end = |_| {
            let parker = Parker::new();
            let (ports, sessions) = (ReplyRing::default(), ReplyRing::default());
            let listing = Listing { ports, sessions, unparker: parker.unparker().clone() };
            Handler {
                listing: Arc::new(listing),
                parker,
                drr: DeficitRoundRobin::default(),
                sessions: DeficitRoundRobin::default(),
                sessions_taken: 0,
            }
        };
        let ends: Vec<Handler> = (0..handlers.max(1)).map(end).collect();
        state.handlers = ends.iter().map(|end| end.listing.clone()).collect();
        for (port, queues) in &state.ports {
            let handler = state.handler_of(*port);
            queues.handler.store(handler);
            if queues.listed.load(Ordering::SeqCst) {
                queues.list(|listing| &listing.ports);
            }
            if queues.sessions_listed.load(Ordering::SeqCst) {
                queues.list(|listing| &listing.sessions);
            }
        }
        ends
    }

    /// Creates the queues of a port.
    pub(crate) fn port_add(&self, port: DpPort) -> Arc<PortQueues> {
        let mut state = lock(&self.state);
        let queues = Arc::new(PortQueues {
            misses: SharedQueue::new(MISSES_PER_PORT, &self.all_misses, ALL_MISSES),
            actions: LimitedQueue::new(ACTIONS_PER_PORT),
            sessions: SharedQueue::new(SESSIONS_PER_PORT, &self.all_sessions, ALL_SESSIONS),
            listed: AtomicBool::new(false),
            sessions_listed: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            handler: Snapshot::of(state.handler_of(port)),
        });
        state.ports.insert(port, queues.clone());
        queues
    }

    /// Removes the queues of a port, which no thread fills any more; drops and counts the waiting upcalls.
    pub(crate) fn port_del(&self, port: DpPort) {
        let Some(gone) = lock(&self.state).ports.remove(&port) else { return };
        // Its handler may still take some of them: each is taken once.
        let ended = std::iter::from_fn(|| gone.pop().or_else(|| gone.sessions.pop())).count();
        self.ended.fetch_add(ended as u64, Ordering::Relaxed);
    }

    /// Upcalls dropped because their port was removed (`DropReason::PortRemoved`), since the start.
    pub(crate) fn ended_with_port(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Wakes all handlers.
    pub(crate) fn wake(&self) {
        lock(&self.state).handlers.iter().for_each(|h| h.unparker.unpark());
    }
}

impl UpcallReceiver for Handler {
    fn waker(&self) -> Waker {
        let unparker = self.parker.unparker().clone();
        Arc::new(move || unparker.unpark())
    }

    fn take(&mut self, timeout: Duration) -> dpif::Upcalls {
        let taken = self.take_now();
        if !taken.is_empty() {
            return taken;
        }
        self.wait(timeout);
        self.take_now()
    }

    fn ahead(&self) -> usize {
        self.sessions_taken + self.drr.ahead()
    }

    fn wait(&mut self, timeout: Duration) {
        self.parker.park_timeout(timeout);
    }
}

impl Handler {
    fn take_now(&mut self) -> dpif::Upcalls {
        while let Some(port) = self.listing.ports.pop() {
            self.drr.enter(port);
        }
        while let Some(port) = self.listing.sessions.pop() {
            self.sessions.enter(port);
        }
        let mut taken =
            self.sessions.take(SESSIONS_AT_A_TIME, |port| port.sessions.pop(), PortQueues::unlist_sessions);
        self.sessions_taken = taken.len();
        let left = BATCH_MAX_UPCALLS - taken.len();
        taken.extend(self.drr.take(left, |port| port.pop(), PortQueues::unlist));
        let left = BATCH_MAX_UPCALLS - taken.len();
        taken.extend(self.sessions.take(left, |port| port.sessions.pop(), PortQueues::unlist_sessions));
        taken
    }
}

#[cfg(test)]
mod tests;
