//! How upcalls come from the kernel to handlers.
//!
//! A [`Channel`] is a socket into which the kernel puts upcalls: one for each processor, or one for each port, as the kernel
//! can ([`Mode`]); never one for each port and handler.
//!
//! - *Per CPU*: the kernel chooses the socket by the processor that it runs on. Each socket belongs to one handler, so the order
//!   within a flow is kept, and is emptied as far as quotas go: what a port's queue has no room for is dropped there, counted
//!   against that port, so that the others' upcalls find room in the socket.
//! - *Per port*: each handler waits for all sockets, with `EPOLLEXCLUSIVE`, so that an upcall wakes one of those that wait. A
//!   handler that is told of a socket claims it, reads it, and lets go of it when nothing is left there and all that it read is
//!   served: the order within a port is kept, and no two handlers run for the same. Who finds a socket claimed says so, and who
//!   lets go looks whether somebody did: no upcall stays behind. A socket is read as far as the port's queue has room: the rest
//!   stays in the kernel, whose bound is that port's own. Handlers stand in another order at each socket, so that none is always
//!   the first to be woken.
//!
//! In both, what was read waits in the handler's queues by port ([`Queues`]).

use super::queues::{PortUpcalls, Queues};
use dpif::BATCH_MAX_UPCALLS;
use dpif::{Upcall, Upcalls};
use dpif::{UpcallReceiver, Waker};
use flow::DpPort;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock};
use sys::Poller;

/// Upcalls that a handler reads from a socket at a turn, at most.
const READ_QUOTA: usize = 128;
/// The least that a read may bring.
pub(super) const READ_LEAST: usize = 64;
/// Upcalls that a handler holds at most; beyond, sockets wait.
const HELD_MAX: usize = 16_384;

/// Which socket the kernel chooses for an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// That of the processor (Linux 5.15 and later).
    PerCpu,
    /// That of the input port.
    PerPort,
}

impl Mode {
    /// As the log and `dpif/show` have it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::PerCpu => "per-cpu",
            Mode::PerPort => "per-port",
        }
    }
}

/// A socket that upcalls come from.
pub(super) trait Source: Send + Sync {
    /// Ready when there is something to read.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Its address for the kernel.
    fn pid(&self) -> u32;
    /// Reads up to `max` upcalls, [`READ_LEAST`] or more, without waiting.
    fn read(&self, max: usize) -> Read;
}

/// What a read brought.
#[derive(Default)]
pub(super) struct Read {
    /// In order.
    pub(super) upcalls: Upcalls,
    /// Nothing was left.
    pub(super) emptied: bool,
    /// The kernel had no room for upcalls meanwhile: how often it said so.
    pub(super) overruns: u64,
}

/// See the module.
pub(super) struct Channel {
    source: Box<dyn Source>,
    /// The port whose upcalls come here; all ports where there is none.
    port: Option<DpPort>,
    claimed: AtomicBool,
    /// Somebody was told of input while another one had it.
    missed: AtomicBool,
}

impl Channel {
    fn new(source: Box<dyn Source>, port: Option<DpPort>) -> Arc<Channel> {
        Arc::new(Channel { source, port, claimed: AtomicBool::new(false), missed: AtomicBool::new(false) })
    }

    fn try_claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::SeqCst)
    }

    /// Takes the channel, or tells who has it that there is more.
    fn claim(&self) -> bool {
        if self.try_claim() {
            return true;
        }
        self.missed.store(true, Ordering::SeqCst);
        // Who had it may have let go before it could see that.
        self.try_claim()
    }

    /// Lets go; `false` when there is more, and the channel is still the caller's.
    fn release(&self) -> bool {
        self.claimed.store(false, Ordering::SeqCst);
        !(self.missed.swap(false, Ordering::SeqCst) && self.try_claim())
    }
}

