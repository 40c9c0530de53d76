//! Sessions of BFD as translations and handlers see them. `bfd_sender` sends their control packets.
//!
//! A port of a view holds a [`BfdPort`]: its [`Claim`], and the state that it shares with the thread that runs the session.
//! A translation ends with a claimed packet in [`Translation::claimed`](crate::xlate::Translation::claimed), and handlers
//! [`deliver`] it to the queue of that session, which is bounded: a flood of one port delays no session of another.
//!
//! Whether a port forwards is read from the shared state, not from the view: the thread of the sessions changes it without
//! the writer lock. It changes the state first, then starts an epoch ([`Backer::port_toggled`](crate::backer::Backer::port_toggled)), so a translation that
//! read the former state has an older epoch and is checked.

use l2proto::bfd::{Claim, udp_payload};
use std::fmt;
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, LimitedQueue, Ordering};

/// Control packets of a session that wait for its thread.
pub const WAITING_MAX: usize = 64;
/// Bytes of a payload that are kept: those that its length field can count.
const PAYLOAD_MAX_BYTES: usize = u8::MAX as usize;

/// A received control packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BfdPacket {
    /// Time to live.
    pub ttl: u8,
    /// UDP payload, at most 255 bytes of it; `None` without a whole UDP header.
    pub payload: Option<Box<[u8]>>,
}

/// The thread of the sessions.
pub trait BfdInbox: Send + Sync {
    /// Packets of a session wait now; called once until [`BfdState::take`].
    fn ready(&self, session: &Arc<BfdState>);
}

/// State of a session, shared by its thread and all views.
pub struct BfdState {
    name: Box<str>,
    forwarding: AtomicBool,
    received: LimitedQueue<BfdPacket>,
    /// Packets that the port received, since the last [`BfdState::take`].
    counted: AtomicU64,
    /// Control packets lost because the queue was full.
    lost: AtomicU64,
    listed: AtomicBool,
    inbox: Arc<dyn BfdInbox>,
}

impl fmt::Debug for BfdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BfdState")
            .field("name", &self.name)
            .field("forwarding", &self.forwarding)
            .finish_non_exhaustive()
    }
}

impl BfdState {
    /// Of a new session of that interface, which is down.
    pub fn new(name: &str, inbox: Arc<dyn BfdInbox>) -> BfdState {
        BfdState {
            name: name.into(),
            forwarding: AtomicBool::new(false),
            received: LimitedQueue::new(WAITING_MAX),
            counted: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            inbox,
        }
    }

    /// Its interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the session lets its port forward.
    pub fn is_forwarding(&self) -> bool {
        self.forwarding.load(Ordering::Acquire)
    }

    /// Sets that; returns the former value.
    pub fn set_forwarding(&self, forwarding: bool) -> bool {
        self.forwarding.swap(forwarding, Ordering::AcqRel)
    }

    /// Control packets lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Queues a control packet, or counts it as lost.
    pub fn push(self: &Arc<Self>, packet: BfdPacket) {
        match self.received.push(packet) {
            Ok(()) => self.list(),
            Err(_) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Counts packets that its port received.
    pub fn count(self: &Arc<Self>, packets: u64) {
        if packets > 0 {
            self.counted.fetch_add(packets, Ordering::Relaxed);
            self.list();
        }
    }

    fn list(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.inbox.ready(self);
        }
    }

    /// The number of counted packets, and the control packets that wait, at most [`WAITING_MAX`].
    pub fn take(&self) -> (u64, Vec<BfdPacket>) {
        // A packet from now on lists it again.
        self.listed.store(false, Ordering::Release);
        let waiting = std::iter::from_fn(|| self.received.pop()).take(2 * WAITING_MAX).collect();
        (self.counted.swap(0, Ordering::AcqRel), waiting)
    }
}

/// BFD of a port.
#[derive(Clone, Debug)]
pub struct BfdPort {
    /// Which packets belong to the session.
    pub claim: Claim,
    /// Received packets are signs of life: translations count them.
    pub counts_rx: bool,
    /// The session.
    pub state: Arc<BfdState>,
}

impl BfdPort {
    /// The session, if it counts received packets.
    pub(crate) fn counting(&self) -> Option<&Arc<BfdState>> {
        Some(&self.state).filter(|_| self.counts_rx)
    }
}

/// A packet that belongs to a session.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The session.
    pub session: Arc<BfdState>,
    /// Time to live at that point of the translation.
    pub ttl: u8,
}

/// Passes a packet on to the sessions that claimed it; returns whether there are any.
pub fn deliver(claimed: &[Claimed], frame: &[u8]) -> bool {
    for Claimed { session, ttl } in claimed {
        let payload = udp_payload(frame).map(|all| all[..all.len().min(PAYLOAD_MAX_BYTES)].into());
        session.push(BfdPacket { ttl: *ttl, payload });
    }
    !claimed.is_empty()
}

#[cfg(test)]
mod tests;
