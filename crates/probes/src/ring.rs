//! The event ring: bounded queues, one for each thread that tells, filled without waiting, and emptied by the thread of the event
//! socket ([`super::server`]). While nobody is connected there are no queues.

use super::About;
use flow::{FlowKey, key_attributes};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use sync::{AtomicU64, AtomicUsize, BoundedQueue, Mutex, Ordering, lock};
use upcall_events::{Event, Stage};

/// Events of a thread that may wait.
const EVENTS_PER_THREAD: usize = 16_384;
/// Bytes of packets and keys of a thread that may wait.
const BYTES_PER_THREAD: usize = 8 << 20;
/// Of so many events the time of one is taken, to tell what telling costs.
const SAMPLED: u64 = 64;
/// If that took so long, the thread was interrupted: it does not stand for the others.
const INTERRUPTED_NS: u64 = 5_000;

/// What the listener wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Bytes of each packet.
    pub(super) packet_bytes: usize,
    /// Bytes of each flow key.
    pub(super) key_bytes: usize,
    /// Bit `1 << stage`.
    pub(super) stages: u16,
}

/// What an event tells beyond [`About`].
#[derive(Clone, Copy, Default)]
pub(super) struct Telling<'a> {
    /// When; 0 for now.
    pub(super) time_ns: u64,
    pub(super) batch: u16,
    pub(super) error: u32,
    pub(super) packet: &'a [u8],
    pub(super) key: Option<&'a FlowKey>,
}

/// A thread that tells.
pub(super) struct Teller {
    pub(super) thread: u32,
    pub(super) name: String,
    wanted: Wanted,
    queue: BoundedQueue<Event>,
    queued_bytes: AtomicUsize,
    lost: [AtomicU64; Stage::ALL.len()],
    told: AtomicU64,
    spent_ns: AtomicU64,
}

/// One connection of a listener.
#[derive(Default)]
struct Session {
    number: u64,
    wanted: Option<Wanted>,
    tellers: Vec<Arc<Teller>>,
}

/// Number of the session; 0 while nobody listens.
static ON: AtomicU64 = AtomicU64::new(0);
/// Locked by a thread once a session, when it tells for the first time.
static SESSION: Mutex<Session> = Mutex::new(Session { number: 0, wanted: None, tellers: Vec::new() });
/// Ports of all datapaths.
static PORTS: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
/// Grows with each change of them.
static PORTS_VERSION: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The session in which this thread told last, and its queue there.
    static MINE: RefCell<(u64, Weak<Teller>)> = const { RefCell::new((0, Weak::new())) };
}

/// Whether somebody listens.
#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// Tells an event, if somebody listens. A full queue loses it, counted.
#[inline]
pub(super) fn tell(stage: Stage, about: About, telling: Telling<'_>) {
    if is_on() {
        tell_listener(stage, about, &telling);
    }
}

#[cold]
fn tell_listener(stage: Stage, about: About, telling: &Telling<'_>) {
    let now_ns = sys::clock::machine_ns();
    let Some(teller) = mine() else { return };
    if teller.wanted.stages & 1 << stage as u16 == 0 {
        return;
    }
    let event = Event {
        stage,
        why: about.why,
        time_ns: if telling.time_ns == 0 { now_ns } else { telling.time_ns },
        upcall: about.upcall,
        thread: teller.thread,
        cpu: sys::thread::cpu(),
        batch: telling.batch,
        port: about.port,
        packet_bytes: about.bytes,
        error: telling.error,
        packet: telling.packet[..telling.packet.len().min(teller.wanted.packet_bytes)].to_vec(),
        key: telling.key.map_or_else(Vec::new, |key| first_bytes(key, teller.wanted.key_bytes)),
    };
    let told = teller.push(event);
    if told % SAMPLED == 0 {
        let ns = sys::clock::machine_ns().saturating_sub(now_ns);
        let times = if ns < INTERRUPTED_NS { SAMPLED } else { 1 };
        teller.spent_ns.fetch_add(ns * times, Ordering::Relaxed);
    }
}

