//! Packet sockets that outlive this process, with a holder ([`sys::fdstore`]): the service manager, or the monitor.
//!
//! The thread `kept` tells the holder, in the order of the events. A socket that is kept no longer is closed here, once the holder
//! has closed its descriptor: the kernel has the one who closes it last wait for a grace period, and that must not be the manager.

use crate::reactor::Reactor;
use crate::switch::Switch;
use dpif_netdev::Inheritance;
use netdev::Keeper;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use sync::{Mutex, lock};
use sys::confine::Kind;
use sys::fdstore::{FdStore, NAMES_MAX_BYTES, STORED_MAX, Stored};

/// Longest wait for the holder.
const HOLDER_MAX: Duration = Duration::from_secs(5);
/// Pause after a holder took no message for so long.
const HOLDER_REST: Duration = Duration::from_secs(60);
/// Longest wait for the ports of sockets that the last process left.
const LEFT_MAX: Duration = Duration::from_secs(10);
/// Threads that close sockets, and sockets of each at least.
const CLOSERS: usize = 64;
const SOCKETS_A_CLOSER: usize = 4;
/// Longest wait for the end, in which sockets are closed.
const END_MAX: Duration = Duration::from_secs(10);

/// An event for the thread.
enum Event {
    Keep {
        name: String,
        id: u64,
        fd: Arc<OwnedFd>,
    },
    Forget {
        name: String,
        id: u64,
    },
    /// Close descriptors of the last process.
    Close(Vec<OwnedFd>),
    /// Tell the holder from now on: this process has the role.
    Begin,
    /// Have it hold nothing more: another process has the sockets. Answered once that is so.
    Leave(Sender<()>),
    End,
}

/// The way to the thread.
#[derive(Clone)]
struct Events(Arc<Mutex<Sender<Event>>>);

impl Events {
    fn send(&self, event: Event) {
        // A thread that has ended keeps nothing.
        let _ = lock(&self.0).send(event);
    }
}

impl Keeper for Events {
    fn keep(&self, name: &str, id: u64, fd: &Arc<OwnedFd>) {
        self.send(Event::Keep { name: name.to_owned(), id, fd: fd.clone() });
    }

    fn forget(&self, name: &str, id: u64) {
        self.send(Event::Forget { name: name.to_owned(), id });
    }
}

/// Sockets of the last process, and the thread that has those of this one kept. Without a holder it does nothing.
pub(crate) struct KeptSockets {
    events: Option<Events>,
    /// A further way to the holder, for a successor.
    share: Option<OwnedFd>,
    /// Closed at the end of the thread.
    ended: Option<Receiver<()>>,
    left: Inheritance,
    /// End of the wait for ports.
    until: Instant,
    /// Ports are open: what they did not take is closed.
    is_settled: bool,
}

impl Default for KeptSockets {
    fn default() -> KeptSockets {
        let left = Inheritance::default();
        KeptSockets { events: None, share: None, ended: None, left, until: Instant::now(), is_settled: true }
    }
}

impl KeptSockets {
    /// Takes what the last process left, and has the sockets of all ports kept. A successor begins with [`KeptSockets::begin`].
    pub(crate) fn start(store: Option<FdStore>, stored: Vec<Stored>, is_successor: bool) -> KeptSockets {
        let Some(store) = store else { return KeptSockets::default() };
        let share = store.share().ok();
        let names = stored.iter().map(|stored| stored.name.clone()).collect();
        let (queues, others) = netdev::queues_of(stored.into_iter().map(|Stored { name, fd }| (name, fd)));
        if !queues.is_empty() {
            log::info!(target: "kept", "frames of {} ports waited since the end of the last process", queues.len());
        }
        let (sender, receiver) = channel();
        let (end_told, ended) = channel::<()>();
        let thread = Thread {
            store,
            tells: !is_successor,
            names: BTreeMap::new(),
            names_bytes: 0,
            is_full: false,
            rests_until: None,
            untold: Vec::new(),
            unwanted: others.into_iter().map(Arc::new).collect(),
        };
        let run = move || {
            sys::confine::enter(Kind::Kept, &[]);
            thread.run(names, &receiver);
            drop(end_told);
        };
        if let Err(e) = std::thread::Builder::new().name("kept".to_string()).spawn(run) {
            log::error!(target: "kept", "sockets end with this process: {e}");
            return KeptSockets::default();
        }
        let events = Events(Arc::new(Mutex::new(sender)));
        netdev::set_keeper(Box::new(events.clone()));
        let left = Inheritance::of_ended(queues);
        let until = Instant::now() + LEFT_MAX;
        KeptSockets { events: Some(events), share, ended: Some(ended), left, until, is_settled: is_successor }
    }

    /// Whether the next process gets the receive queues of this one.
    pub(crate) fn are_kept(&self) -> bool {
        self.events.is_some()
    }

    /// Receive queues of the last process.
    pub(crate) fn left(&self) -> &Inheritance {
        &self.left
    }

    /// Has ports receive, and closes sockets that they did not take: once all ports are open, or are not for long, so that the
    /// frames in the sockets are stale.
    pub(crate) fn settle(&mut self, switch: &mut Switch, reactor: &mut Reactor, is_ready: bool) {
        if !self.is_settled && (is_ready || Instant::now() >= self.until) {
            self.is_settled = true;
            switch.begin_receiving(reactor);
            self.send(Event::Close(self.left.take_left().into_iter().flat_map(|queue| queue.fds).collect()));
        }
    }

    /// The way to the holder, for a successor.
    pub(crate) fn share(&self) -> Option<&OwnedFd> {
        self.share.as_ref()
    }

