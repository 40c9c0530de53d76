//! Upcall dispatch from the kernel's sockets to handlers.
//!
//! A [`Channel`] is an upcall socket of the kernel: one for each processor, or one for each port ([`Mode`]);
//! never one for each port and handler.
//!
//! - *Per CPU*: the kernel selects the socket of the processor it runs on. Each socket belongs to one
//!   handler, which keeps the order within a flow. The handler empties it up to its quotas, and drops the
//!   excess over a port's queue, counted for that port, so that upcalls of other ports find space in the
//!   socket.
//! - *Per port*: all handlers wait for all sockets, with `EPOLLEXCLUSIVE`, so an upcall wakes one of them.
//!   The woken handler claims the socket, reads it, and releases it once it is empty and all upcalls read
//!   from it are served. This keeps the order within a port, and no two handlers serve the same one. A
//!   handler that finds a socket claimed sets a flag, which the owner checks on release, so no upcall is left
//!   behind. A socket is read only while the port's queue has room: the rest stays in the kernel, bounded for
//!   that port alone. The order of handlers differs between sockets, so no handler is always woken first.
//!
//! In both modes, upcalls read from sockets wait in the handler's queues by port ([`Queues`]).

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

/// Maximum upcalls that a handler reads from a socket per turn.
const READ_QUOTA: usize = 128;
/// The least that a read may bring.
pub(super) const READ_LEAST: usize = 64;
/// Maximum upcalls held by a handler; beyond, they stay in the sockets.
const HELD_MAX: usize = 16_384;

/// Selection of the socket for an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The socket of the processor (Linux 5.15 and later).
    PerCpu,
    /// The socket of the input port.
    PerPort,
}

impl Mode {
    /// The name in the log and in `dpif/show`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::PerCpu => "per-cpu",
            Mode::PerPort => "per-port",
        }
    }
}

/// A source of upcalls: a socket.
pub(super) trait Source: Send + Sync {
    /// Readable if upcalls wait.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Its address for the kernel.
    fn pid(&self) -> u32;
    /// Reads up to `max` upcalls, [`READ_LEAST`] or more, without blocking.
    fn read(&self, max: usize) -> Read;
}

/// Result of a read.
#[derive(Default)]
pub(super) struct Read {
    /// In order.
    pub(super) upcalls: Upcalls,
    /// The socket is empty.
    pub(super) emptied: bool,
    /// Number of reports of lost upcalls by the kernel.
    pub(super) overruns: u64,
}

/// See the module.
pub(super) struct Channel {
    source: Box<dyn Source>,
    /// The port of these upcalls; `None` for all ports.
    port: Option<DpPort>,
    claimed: AtomicBool,
    /// A handler was woken while another one owned the channel.
    missed: AtomicBool,
}

impl Channel {
    fn new(source: Box<dyn Source>, port: Option<DpPort>) -> Arc<Channel> {
        Arc::new(Channel { source, port, claimed: AtomicBool::new(false), missed: AtomicBool::new(false) })
    }

    fn try_claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::SeqCst)
    }

    /// Claims the channel, or notifies its owner of further input.
    fn claim(&self) -> bool {
        if self.try_claim() {
            return true;
        }
        self.missed.store(true, Ordering::SeqCst);
        // The owner may have released it before it could see the flag.
        self.try_claim()
    }

    /// Releases the channel; `false` if there is further input and the caller still owns it.
    fn release(&self) -> bool {
        self.claimed.store(false, Ordering::SeqCst);
        !(self.missed.swap(false, Ordering::SeqCst) && self.try_claim())
    }
}

/// The sockets and their readers.
pub(super) struct Dispatch {
    mode: Mode,
    channels: RwLock<HashMap<u64, Arc<Channel>>>,
    ports: RwLock<BTreeMap<DpPort, Arc<PortUpcalls>>>,
    pollers: Mutex<Vec<Arc<Poller>>>,
    /// Upcalls held by ended handlers.
    left: Mutex<Upcalls>,
    /// Upcalls that ended with their port.
    ended: AtomicU64,
    /// Drops of removed ports.
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

