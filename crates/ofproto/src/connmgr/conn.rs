//! One connection: its session, what it asked for, and the requests that wait.

use super::bundle::Bundle;
use super::stats::Dump;
use super::{BridgeCtx, ConnId, Shared};
use crate::flow_mod::{ModContext, ModQueue};
use crate::ports::Port;
use openflow::budget::{Budgets, Share};
use openflow::msg::control::{AsyncConfig, BundleControlType, ControllerRole};
use openflow::session::{CloseReason, Config, Event, SendError, Session};
use openflow::{ErrorKind, Format, Message, Version, VersionSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requests are worked on while less output than this waits.
const BUSY_OUTPUT_BYTES: usize = 1 << 20;
/// The same, when the connections of all bridges use half of the memory that they may use.
const BUSY_OUTPUT_OF_MANY_BYTES: usize = 16 << 10;
/// Packets for the controller are dropped when so much output waits.
const PACKET_IN_OUTPUT_BYTES: usize = 256 << 10;
/// Other events are dropped when so much output waits.
const EVENT_OUTPUT_BYTES: usize = 2 << 20;
/// More input than this is not wanted while it waits.
const PENDING_BYTES: usize = 128 << 10;
/// Output at which the session refuses more.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// So many flow-mods are carried out together.
const GATHER_MAX: usize = 1024;
/// One that is to be told of ended rules and takes nothing for so long is not waited for.
const PATIENCE_MS: u64 = 5_000;
/// Less than this in that time is nothing.
const PATIENCE_BYTES: u64 = 64 << 10;
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

impl ConnCounters {
    /// Adds those of another connection.
    pub fn add(&mut self, other: &ConnCounters) {
        self.packet_ins += other.packet_ins;
        self.packet_ins_dropped += other.packet_ins_dropped;
        self.events_dropped += other.events_dropped;
    }
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
    pub(super) id: ConnId,
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
    pub(super) mods: ModQueue,
    /// What came behind flow-mods and waits for them.
    held: Option<Event>,
    /// What the gathered flow-mods and the bundles hold.
    kept: Share,
    /// Bytes of the gathered flow-mods.
    pub(super) mods_bytes: usize,
    /// Input came that was not looked at.
    fresh: bool,
    /// It changes rules, and cannot go on until others that ended have been told, or until the change of another connection is done.
    pub(super) blocked: bool,
    /// A request of its own goes on beside it.
    pub(super) waits: bool,
    /// Bytes of output taken so far.
    taken_bytes: u64,
    /// Since when there is no room to tell it of ended rules, and how much it had taken then.
    full: Option<(u64, u64)>,
}

impl Conn {
    pub(super) fn new(
        id: ConnId,
        kind: ConnKind,
        versions: VersionSet,
        now_ms: u64,
        budgets: &Budgets,
    ) -> Conn {
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
            id,
            kind,
            session: Session::sharing(config, now_ms, budgets),
            over: None,
            role: ControllerRole::Equal,
            asyncs: default_asyncs(),
            miss_send_len_bytes,
            controller_id: 0,
            packet_in_format: Format::Standard,
            bundles: BTreeMap::new(),
            dump: None,
            counters: ConnCounters::default(),
            mods: ModQueue::default(),
            held: None,
            kept: Share::new(&budgets.input),
            mods_bytes: 0,
            fresh: false,
            blocked: false,
            waits: false,
            taken_bytes: 0,
            full: None,
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
        let is_short = self.session.input_share().budget().is_short();
        !is_short && !self.is_over() && self.session.pending().len() < PENDING_BYTES && !self.is_behind()
    }

    fn is_behind(&self) -> bool {
        let limit = match self.session.output_share().budget().is_half_used() {
            true => BUSY_OUTPUT_OF_MANY_BYTES,
            false => BUSY_OUTPUT_BYTES,
        };
        self.session.output().len() >= limit
    }

    /// Whether there is no memory for answers, whoever reads: the owner frees some before the next turn.
    fn waits_for_memory(&self) -> bool {
        self.session.output_share().budget().is_short()
    }

    /// Whether requests can be worked on as far as the peer is concerned.
    pub(super) fn has_requests(&self) -> bool {
        let has = self.dump.is_some() || self.fresh || self.held.is_some() || !self.mods.is_empty();
        has && !self.is_over() && !self.is_behind() && !self.blocked && !self.waits
    }

    /// Whether it has something to do and nothing to wait for.
    pub(super) fn has_work(&self) -> bool {
        self.has_requests() && !self.waits_for_memory()
    }

    /// Bytes that came and are not carried out.
    pub(super) fn input_bytes(&self) -> usize {
        self.session.input_share().bytes() + self.kept.bytes()
    }

    /// Takes note of what is kept of its requests.
    pub(super) fn count_kept(&mut self) {
        if self.mods.is_empty() {
            self.mods_bytes = 0;
        }
        self.kept.set(self.mods_bytes + self.bundle_bytes());
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now_ms: u64) {
        if self.is_over() || bytes.is_empty() {
            return;
        }
        if self.session.pending().len() > 8 * PENDING_BYTES {
            // The owner hands in more than is wanted: the peer floods, and the connection ends rather than grow.
            self.over = Some(CloseReason::OutputOverflow);
            return;
        }
        let budget = self.session.input_share().budget();
        if budget.used_bytes().saturating_add(bytes.len()) > budget.limit_bytes() {
            self.over = Some(CloseReason::MemoryShort);
            return;
        }
        self.session.push_input(bytes, now_ms);
        self.fresh = true;
    }

    pub(super) fn consume_output(&mut self, n: usize) {
        let n = n.min(self.session.output().len());
        self.session.consume_output(n);
        self.taken_bytes += n as u64;
    }

    fn may_go_on(&self) -> bool {
        !self.is_over() && !self.is_behind() && !self.blocked && !self.waits
    }

    /// Works on what waits until the reader is behind, `work` is used up, or rules that ended must be told first.
    pub(super) fn serve(
        &mut self,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
        work: &mut usize,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.blocked = false;
        while *work > 0 && self.may_go_on() && !self.waits_for_memory() {
            if self.dump.is_some() {
                *work = work.saturating_sub(self.continue_dump(now_ms));
                continue;
            }
            let event = self.held.take().or_else(|| self.session.next_event());
            let gathers = event.as_ref().is_some_and(is_flow_mod) && self.mods.len() < GATHER_MAX;
            self.fresh = event.is_some();
            // What is behind flow-mods sees them done.
            if !gathers && !self.mods.is_empty() {
                self.held = event;
                self.change_rules(shared, ctx, now_ms, work);
                continue;
            }
            let Some(event) = event else { break };
            if is_exclusive(&event) && shared.is_busy(ctx) {
                (self.held, self.blocked) = (Some(event), true);
                break;
            }
            *work -= usize::from(!gathers);
            self.take_event(event, shared, ctx, now_ms, &mut outcome);
        }
        self.count_kept();
        outcome
    }

    /// Goes on with the flow-mods that were gathered.
    fn change_rules(&mut self, shared: &Shared, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let has_meter = |id| shared.meters.has(id);
        let cx = ModContext {
            version: self.version(),
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter: &has_meter,
        };
        let step = self.mods.step(ctx.backer, ctx.bridge, &cx, work);
        for (kind, frame) in step.failed {
            self.refuse(kind, &frame);
        }
        self.blocked = step.paused;
    }

    fn take_event(
        &mut self,
        event: Event,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
        outcome: &mut Outcome,
    ) {
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
        if let Err(why) = self.session.send_error(kind, frame) {
            self.over.get_or_insert(no_room(why));
        }
    }

    /// Sends an answer.
    pub(super) fn reply(&mut self, message: &Message, xid: u32) -> Result<(), ErrorKind> {
        match self.session.send_with_xid(message, xid) {
            Ok(_) => Ok(()),
            Err(SendError::Unencodable(kind)) => Err(kind),
            Err(why) => {
                self.over.get_or_insert(no_room(why));
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
            ConnKind::Service | ConnKind::Controller { .. } => {}
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

    /// Whether it can be told of an ended rule now: there is room, or there has been none for so long that it is not waited for
    /// any longer. Otherwise, when to try again at the latest.
    pub(super) fn may_be_told(&mut self, now_ms: u64) -> Result<(), u64> {
        if self.waits_for_memory() {
            return Err(now_ms);
        }
        if self.session.output().len() < EVENT_OUTPUT_BYTES {
            self.full = None;
            return Ok(());
        }
        let (since_ms, taken_bytes) = *self.full.get_or_insert((now_ms, self.taken_bytes));
        let until_ms = since_ms + PATIENCE_MS;
        if now_ms < until_ms {
            return Err(until_ms);
        }
        if self.taken_bytes - taken_bytes >= PATIENCE_BYTES {
            self.full = Some((now_ms, self.taken_bytes));
            return Err(now_ms + PATIENCE_MS);
        }
        Ok(())
    }

    /// Tells an event; dropped and counted when the reader is behind.
    pub(super) fn tell(&mut self, kind: AsyncKind, message: &Message) {
        let limit = if kind == AsyncKind::PacketIn { PACKET_IN_OUTPUT_BYTES } else { EVENT_OUTPUT_BYTES };
        let full = self.session.output().len() >= limit || self.waits_for_memory();
        let sent = !full && self.session.send_with_xid(message, 0).is_ok();
        match (kind, sent) {
            (AsyncKind::PacketIn, true) => self.counters.packet_ins += 1,
            (AsyncKind::PacketIn, false) => self.counters.packet_ins_dropped += 1,
            (_, true) => {}
            (_, false) => self.counters.events_dropped += 1,
        }
    }
}

/// Why a connection is over whose answer was not taken.
fn no_room(why: SendError) -> CloseReason {
    match why {
        SendError::Short => CloseReason::MemoryShort,
        SendError::NotConnected | SendError::Full { .. } | SendError::Unencodable(_) => {
            CloseReason::OutputOverflow
        }
    }
}

fn is_flow_mod(event: &Event) -> bool {
    matches!(event, Event::Message { message, .. } if matches!(**message, Message::FlowMod(_)))
}

/// Whether it waits until no other such request of the bridge is under way: it commits a bundle or changes meters.
fn is_exclusive(event: &Event) -> bool {
    let Event::Message { message, .. } = event else { return false };
    let commits = matches!(&**message, Message::BundleControl(m) if m.ty == BundleControlType::CommitRequest);
    commits || matches!(**message, Message::MeterMod(_))
}

/// What a connection is told until it asks for something else.
fn default_asyncs() -> AsyncConfig {
    AsyncConfig { format: Format::Standard, packet_in: [3, 0], port_status: [7, 7], flow_removed: [0xf, 0] }
}
