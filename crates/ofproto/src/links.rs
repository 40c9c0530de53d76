//! Links of ports as translations and handlers see them. [`link_sender`](crate::link_sender) sends their control packets.
//!
//! A port of a view holds a [`PortLink`] for each session of a link protocol ([`l2proto`]): its [`LinkClaim`], and the state
//! that it shares with the thread that runs the session. A translation ends with a claimed packet in
//! [`Translation::claimed`](crate::xlate::Translation::claimed), and handlers [`deliver`] it to the queue of that session,
//! which is bounded: a flood of one port delays no session of another.
//!
//! The [`LinkState`] of a port is read from the shared state, not from the view: the thread of the sessions changes it
//! without the writer lock. It changes the state first, then starts an epoch ([`Backer::port_toggled`](crate::backer::Backer::port_toggled)), so a translation
//! that read the former state has an older epoch and is checked.

use l2proto::protocol::{LinkState, Liveness, SessionId};
pub use l2proto::protocol::{TreePhase, TreeState};
use l2proto::{LinkClaim, Protocol};
use std::fmt;
use std::sync::Arc;
use sync::{AtomicBool, AtomicU32, AtomicU64, LimitedQueue, Ordering};

/// Control packets of a session that wait for its thread.
pub const WAITING_MAX: usize = 64;

/// A received control packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlPacket {
    /// Time to live of its IP header; 0 without one.
    pub ttl: u8,
    /// Its payload, of bounded size; `None` without one.
    pub payload: Option<Box<[u8]>>,
}

/// The thread of the sessions.
pub trait LinkInbox: Send + Sync {
    /// Packets of a session wait now; called once until [`LinkSession::take`].
    fn ready(&self, session: &Arc<LinkSession>);
}

/// Bits of a [`LinkState`].
mod bit {
    pub(super) const MAY_FORWARD: u32 = 1;
    pub(super) const MAY_LEARN: u32 = 2;
    pub(super) const IS_LIVE: u32 = 4;
    pub(super) const IS_RAPID: u32 = 8;
    /// The number of the phase in [`super::PHASES`] begins here; 0 is none.
    pub(super) const PHASE_SHIFT: u32 = 4;
    pub(super) const PHASE_MASK: u32 = 7;
    pub(super) const IS_NEGOTIATED: u32 = 0x80;
}

/// Phases in a spanning tree, by their number less 1.
const PHASES: [TreePhase; 5] = [
    TreePhase::Disabled,
    TreePhase::Blocking,
    TreePhase::Listening,
    TreePhase::Learning,
    TreePhase::Forwarding,
];

fn pack(state: LinkState) -> u32 {
    let LinkState { may_forward, may_learn, is_live, is_negotiated, tree } = state;
    let set = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    let phase =
        tree.map_or(0, |tree| PHASES.iter().position(|p| *p == tree.phase).map_or(0, |n| n as u32 + 1));
    set(may_forward, bit::MAY_FORWARD)
        | set(may_learn, bit::MAY_LEARN)
        | set(is_live, bit::IS_LIVE)
        | set(tree.is_some_and(|tree| tree.is_rapid), bit::IS_RAPID)
        | set(is_negotiated, bit::IS_NEGOTIATED)
        | phase << bit::PHASE_SHIFT
}

fn unpack(bits: u32) -> LinkState {
    let phase =
        (bits >> bit::PHASE_SHIFT & bit::PHASE_MASK).checked_sub(1).and_then(|n| PHASES.get(n as usize));
    LinkState {
        may_forward: bits & bit::MAY_FORWARD != 0,
        may_learn: bits & bit::MAY_LEARN != 0,
        is_live: bits & bit::IS_LIVE != 0,
        is_negotiated: bits & bit::IS_NEGOTIATED != 0,
        tree: phase.map(|phase| TreeState { is_rapid: bits & bit::IS_RAPID != 0, phase: *phase }),
    }
}

