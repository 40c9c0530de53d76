//! The event ring: bounded queues, one for each reporting thread, filled without blocking, and emptied by the
//! thread of the event socket ([`super::server`]). Without a connection there are no queues.

use super::About;
use dpif::DropSampling;
use flow::{FlowKey, key_attributes};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use sync::{AtomicU64, AtomicUsize, BoundedQueue, Mutex, Ordering, lock};
use upcall_events::{Dropped, Event, Sampled, Stage};

/// Events of a thread that may wait.
const EVENTS_PER_THREAD: usize = 16_384;
/// Dropped packets of a thread that may wait.
const DROPS_PER_THREAD: usize = 2048;
/// Packets sampled by `psample` of a thread that may wait.
const SAMPLES_PER_THREAD: usize = 16_384;
/// Bytes of packets and keys of a thread that may wait.
const BYTES_PER_THREAD: usize = 8 << 20;
/// One in this many events is timed, to measure the cost of reporting.
const SAMPLED: u64 = 64;
/// A longer time means that the thread was interrupted: not representative.
const INTERRUPTED_NS: u64 = 5_000;

/// Settings of the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Bytes of each packet.
    pub(super) packet_bytes: usize,
    /// Bytes of each flow key.
    pub(super) key_bytes: usize,
    /// Bit `1 << stage`.
    pub(super) stages: u16,
    /// Dropped packets of each cause, second and thread.
    pub(super) drops: u32,
    /// Whether it wants packets sampled by `psample`.
    pub(super) samples: bool,
}

/// Fields of an event beyond [`About`].
#[derive(Clone, Copy, Default)]
pub(super) struct Details<'a> {
    /// When; 0 for now.
    pub(super) time_ns: u64,
    pub(super) batch: u16,
    pub(super) error: u32,
    pub(super) packet: &'a [u8],
    pub(super) key: Option<&'a FlowKey>,
}

/// A reporting thread.
pub(super) struct Reporter {
    pub(super) thread: u32,
    pub(super) name: String,
    wanted: Wanted,
    queue: BoundedQueue<Event>,
    drops: BoundedQueue<Dropped>,
    samples: BoundedQueue<Sampled>,
    samples_lost: AtomicU64,
    unsampled: AtomicU64,
    queued_bytes: AtomicUsize,
    lost: [AtomicU64; Stage::ALL.len()],
    pushed: AtomicU64,
    spent_ns: AtomicU64,
}

/// One connection of a listener.
#[derive(Default)]
struct Session {
    number: u64,
    wanted: Option<Wanted>,
    reporters: Vec<Arc<Reporter>>,
}

/// Number of the session; 0 without a listener.
static ON: AtomicU64 = AtomicU64::new(0);
/// Samples of dropped packets that the listener wants: their number in the upper half, bytes in the lower one; 0: none.
static DROPS: AtomicU64 = AtomicU64::new(0);
/// First bytes of packets sampled by `psample` that the listener wants, plus one; 0: none.
static SAMPLES: AtomicU64 = AtomicU64::new(0);
/// Locked by a thread once per session, at its first event.
static SESSION: Mutex<Session> = Mutex::new(Session { number: 0, wanted: None, reporters: Vec::new() });
/// Ports of all datapaths.
static PORTS: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
/// Grows with each change of them.
static PORTS_VERSION: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The session of this thread's last event, and its queue there.
    static MINE: RefCell<(u64, Weak<Reporter>)> = const { RefCell::new((0, Weak::new())) };
}

/// Whether there is a listener.
#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// Reports an event, if there is a listener. A full queue drops and counts it.
#[inline]
pub(super) fn report(stage: Stage, about: About, details: Details<'_>) {
    if is_on() {
        record_event(stage, about, &details);
    }
}

/// The dropped packets that the listener wants; `None`: none.
#[inline(always)]
pub(super) fn drops_wanted() -> Option<DropSampling> {
    let wanted = DROPS.load(Ordering::Relaxed);
    let (packet_bytes, per_second) = ((wanted & 0xffff_ffff) as usize, (wanted >> 32) as u32);
    (wanted != 0).then_some(DropSampling { packet_bytes, per_second })
}

/// First bytes of packets sampled by `psample` that the listener wants; `None`: no packets.
#[inline(always)]
pub(super) fn samples_wanted() -> Option<usize> {
    (SAMPLES.load(Ordering::Relaxed) as usize).checked_sub(1)
}

/// Queues packets sampled by `psample`, and counts lost ones.
#[cold]
pub(super) fn sampled(packets: impl Iterator<Item = Sampled>, already_lost: u64) {
    let Some(writer) = mine() else { return };
    let mut lost = already_lost;
    for packet in packets {
        let bytes = packet.packet.len();
        let queued = writer.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > BYTES_PER_THREAD || writer.samples.push(packet).is_err() {
            writer.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            lost += 1;
        }
    }
    writer.samples_lost.fetch_add(lost, Ordering::Relaxed);
}

/// Queues dropped packets, and counts those without a sample.
#[cold]
pub(super) fn dropped(packets: impl Iterator<Item = Dropped>, unsampled: u64) {
    let Some(writer) = mine() else { return };
    let mut lost = unsampled;
    for packet in packets {
        let bytes = packet.packet.len() + packet.key.len();
        let queued = writer.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > BYTES_PER_THREAD || writer.drops.push(packet).is_err() {
            writer.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            lost += 1;
        }
    }
    writer.unsampled.fetch_add(lost, Ordering::Relaxed);
}

/// The first bytes of a key that the listener wants.
pub(super) fn key_bytes(key: &FlowKey) -> Vec<u8> {
    mine().map(|writer| first_bytes(key, writer.wanted.key_bytes)).unwrap_or_default()
}

