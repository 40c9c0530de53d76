//! One connection: its session, what it asked for, and the requests that wait.

use super::bundle::Bundle;
use super::stats::Dump;
use super::{Ctx, Shared};
use crate::flow_mod::{self, ModContext};
use crate::ports::Port;
use openflow::msg::control::{AsyncConfig, ControllerRole};
use openflow::msg::flow_mod::FlowMod;
use openflow::session::{CloseReason, Config, Event, Session};
use openflow::{
    ErrorBody, ErrorCode, ErrorKind, Format, HEADER_BYTES, MAX_MESSAGE_BYTES, Message, Version, VersionSet,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requests are worked on while less output than this waits.
const BUSY_OUTPUT_BYTES: usize = 1 << 20;
/// Packets for the controller are dropped when so much output waits.
const PACKET_IN_OUTPUT_BYTES: usize = 256 << 10;
/// Other events are dropped when so much output waits.
const EVENT_OUTPUT_BYTES: usize = 2 << 20;
/// More input than this is not wanted while it waits.
const PENDING_BYTES: usize = 128 << 10;
/// Output at which the session refuses more.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// So many flow-mods are carried out together.
const GATHER_MAX: usize = 4096;
/// Bytes of an error message before its data, at most.
const ERROR_HEADERS_BYTES: usize = HEADER_BYTES + 12;
/// `miss_send_len` of a controller that has not said another (OpenFlow 1.3 §7.3.2).
const DEFAULT_MISS_SEND_LEN_BYTES: u16 = 128;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnKind {
    /// Somebody who connected to ask or to watch, as `ovs-ofctl`: is not told events unless it sets `miss_send_len`.
    Service,
    /// A controller of the bridge.
    Controller {
        /// After so long without a sign of life, ask for one; 0 never.
        probe_interval_ms: u64,
    },
    /// Somebody who watches: gets a copy of every message to and from the bridge's controllers, and nothing else. One that
    /// does not read is left.
    Snoop,
}

/// What was dropped because a connection's output was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnCounters {
    /// Packets sent to it.
    pub packet_ins: u64,
    /// Packets for it dropped.
    pub packet_ins_dropped: u64,
    /// Other events for it dropped.
    pub events_dropped: u64,
}

/// Kinds of events; the bits of each are reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AsyncKind {
    PacketIn,
    PortStatus,
    FlowRemoved,
}

/// What serving a connection changed beyond itself.
#[derive(Default)]
pub(super) struct Outcome {
    /// It is master now: others are not.
    pub(super) became_master: bool,
    /// Whether it wants packets has changed.
    pub(super) interest_changed: bool,
    /// Ports that it configured, before and after.
    pub(super) ports: Vec<(Arc<Port>, Arc<Port>)>,
}

pub(super) struct Conn {
    pub(super) kind: ConnKind,
    pub(super) session: Session,
    pub(super) over: Option<CloseReason>,
    pub(super) role: ControllerRole,
    pub(super) asyncs: AsyncConfig,
    pub(super) miss_send_len_bytes: u16,
    pub(super) controller_id: u16,
    pub(super) packet_in_format: Format,
    pub(super) bundles: BTreeMap<u32, Bundle>,
    pub(super) dump: Option<Dump>,
    pub(super) counters: ConnCounters,
    /// Flow-mods that came together and are carried out together.
    pub(super) gathered: Gathered,
}

/// Flow-mods, and the messages they came in, which an error tells.
#[derive(Default)]
pub(super) struct Gathered {
    mods: Vec<FlowMod>,
    frames: Vec<Box<[u8]>>,
}

impl Gathered {
    pub(super) fn push(&mut self, fm: FlowMod, frame: &[u8]) {
        self.mods.push(fm);
        self.frames.push(frame.into());
    }
}