/// See [`LinkSession::number`].
const NO_NUMBER: u32 = u32::MAX;

/// State of a session, shared by its thread and all views.
pub struct LinkSession {
    name: Box<str>,
    protocol: Protocol,
    state: AtomicU32,
    /// Its number in its engine; [`NO_NUMBER`] without one.
    number: AtomicU32,
    received: LimitedQueue<ControlPacket>,
    /// Packets that the port received, since the last [`LinkSession::take`].
    counted: AtomicU64,
    /// Control packets lost because the queue was full.
    lost: AtomicU64,
    listed: AtomicBool,
    inbox: Arc<dyn LinkInbox>,
}

impl fmt::Debug for LinkSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSession")
            .field("name", &self.name)
            .field("protocol", &self.protocol)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl LinkSession {
    /// A new session of an interface.
    pub fn new(name: &str, protocol: Protocol, inbox: Arc<dyn LinkInbox>) -> LinkSession {
        LinkSession {
            name: name.into(),
            protocol,
            state: AtomicU32::new(pack(protocol.initial_state())),
            number: AtomicU32::new(NO_NUMBER),
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

    /// Its protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Its number in its engine, once its thread knows it.
    pub fn number(&self) -> Option<SessionId> {
        Some(SessionId(self.number.load(Ordering::Acquire))).filter(|id| id.0 != NO_NUMBER)
    }

    /// Sets that; for its thread.
    pub fn set_number(&self, number: Option<SessionId>) {
        self.number.store(number.map_or(NO_NUMBER, |id| id.0), Ordering::Release);
    }

    /// Its effect on the port.
    pub fn state(&self) -> LinkState {
        unpack(self.state.load(Ordering::Acquire))
    }

    /// Sets that; returns the former one.
    pub fn set_state(&self, state: LinkState) -> LinkState {
        unpack(self.state.swap(pack(state), Ordering::AcqRel))
    }

    /// Control packets lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Queues a control packet, or counts it as lost.
    pub fn push(self: &Arc<Self>, packet: ControlPacket) {
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
    pub fn take(&self) -> (u64, Vec<ControlPacket>) {
        // A packet from now on lists it again.
        self.listed.store(false, Ordering::Release);
        let waiting = std::iter::from_fn(|| self.received.pop()).take(2 * WAITING_MAX).collect();
        (self.counted.swap(0, Ordering::AcqRel), waiting)
    }
}

/// A session of a port.
#[derive(Clone, Debug)]
pub struct PortLink {
    /// Which packets belong to the session.
    pub claim: LinkClaim,
    /// Received packets are signs of life: translations count them.
    pub counts_rx: bool,
    /// The session may stop forwarding or learning: translations depend on its state.
    pub gates_traffic: bool,
    /// The session.
    pub session: Arc<LinkSession>,
}

/// The restrictions of all sessions of a port. As in OVS, a port with several monitors is live if one of them is.
pub fn state(links: &[PortLink]) -> LinkState {
    let (mut all, mut monitors) = (LinkState::UP, None);
    for link in links {
        let mut state = link.session.state();
        if link.session.protocol().liveness() == Liveness::Monitor {
            monitors = Some(monitors.unwrap_or(false) || state.is_live);
            state.is_live = true;
        }
        all = all.and(state);
    }
    LinkState { is_live: all.is_live && monitors.unwrap_or(true), ..all }
}

/// A packet that belongs to a session.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The session.
    pub session: Arc<LinkSession>,
    /// Time to live at that point of the translation.
    pub ttl: u8,
}

/// Passes a packet on to the sessions that claimed it; returns whether there are any.
pub fn deliver(claimed: &[Claimed], frame: &[u8]) -> bool {
    for Claimed { session, ttl } in claimed {
        let payload = session.protocol().payload(frame).map(Box::from);
        session.push(ControlPacket { ttl: *ttl, payload });
    }
    !claimed.is_empty()
}

#[cfg(test)]
mod tests;