#[cold]
fn record_event(stage: Stage, about: About, details: &Details<'_>) {
    let now_ns = sys::clock::machine_ns();
    let Some(writer) = mine() else { return };
    if writer.wanted.stages & 1 << stage as u16 == 0 {
        return;
    }
    let event = Event {
        stage,
        why: about.why,
        time_ns: if details.time_ns == 0 { now_ns } else { details.time_ns },
        upcall: about.upcall,
        thread: writer.thread,
        cpu: sys::thread::cpu(),
        batch: details.batch,
        port: about.port,
        packet_bytes: about.bytes,
        error: details.error,
        packet: details.packet[..details.packet.len().min(writer.wanted.packet_bytes)].to_vec(),
        key: details.key.map_or_else(Vec::new, |key| first_bytes(key, writer.wanted.key_bytes)),
    };
    let pushed = writer.push(event);
    if pushed % SAMPLED == 0 {
        let ns = sys::clock::machine_ns().saturating_sub(now_ns);
        let times = if ns < INTERRUPTED_NS { SAMPLED } else { 1 };
        writer.spent_ns.fetch_add(ns * times, Ordering::Relaxed);
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
fn mine() -> Option<Arc<Reporter>> {
    MINE.with_borrow_mut(|(session, writer)| {
        let on = ON.load(Ordering::Acquire);
        if *session != on || on == 0 {
            *writer = join(on)?;
            *session = on;
        }
        writer.upgrade()
    })
}

/// Adds the calling thread to a session.
fn join(number: u64) -> Option<Weak<Reporter>> {
    let session = &mut *lock(&SESSION);
    let wanted = session.wanted.filter(|_| session.number == number)?;
    let name = std::thread::current().name().unwrap_or("sluiced").to_string();
    let writer = Arc::new(Reporter::new(sys::thread::id(), name, wanted));
    let weak = Arc::downgrade(&writer);
    session.reporters.push(writer);
    Some(weak)
}

impl Reporter {
    fn new(thread: u32, name: String, wanted: Wanted) -> Reporter {
        Reporter {
            thread,
            name,
            wanted,
            queue: BoundedQueue::new(EVENTS_PER_THREAD),
            drops: BoundedQueue::new(DROPS_PER_THREAD),
            samples: BoundedQueue::new(if wanted.samples { SAMPLES_PER_THREAD } else { 1 }),
            samples_lost: AtomicU64::new(0),
            unsampled: AtomicU64::new(0),
            queued_bytes: AtomicUsize::new(0),
            lost: Default::default(),
            pushed: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
        }
    }

    /// Queues an event, or counts it as lost. Returns the number of earlier events.
    fn push(&self, event: Event) -> u64 {
        let (stage, bytes) = (event.stage, event.packet.len() + event.key.len());
        let before = self.pushed.fetch_add(1, Ordering::Relaxed);
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

    /// The oldest dropped packet that waits.
    pub(super) fn pop_dropped(&self) -> Option<Dropped> {
        let packet = self.drops.pop()?;
        self.queued_bytes.fetch_sub(packet.packet.len() + packet.key.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// The oldest packet sampled by `psample` that waits.
    pub(super) fn pop_sampled(&self) -> Option<Sampled> {
        let packet = self.samples.pop()?;
        self.queued_bytes.fetch_sub(packet.packet.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// Packets sampled by `psample` that were lost since the last call.
    pub(super) fn take_samples_lost(&self) -> u64 {
        self.samples_lost.swap(0, Ordering::Relaxed)
    }

    /// Dropped packets without a sample since the last call.
    pub(super) fn take_unsampled(&self) -> u64 {
        self.unsampled.swap(0, Ordering::Relaxed)
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

    /// Its events, lost ones too, and the time spent on them, since the last call.
    pub(super) fn take_spent(&self) -> (u64, u64) {
        (self.pushed.swap(0, Ordering::Relaxed), self.spent_ns.swap(0, Ordering::Relaxed))
    }
}

/// Starts collecting events. There is one session at a time.
pub(super) fn begin(wanted: Wanted) {
    let session = &mut *lock(&SESSION);
    session.number += 1;
    session.wanted = Some(wanted);
    session.reporters.clear();
    let wants_drops = wanted.drops != 0;
    let drops = u64::from(wanted.drops) << 32 | wanted.packet_bytes as u64;
    DROPS.store(if wants_drops { drops } else { 0 }, Ordering::Release);
    SAMPLES.store(if wanted.samples { wanted.packet_bytes as u64 + 1 } else { 0 }, Ordering::Release);
    ON.store(session.number, Ordering::Release);
}

/// Stops collecting, and drops all queues with their contents.
pub(super) fn end() {
    pause();
    let session = &mut *lock(&SESSION);
    session.wanted = None;
    session.reporters.clear();
}

/// Stops collecting, but keeps queued events.
pub(super) fn pause() {
    ON.store(0, Ordering::Release);
    DROPS.store(0, Ordering::Release);
    SAMPLES.store(0, Ordering::Release);
}

/// The reporting threads. An ended thread without queued events is returned once more, and then removed.
pub(super) fn reporters() -> Vec<Arc<Reporter>> {
    let session = &mut *lock(&SESSION);
    let all = session.reporters.clone();
    session.reporters.retain(|t| {
        let waits = !t.queue.is_empty() || !t.drops.is_empty() || !t.samples.is_empty();
        Arc::weak_count(t) > 0 || waits
    });
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

/// The present ports and their version, if that is no longer `version`.
pub(super) fn ports_after(version: u64) -> Option<(u64, BTreeMap<u32, String>)> {
    if PORTS_VERSION.load(Ordering::Acquire) == version {
        return None;
    }
    let ports = lock(&PORTS);
    Some((PORTS_VERSION.load(Ordering::Acquire), ports.clone()))
}