    /// Number of handlers.
    pub(super) fn handlers(&self) -> usize {
        lock(&self.pollers).len()
    }

    /// Adds the socket for the upcalls of a processor.
    ///
    /// # Errors
    /// The system refuses to watch it.
    pub(super) fn cpu_add(&self, cpu: u32, source: Box<dyn Source>) -> io::Result<()> {
        self.add(u64::from(cpu), Channel::new(source, None))
    }

    /// Adds a port, and the socket for its upcalls, if it has one.
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

    /// Adds a channel to pollers: to all for a port's, to one for a processor's.
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

    /// Removes a port and its socket, if it has one.
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

    /// The netlink address of a port's upcall socket, in per-port mode.
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

    /// Counters of a port's upcalls.
    pub(super) fn port(&self, port: DpPort) -> Option<Arc<PortUpcalls>> {
        read(&self.ports).get(&port).cloned()
    }

    /// Upcalls that waited when their port was removed.
    pub(super) fn ended_with_port(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Upcalls dropped at a full port queue, total over all ports ever.
    pub(super) fn refused(&self) -> u64 {
        let now: u64 = read(&self.ports).values().map(|p| p.refused.load(Ordering::Relaxed)).sum();
        now + self.refused_before.load(Ordering::Relaxed)
    }

    /// Wakes all handlers.
    pub(super) fn wake(&self) {
        lock(&self.pollers).iter().for_each(|p| p.waker().wake());
    }

    /// Assigns the sockets to that many new handlers. The former ones must have ended.
    ///
    /// # Errors
    /// The system refuses descriptors; then no handler reads.
    pub(super) fn set_handlers(self: &Arc<Self>, count: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>> {
        let mut pollers = lock(&self.pollers);
        let made: Vec<Arc<Poller>> =
            (0..count.max(1)).map(|_| Ok(Arc::new(Poller::new()?))).collect::<io::Result<_>>()?;
        for (name, channel) in read(&self.channels).iter() {
            pollers.iter().for_each(|p| p.remove(channel.source.fd()));
            channel.claimed.store(false, Ordering::SeqCst);
            // Waiting input triggers an event.
            self.watch(&made, *name, channel)?;
        }
        *pollers = made;
        let mut ends: Vec<Handler> =
            pollers.iter().map(|poller| Handler::new(self.clone(), poller.clone())).collect();
        for upcall in std::mem::take(&mut *lock(&self.left)) {
            let port = upcall.rx_port;
            let end = port.0 as usize % ends.len();
            ends[end].hold(upcall);
            // Later upcalls stay behind them.
            let channel = read(&self.channels).get(&u64::from(port.0)).cloned();
            if let Some(channel) = channel.filter(|c| c.port == Some(port) && c.try_claim()) {
                ends[end].claimed.push_back(Claimed { channel, emptied: false });
            }
        }
        Ok(ends.into_iter().map(|end| Box::new(end) as Box<dyn UpcallReceiver>).collect())
    }

    fn state_of(&self, port: DpPort) -> Arc<PortUpcalls> {
        // Translation drops upcalls of a removed port.
        self.port(port).unwrap_or_else(|| {
            let state = PortUpcalls::default();
            state.gone.store(true, Ordering::Relaxed);
            Arc::new(state)
        })
    }
}

/// A channel owned by a handler until it is empty.
struct Claimed {
    channel: Arc<Channel>,
    /// The socket is empty.
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

    /// Collects channels with input, waiting if necessary, and reads as much as fits.
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
            // Upcalls of the previous turn are served by now.
            if emptied && channel.port.is_none_or(|port| self.queues.is_empty(port)) {
                if channel.release() {
                    continue;
                }
                emptied = false;
            }
            self.claimed.push_back(Claimed { channel, emptied });
        }
    }

    /// Reads up to the quota of a turn; `true` if the socket is empty.
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
            if probes::wants_misses() {
                probes::read(&upcall, self.queues.has_room(&upcall));
            }
            self.hold(upcall);
        }
        emptied
    }

    /// Counts upcalls lost by the kernel for their port: if unknown, for the port that filled the socket.
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
        // Its channels stay claimed: another running handler must not overtake these upcalls.
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