/// The sockets and who reads them.
pub(super) struct Dispatch {
    mode: Mode,
    channels: RwLock<HashMap<u64, Arc<Channel>>>,
    ports: RwLock<BTreeMap<DpPort, Arc<PortUpcalls>>>,
    pollers: Mutex<Vec<Arc<Poller>>>,
    /// What handlers held that have ended.
    left: Mutex<Upcalls>,
    /// Upcalls that ended with their port.
    ended: AtomicU64,
    /// What ports lost that are gone.
    refused_before: AtomicU64,
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Dispatch {
    /// Without sockets.
    pub(super) fn new(mode: Mode) -> Dispatch {
        Dispatch {
            mode,
            channels: RwLock::default(),
            ports: RwLock::default(),
            pollers: Mutex::default(),
            left: Mutex::default(),
            ended: AtomicU64::new(0),
            refused_before: AtomicU64::new(0),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Sockets open now.
    pub(super) fn sockets(&self) -> usize {
        read(&self.channels).len()
    }

    /// How many handlers there are.
    pub(super) fn handlers(&self) -> usize {
        lock(&self.pollers).len()
    }

    /// Has the upcalls of a processor come by a socket.
    ///
    /// # Errors
    /// The system refuses to watch it.
    pub(super) fn cpu_add(&self, cpu: u32, source: Box<dyn Source>) -> io::Result<()> {
        self.add(u64::from(cpu), Channel::new(source, None))
    }

    /// Makes a port known, whose upcalls come by a socket of its own, if it has one.
    ///
    /// # Errors
    /// The system refuses to watch the socket.
    pub(super) fn port_add(&self, port: DpPort, source: Option<Box<dyn Source>>) -> io::Result<()> {
        write(&self.ports).insert(port, Arc::default());
        match source {
            Some(source) => self.add(u64::from(port.0), Channel::new(source, Some(port))),
            None => Ok(()),
        }
    }

    fn add(&self, name: u64, channel: Arc<Channel>) -> io::Result<()> {
        let pollers = lock(&self.pollers);
        write(&self.channels).insert(name, channel.clone());
        self.watch(&pollers, name, &channel)
    }

    /// Has the handlers wait for a channel: all for that of a port, one for that of a processor.
    fn watch(&self, pollers: &[Arc<Poller>], name: u64, channel: &Channel) -> io::Result<()> {
        if pollers.is_empty() {
            return Ok(());
        }
        let first = name as usize % pollers.len();
        let who = match self.mode {
            Mode::PerCpu => 1,
            Mode::PerPort => pollers.len(),
        };
        (0..who).try_for_each(|n| pollers[(first + n) % pollers.len()].add(channel.source.fd(), name))
    }

    /// Forgets a port and its socket, if it has one.
    pub(super) fn port_del(&self, port: DpPort) {
        let pollers = lock(&self.pollers);
        if let Some(channel) = write(&self.channels).remove(&u64::from(port.0)).filter(|c| c.port.is_some()) {
            pollers.iter().for_each(|p| p.remove(channel.source.fd()));
        }
        if let Some(state) = write(&self.ports).remove(&port) {
            state.gone.store(true, Ordering::Relaxed);
            self.ended.fetch_add(state.waiting.load(Ordering::Relaxed), Ordering::Relaxed);
            self.refused_before.fetch_add(state.refused.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The address of the socket that upcalls of a port go to, where ports have one.
    pub(super) fn pid_of(&self, port: DpPort) -> Option<u32> {
        let channels = read(&self.channels);
        channels.get(&u64::from(port.0)).filter(|c| c.port.is_some()).map(|c| c.source.pid())
    }

    /// The addresses of the sockets of processors.
    pub(super) fn cpu_pids(&self) -> BTreeMap<u32, u32> {
        let channels = read(&self.channels);
        let cpus = channels.iter().filter(|(_, c)| c.port.is_none());
        cpus.map(|(name, c)| (*name as u32, c.source.pid())).collect()
    }

    /// What is counted of a port's upcalls.
    pub(super) fn port(&self, port: DpPort) -> Option<Arc<PortUpcalls>> {
        read(&self.ports).get(&port).cloned()
    }

    /// Upcalls that waited when their port was removed.
    pub(super) fn ended_with_port(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Upcalls that found no room in their port's queue, of all ports ever.
    pub(super) fn refused(&self) -> u64 {
        let now: u64 = read(&self.ports).values().map(|p| p.refused.load(Ordering::Relaxed)).sum();
        now + self.refused_before.load(Ordering::Relaxed)
    }

    /// Wakes all handlers.
    pub(super) fn wake(&self) {
        lock(&self.pollers).iter().for_each(|p| p.waker().wake());
    }

    /// Gives the sockets to so many new handlers. The former ones must have ended.
    ///
    /// # Errors
    /// The system refuses descriptors; nobody reads then.
    pub(super) fn set_handlers(self: &Arc<Self>, count: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>> {
        let mut pollers = lock(&self.pollers);
        let made: Vec<Arc<Poller>> =
            (0..count.max(1)).map(|_| Ok(Arc::new(Poller::new()?))).collect::<io::Result<_>>()?;
        for (name, channel) in read(&self.channels).iter() {
            pollers.iter().for_each(|p| p.remove(channel.source.fd()));
            channel.claimed.store(false, Ordering::SeqCst);
            // Input that is there already is told of.
            self.watch(&made, *name, channel)?;
        }
        *pollers = made;
        let mut ends: Vec<Handler> =
            pollers.iter().map(|poller| Handler::new(self.clone(), poller.clone())).collect();
        for upcall in std::mem::take(&mut *lock(&self.left)) {
            let port = upcall.rx_port;
            let end = port.0 as usize % ends.len();
            ends[end].hold(upcall);
            // What comes later stays behind them.
            let channel = read(&self.channels).get(&u64::from(port.0)).cloned();
            if let Some(channel) = channel.filter(|c| c.port == Some(port) && c.try_claim()) {
                ends[end].claimed.push_back(Claimed { channel, emptied: false });
            }
        }
        Ok(ends.into_iter().map(|end| Box::new(end) as Box<dyn UpcallReceiver>).collect())
    }

    fn state_of(&self, port: DpPort) -> Arc<PortUpcalls> {
        // What comes from a port that is gone is dropped by its translation.
        self.port(port).unwrap_or_else(|| {
            let state = PortUpcalls::default();
            state.gone.store(true, Ordering::Relaxed);
            Arc::new(state)
        })
    }
}

/// A channel that belongs to a handler until nothing is left of it.
struct Claimed {
    channel: Arc<Channel>,
    /// Nothing was left in the socket.
    emptied: bool,
}

/// The receiving end of one handler.
struct Handler {
    dispatch: Arc<Dispatch>,
    poller: Arc<Poller>,
    /// Channels that are this handler's for now.
    claimed: VecDeque<Claimed>,
    queues: Queues,
    names: Vec<u64>,
}

impl Handler {
    fn new(dispatch: Arc<Dispatch>, poller: Arc<Poller>) -> Handler {
        Handler { dispatch, poller, claimed: VecDeque::new(), queues: Queues::default(), names: Vec::new() }
    }

    fn hold(&mut self, upcall: Box<Upcall>) {
        let port = upcall.rx_port;
        self.queues.push(upcall, || self.dispatch.state_of(port));
    }

    /// Sees which channels have input, waiting for that if need be, and reads what there is room for.
    fn gather(&mut self, timeout: Duration) {
        let timeout = if self.claimed.is_empty() { timeout } else { Duration::ZERO };
        let mut names = std::mem::take(&mut self.names);
        self.poller.wait(timeout, &mut names);
        {
            let channels = read(&self.dispatch.channels);
            let new = names.iter().filter_map(|n| channels.get(n)).filter(|c| c.claim());
            self.claimed.extend(new.map(|c| Claimed { channel: c.clone(), emptied: false }));
        }
        self.names = names;
        for _ in 0..self.claimed.len() {
            let Some(Claimed { channel, mut emptied }) = self.claimed.pop_front() else { break };
            emptied = emptied || self.read(&channel);
            // What was taken at the last turn is served by now.
            if emptied && channel.port.is_none_or(|port| self.queues.is_empty(port)) {
                if channel.release() {
                    continue;
                }
                emptied = false;
            }
            self.claimed.push_back(Claimed { channel, emptied });
        }
    }

    /// Reads a turn's share; `true` when nothing is left.
    fn read(&mut self, channel: &Channel) -> bool {
        let room = channel.port.map_or(READ_QUOTA, |port| self.queues.room(port));
        if room < READ_LEAST || self.queues.len() >= HELD_MAX {
            return false;
        }
        let Read { upcalls, emptied, overruns } = channel.source.read(room.min(READ_QUOTA));
        if overruns > 0 {
            self.count_overruns(channel, &upcalls, overruns);
        }
        for upcall in upcalls {
            if probes::tells_misses() {
                probes::read(&upcall, self.queues.has_room(&upcall));
            }
            self.hold(upcall);
        }
        emptied
    }

    /// Counts upcalls that the kernel lost against the port that they came from: where the socket does not say, against that
    /// which filled it.
    fn count_overruns(&self, channel: &Channel, upcalls: &Upcalls, overruns: u64) {
        let most = || {
            let mut by_port: BTreeMap<DpPort, usize> = BTreeMap::new();
            upcalls.iter().for_each(|u| *by_port.entry(u.rx_port).or_default() += 1);
            by_port.into_iter().max_by_key(|(_, n)| *n).map(|(port, _)| port)
        };
        if let Some(port) = channel.port.or_else(most).and_then(|port| self.dispatch.port(port)) {
            port.overruns.fetch_add(overruns, Ordering::Relaxed);
        }
    }
}

impl UpcallReceiver for Handler {
    fn waker(&self) -> Waker {
        let waker = self.poller.waker();
        Arc::new(move || waker.wake())
    }

    fn take(&mut self, timeout: Duration) -> Upcalls {
        self.gather(if self.queues.len() == 0 { timeout } else { Duration::ZERO });
        self.queues.take(BATCH_MAX_UPCALLS)
    }

    fn ahead(&self) -> usize {
        self.queues.ahead()
    }

    fn wait(&mut self, timeout: Duration) {
        self.gather(timeout);
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // Its channels stay claimed: another handler that has not ended yet must not run ahead of these.
        lock(&self.dispatch.left).append(&mut self.queues.drain());
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.fd()
    }
}

#[cfg(test)]
mod tests;