    /// The process before has ended.
    pub(crate) fn begin(&self) {
        self.send(Event::Begin);
    }

    /// A successor has the sockets. Call it before that is the service: a manager may listen to that alone then.
    pub(crate) fn leave(&self) {
        if self.events.is_some() {
            let (done, is_done) = channel();
            self.send(Event::Leave(done));
            // A thread that has ended holds nothing.
            let _ = is_done.recv_timeout(HOLDER_MAX);
        }
    }

    /// Has closed sockets closed by the end of this process, not by the holder.
    pub(crate) fn end(self) {
        self.send(Event::End);
        if let Some(Err(RecvTimeoutError::Timeout)) = self.ended.map(|ended| ended.recv_timeout(END_MAX)) {
            log::warn!(target: "kept", "sockets are not closed yet");
        }
    }

    fn send(&self, event: Event) {
        if let Some(events) = &self.events {
            events.send(event);
        }
    }
}

/// State of the thread.
struct Thread {
    store: FdStore,
    /// The holder gets messages.
    tells: bool,
    /// Sockets that are kept, by name, with the calls that had them kept.
    names: BTreeMap<String, (u64, Arc<OwnedFd>)>,
    /// Bytes of the names, with a separator each.
    names_bytes: usize,
    /// There was no room for a socket.
    is_full: bool,
    /// The holder took no message: it gets none before.
    rests_until: Option<Instant>,
    /// Names whose removal the holder has not taken yet.
    untold: Vec<String>,
    /// The holder closes its descriptors of these.
    unwanted: Vec<Arc<OwnedFd>>,
}

impl Thread {
    /// Carries out events until the end. The sockets that this process takes over get their names anew.
    fn run(mut self, former: Vec<String>, events: &Receiver<Event>) {
        former.into_iter().for_each(|name| self.remove(name));
        self.close_unwanted();
        while let Ok(event) = events.recv() {
            let mut is_last = self.take(event);
            while let Ok(event) = events.try_recv() {
                is_last |= self.take(event);
            }
            self.close_unwanted();
            if is_last {
                return;
            }
        }
    }

    /// Carries out an event; whether it is the last one.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Keep { name, id, fd } => self.keep(name, id, fd),
            Event::Forget { name, id } => {
                if self.names.get(&name).is_some_and(|(newest, _)| *newest == id) {
                    self.forget(name);
                }
            }
            Event::Close(fds) => self.unwanted.extend(fds.into_iter().map(Arc::new)),
            Event::Begin => {
                (self.tells, self.names_bytes) = (true, 0);
                for (name, (id, fd)) in std::mem::take(&mut self.names) {
                    self.keep(name, id, fd);
                }
            }
            Event::Leave(done) => {
                for name in self.names.keys().cloned().collect::<Vec<_>>() {
                    self.remove(name);
                }
                self.barrier();
                self.tells = false;
                // The main loop may wait no longer.
                let _ = done.send(());
            }
            Event::End => return true,
        }
        false
    }

    fn keep(&mut self, name: String, id: u64, fd: Arc<OwnedFd>) {
        if self.names.contains_key(&name) {
            self.forget(name.clone());
        }
        self.names_bytes += name.len() + 1;
        let has_room = self.names.len() < STORED_MAX && self.names_bytes <= NAMES_MAX_BYTES;
        if !has_room && !std::mem::replace(&mut self.is_full, true) {
            log::warn!(target: "kept", "sockets of {} names are kept, the others end with this process", self.names.len());
        }
        if has_room
            && self.may_tell()
            && let Err(e) = self.store.put(&name, fd.as_fd(), HOLDER_MAX)
        {
            log::warn!(target: "kept", "{name}: ends with this process: {e}");
            self.note(&e);
        }
        self.names.insert(name, (id, fd));
    }

    fn forget(&mut self, name: String) {
        if let Some((_, fd)) = self.names.remove(&name) {
            self.names_bytes = self.names_bytes.saturating_sub(name.len() + 1);
            self.unwanted.push(fd);
            self.remove(name);
        }
    }

    /// Has the holder close its descriptor of a name, now or once it takes messages again.
    fn remove(&mut self, name: String) {
        self.untold.push(name);
        while self.may_tell()
            && let Some(name) = self.untold.last()
        {
            let removed = self.store.remove(name, HOLDER_MAX);
            let waits = removed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut);
            if !waits {
                self.untold.pop();
            }
            removed.unwrap_or_else(|e| self.note(&e));
        }
    }

    /// Waits until the holder has closed its descriptors.
    fn barrier(&mut self) {
        if self.may_tell()
            && let Err(e) = self.store.barrier(HOLDER_MAX)
        {
            self.note(&e);
        }
    }

    /// Whether the holder gets messages now.
    fn may_tell(&self) -> bool {
        self.tells && self.rests_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Tells a holder that is gone no more, and one that took no message not soon.
    fn note(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.rests_until = Some(Instant::now() + HOLDER_REST);
        }
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
        if matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected) {
            log::warn!(target: "kept", "the holder of sockets is gone: {error}; sockets end with this process");
            self.tells = false;
        }
    }

    fn close_unwanted(&mut self) {
        if self.unwanted.is_empty() {
            return;
        }
        self.barrier();
        let mut left = std::mem::take(&mut self.unwanted);
        let share = left.len().div_ceil(CLOSERS).max(SOCKETS_A_CLOSER);
        std::thread::scope(|scope| {
            while left.len() > share {
                let part = left.split_off(left.len() - share);
                let closer = std::thread::Builder::new().name("kept".to_string());
                // Without a thread they are closed here.
                let _ = closer.spawn_scoped(scope, move || drop(part));
            }
        });
        drop(left);
    }
}