/// First bytes of a key's attributes.
fn first_bytes(key: &FlowKey, bytes: usize) -> Vec<u8> {
    if bytes == 0 {
        return Vec::new();
    }
    let mut attributes = key_attributes(key);
    attributes.truncate(bytes);
    attributes
}

/// The calling thread's place in the present session.
fn mine() -> Option<Arc<Teller>> {
    MINE.with_borrow_mut(|(session, teller)| {
        let on = ON.load(Ordering::Acquire);
        if *session != on || on == 0 {
            *teller = join(on)?;
            *session = on;
        }
        teller.upgrade()
    })
}

/// Makes the calling thread one that tells in a session.
fn join(number: u64) -> Option<Weak<Teller>> {
    let session = &mut *lock(&SESSION);
    let wanted = session.wanted.filter(|_| session.number == number)?;
    let name = std::thread::current().name().unwrap_or("sluiced").to_string();
    let teller = Arc::new(Teller::new(sys::thread::id(), name, wanted));
    let weak = Arc::downgrade(&teller);
    session.tellers.push(teller);
    Some(weak)
}

impl Teller {
    fn new(thread: u32, name: String, wanted: Wanted) -> Teller {
        Teller {
            thread,
            name,
            wanted,
            queue: BoundedQueue::new(EVENTS_PER_THREAD),
            queued_bytes: AtomicUsize::new(0),
            lost: Default::default(),
            told: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
        }
    }

    /// Queues an event, or counts it as lost. How many came before.
    fn push(&self, event: Event) -> u64 {
        let (stage, bytes) = (event.stage, event.packet.len() + event.key.len());
        let before = self.told.fetch_add(1, Ordering::Relaxed);
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > BYTES_PER_THREAD || self.queue.push(event).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.lost[stage as usize - 1].fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// The oldest event that waits.
    pub(super) fn pop(&self) -> Option<Event> {
        let event = self.queue.pop()?;
        self.queued_bytes.fetch_sub(event.packet.len() + event.key.len(), Ordering::Relaxed);
        Some(event)
    }

    /// Whether none waits, at some moment.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Events lost since the last call.
    pub(super) fn take_lost(&self, stage: Stage) -> u64 {
        self.lost[stage as usize - 1].swap(0, Ordering::Relaxed)
    }

    /// Events that it told, lost ones too, and how long that took, since the last call.
    pub(super) fn take_spent(&self) -> (u64, u64) {
        (self.told.swap(0, Ordering::Relaxed), self.spent_ns.swap(0, Ordering::Relaxed))
    }
}

/// Begins to gather events. There is one session at a time.
pub(super) fn begin(wanted: Wanted) {
    let session = &mut *lock(&SESSION);
    session.number += 1;
    session.wanted = Some(wanted);
    session.tellers.clear();
    ON.store(session.number, Ordering::Release);
}

/// Gathers no more; queues that were not emptied go with what is in them.
pub(super) fn end() {
    ON.store(0, Ordering::Release);
    let session = &mut *lock(&SESSION);
    session.wanted = None;
    session.tellers.clear();
}

/// Gathers no more, but keeps what has been told.
pub(super) fn pause() {
    ON.store(0, Ordering::Release);
}

/// The threads that tell. Those that ended and whose events were taken are named once more, and then forgotten.
pub(super) fn tellers() -> Vec<Arc<Teller>> {
    let session = &mut *lock(&SESSION);
    let all = session.tellers.clone();
    session.tellers.retain(|t| Arc::weak_count(t) > 0 || !t.queue.is_empty());
    all
}

/// A port that came, with its name, or went.
pub(super) fn port(number: u32, name: Option<&str>) {
    let mut ports = lock(&PORTS);
    match name {
        Some(name) => ports.insert(number, name.to_string()),
        None => ports.remove(&number),
    };
    PORTS_VERSION.fetch_add(1, Ordering::Release);
}

/// The ports that there are, when they are not those of `version` any more, and their version.
pub(super) fn ports_after(version: u64) -> Option<(u64, BTreeMap<u32, String>)> {
    if PORTS_VERSION.load(Ordering::Acquire) == version {
        return None;
    }
    let ports = lock(&PORTS);
    Some((PORTS_VERSION.load(Ordering::Acquire), ports.clone()))
}