impl Conn {
    pub(super) fn new(kind: ConnKind, versions: VersionSet, now_ms: u64) -> Conn {
        let (probe_interval_ms, miss_send_len_bytes) = match kind {
            ConnKind::Service | ConnKind::Snoop => (0, 0),
            ConnKind::Controller { probe_interval_ms } => (probe_interval_ms, DEFAULT_MISS_SEND_LEN_BYTES),
        };
        let config = Config {
            versions: versions.and(VersionSet::IMPLEMENTED),
            probe_interval_ms,
            max_output_bytes: MAX_OUTPUT_BYTES,
            ..Config::default()
        };
        Conn {
            kind,
            session: Session::new(config, now_ms),
            over: None,
            role: ControllerRole::Equal,
            asyncs: default_asyncs(),
            miss_send_len_bytes,
            controller_id: 0,
            packet_in_format: Format::Standard,
            bundles: BTreeMap::new(),
            dump: None,
            counters: ConnCounters::default(),
            gathered: Gathered::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn is_up(&self) -> bool {
        self.session.version().is_some()
    }

    pub(super) fn version(&self) -> Version {
        self.session.version().unwrap_or(Version::V10)
    }

    pub(super) fn wants_input(&self) -> bool {
        !self.is_over() && self.session.pending().len() < PENDING_BYTES && !self.is_behind()
    }

    fn is_behind(&self) -> bool {
        self.session.output().len() >= BUSY_OUTPUT_BYTES
    }

    pub(super) fn has_work(&self) -> bool {
        self.dump.is_some() || self.session.has_frame()
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now_ms: u64) {
        if self.is_over() {
            return;
        }
        if self.session.pending().len() > 8 * PENDING_BYTES {
            // The owner hands in more than is wanted: the peer floods, and the connection ends rather than grow.
            self.over = Some(CloseReason::OutputOverflow);
            return;
        }
        self.session.push_input(bytes, now_ms);
    }

    /// Works on what waits, until the reader is behind.
    pub(super) fn serve(&mut self, shared: &mut Shared, ctx: &Ctx<'_>, now_ms: u64) -> Outcome {
        let mut outcome = Outcome::default();
        while !self.is_over() && !self.is_behind() {
            if self.dump.is_some() {
                self.continue_dump(now_ms);
                continue;
            }
            let Some(event) = self.session.next_event() else { break };
            self.take_event(event, shared, ctx, now_ms, &mut outcome);
        }
        self.apply_gathered(shared, ctx, now_ms);
        outcome
    }

    /// Carries out the flow-mods that were gathered.
    fn apply_gathered(&mut self, shared: &Shared, ctx: &Ctx<'_>, now_ms: u64) {
        if self.gathered.mods.is_empty() {
            return;
        }
        let Gathered { mods, frames } = std::mem::take(&mut self.gathered);
        let has_meter = |id| shared.meters.has(id);
        let cx = ModContext {
            version: self.version(),
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter: &has_meter,
        };
        for (i, kind) in flow_mod::apply_each(ctx.backer, ctx.bridge, &mods, &cx) {
            self.refuse(kind, &frames[i]);
        }
    }

    fn take_event(
        &mut self,
        event: Event,
        shared: &mut Shared,
        ctx: &Ctx<'_>,
        now_ms: u64,
        outcome: &mut Outcome,
    ) {
        // What is behind flow-mods sees them done.
        let more =
            matches!(&event, Event::Message { message, .. } if matches!(**message, Message::FlowMod(_)));
        if !more || self.gathered.mods.len() >= GATHER_MAX {
            self.apply_gathered(shared, ctx, now_ms);
        }
        match event {
            Event::Connected(_) => outcome.interest_changed = true,
            // The session has answered.
            Event::Refused(_) => {}
            Event::Message { .. } if self.kind == ConnKind::Snoop => {}
            Event::Closed(reason) => self.over = Some(reason),
            Event::Message { xid, message, frame } => {
                let request = super::requests::Request { xid, frame: &frame, now_ms };
                if let Err(kind) = self.handle(*message, &request, shared, ctx, outcome) {
                    self.refuse(kind, &frame);
                }
            }
        }
    }

    /// Answers with an error about `frame`. Output that cannot be written ends with the session's own limit.
    pub(super) fn refuse(&mut self, kind: ErrorKind, frame: &[u8]) {
        // The whole message is told, not only the 64 bytes that the standard asks for: people read these errors.
        let data = frame[..frame.len().min(MAX_MESSAGE_BYTES - ERROR_HEADERS_BYTES)].to_vec();
        let error = Message::Error(ErrorBody { error: ErrorCode::Known(kind), data });
        let xid = frame.get(4..8).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        if self.session.send_with_xid(&error, xid).is_err() {
            self.over.get_or_insert(CloseReason::OutputOverflow);
        }
    }

    /// Sends an answer.
    pub(super) fn reply(&mut self, message: &Message, xid: u32) -> Result<(), ErrorKind> {
        match self.session.send_with_xid(message, xid) {
            Ok(_) => Ok(()),
            Err(openflow::session::SendError::Unencodable(kind)) => Err(kind),
            Err(_) => {
                self.over.get_or_insert(CloseReason::OutputOverflow);
                Ok(())
            }
        }
    }

    pub(super) fn tick(&mut self, now_ms: u64) {
        for event in self.session.tick(now_ms) {
            if let Event::Closed(reason) = event {
                self.over = Some(reason);
            }
        }
    }

    pub(super) fn next_wakeup_ms(&self) -> Option<u64> {
        let bundles = self.bundles.values().map(Bundle::expires_ms).min();
        [self.session.next_wakeup_ms(), bundles].into_iter().flatten().min()
    }

    /// Whether it is told of events of this kind and reason (OpenFlow 1.3 §6.3.6).
    pub(super) fn receives(&self, kind: AsyncKind, reason: u8) -> bool {
        self.reasons(kind) >> reason & 1 != 0
    }

    /// The reasons for which it is told of events of this kind, as bits.
    pub(super) fn reasons(&self, kind: AsyncKind) -> u32 {
        if !self.is_up() || self.is_over() {
            return 0;
        }
        match self.kind {
            ConnKind::Snoop => return 0,
            ConnKind::Service if self.miss_send_len_bytes == 0 => return 0,
            _ => {}
        }
        let bits = match kind {
            AsyncKind::PacketIn => self.asyncs.packet_in,
            AsyncKind::PortStatus => self.asyncs.port_status,
            AsyncKind::FlowRemoved => self.asyncs.flow_removed,
        };
        let slave = usize::from(self.role == ControllerRole::Slave);
        bits[slave]
    }

    /// Whether packets that no rule matches go to it.
    pub(super) fn wants_misses(&self) -> bool {
        self.version() < Version::V13 && self.controller_id == 0 && self.receives(AsyncKind::PacketIn, 0)
    }

    /// Tells an event; dropped and counted when the reader is behind.
    pub(super) fn tell(&mut self, kind: AsyncKind, message: &Message) {
        let limit = if kind == AsyncKind::PacketIn { PACKET_IN_OUTPUT_BYTES } else { EVENT_OUTPUT_BYTES };
        let full = self.session.output().len() >= limit;
        let sent = !full && self.session.send_with_xid(message, 0).is_ok();
        match (kind, sent) {
            (AsyncKind::PacketIn, true) => self.counters.packet_ins += 1,
            (AsyncKind::PacketIn, false) => self.counters.packet_ins_dropped += 1,
            (_, true) => {}
            (_, false) => self.counters.events_dropped += 1,
        }
    }
}

/// What a connection is told until it asks for something else.
fn default_asyncs() -> AsyncConfig {
    AsyncConfig { format: Format::Standard, packet_in: [3, 0], port_status: [7, 7], flow_removed: [0xf, 0] }
}
