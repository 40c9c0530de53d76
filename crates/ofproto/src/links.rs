//! Links of ports as translations and handlers see them, and the sending of control packets.
//!
//! A port of a view holds a [`PortLink`] for each session of a link protocol ([`l2proto`]): its [`LinkClaim`], and the state
//! that it shares with the thread that runs the session. A translation ends with a claimed packet in
//! [`Translation::claimed`](crate::xlate::Translation::claimed), and handlers [`deliver`] it to the queue of that session,
//! which is bounded: a flood of one port delays no session of another.
//!
//! The [`LinkState`] of a port is read from the shared state, not from the view: the thread of the sessions changes it
//! without the writer lock. It changes the state first, then starts an epoch ([`Backer::port_toggled`]), so a translation
//! that read the former state has an older epoch and is checked.

use crate::backer::Backer;
use crate::changes::Lookups;
use crate::ports::BridgeId;
use crate::upcall;
use crate::xlate::{Request, Start, Translation, XlateCache, translate};
use dpif::{DpAction, DpifOp, Execute, FlowStats};
use flow::extract::{Metadata, extract};
use flow::fields::FieldId;
use flow::{FlowKey, OfPort, PackedFlow, tunnel_flags};
use l2proto::protocol::{LinkState, Transmission};
use l2proto::{LinkClaim, Protocol};
use ofp_actions::{Action, Output, SetField, SetStyle};
use packet::Packet;
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
}

fn pack(state: LinkState) -> u32 {
    let LinkState { may_forward, may_learn, is_live } = state;
    let set = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    set(may_forward, bit::MAY_FORWARD) | set(may_learn, bit::MAY_LEARN) | set(is_live, bit::IS_LIVE)
}

fn unpack(bits: u32) -> LinkState {
    LinkState {
        may_forward: bits & bit::MAY_FORWARD != 0,
        may_learn: bits & bit::MAY_LEARN != 0,
        is_live: bits & bit::IS_LIVE != 0,
    }
}

/// State of a session, shared by its thread and all views.
pub struct LinkSession {
    name: Box<str>,
    protocol: Protocol,
    state: AtomicU32,
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

/// The restrictions of all sessions of a port.
pub fn state(links: &[PortLink]) -> LinkState {
    links.iter().fold(LinkState::UP, |state, link| state.and(link.session.state()))
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

/// Sends the control packets of one session. It keeps the last translation, for packets with the same headers, until a
/// change may affect it.
#[derive(Default)]
pub struct LinkSender(Option<Box<Translated>>);

/// A translation of a control packet.
struct Translated {
    epoch: u64,
    place: (BridgeId, OfPort, bool),
    headers: Box<[u8]>,
    key: FlowKey,
    actions: Arc<[DpAction]>,
    cache: XlateCache,
    claimed: Vec<Claimed>,
    /// For the test whether a change affects it.
    lookups: Lookups,
    flow: PackedFlow,
}

impl Translated {
    /// Whether it holds for these packets; changes that do not affect it move it to their epoch.
    fn holds(&mut self, backer: &Backer, place: (BridgeId, OfPort, bool), headers: &[u8]) -> bool {
        if (self.place, &*self.headers) != (place, headers) || self.epoch == 0 {
            return false;
        }
        if self.epoch == backer.epoch() {
            return true;
        }
        let changes = backer.changes_since(self.epoch);
        if changes.affect(self.epoch, &self.lookups, &self.flow) {
            return false;
        }
        self.epoch = changes.epoch();
        true
    }
}

impl LinkSender {
    /// The operation that sends a control packet out of a port, as a packet-out without an input port; `None` if it goes
    /// nowhere, or through a patch port to its destination.
    pub fn send(
        &mut self,
        backer: &Backer,
        (bridge, port): (BridgeId, OfPort),
        sent: &Transmission,
        now_ms: u64,
    ) -> Option<DpifOp> {
        // Before the view: a translation of an older view has an older epoch.
        let (epoch, place) = (backer.epoch(), (bridge, port, sent.oam));
        let headers = sent.frame.get(..sent.header_bytes)?;
        if !self.0.as_deref_mut().is_some_and(|t| t.holds(backer, place, headers)) {
            let (key, t) = translate_sent(backer, place, &sent.frame, now_ms);
            // A frozen state lasts for one packet.
            backer.ukeys.defer_release(&t.recircs);
            let epoch = if t.recircs.is_empty() { epoch } else { 0 };
            self.0 = Some(Box::new(Translated {
                epoch,
                place,
                headers: headers.into(),
                flow: PackedFlow::new(&key, &backer.mask_of(&t, &key)),
                key,
                actions: t.actions.into(),
                cache: t.cache,
                claimed: t.claimed,
                lookups: t.lookups,
            }));
        }
        let t = self.0.as_deref()?;
        let seen = FlowStats { packets: 1, bytes: sent.frame.len() as u64, used_ms: now_ms, tcp_flags: 0 };
        t.cache.replay(&seen, &mut backer.effect_host());
        deliver(&t.claimed, &sent.frame);
        t.actions.iter().any(|action| !matches!(action, DpAction::Drop(_))).then(|| {
            let (packet, actions) = (Packet::from_slice(&sent.frame), t.actions.clone());
            let execute = Execute { upcall: 0, packet, key: t.key, actions, ticket: None, went_on: false };
            DpifOp::Execute(Box::new(execute))
        })
    }
}

/// Translates a packet-out of a control packet.
fn translate_sent(
    backer: &Backer,
    (bridge, port, oam): (BridgeId, OfPort, bool),
    frame: &[u8],
    now_ms: u64,
) -> (FlowKey, Translation) {
    let view = backer.view();
    let mut key = FlowKey::default();
    let metadata = Metadata { in_port: flow::DpPort::NONE.0, ..Metadata::default() };
    extract(frame, &metadata, view.vlan_limit, &mut key);
    let flow = key.to_flow(OfPort::NONE);
    let output = Action::Output(Output { port, max_len_bytes: 0 });
    let actions = if oam { vec![mark_oam(), output] } else { vec![output] };
    let request = Request { view: &view, bridge, flow: &flow, start: Start::Actions(&actions), trace: false };
    (key, translate(&request, &mut backer.xlate_host(true, now_ms)))
}

/// Requests of neighbours that sent packets need.
pub fn solicit(backer: &Backer, now_ms: u64) -> Vec<DpifOp> {
    upcall::solicit(backer, now_ms)
}

/// Marks the packet as one of the tunnel's management.
fn mark_oam() -> Action {
    let oam = u128::from(tunnel_flags::OAM);
    Action::SetField(SetField { field: FieldId::TunFlags, value: oam, mask: oam, style: SetStyle::SetField })
}

#[cfg(test)]
mod tests;
