//! One connection: its session, its settings, and its waiting requests.

use super::bundle::Bundle;
use super::counters::ConnCounters;
use super::flush::PendingFlush;
use super::forward::Forward;
use super::monitors::Monitors;
use super::packet_queue::{PacketQueue, RateLimit};
use super::report::ModReport;
use super::stats::Dump;
use super::table_features::PartialChange;
use super::{BridgeCtx, ConnId, Shared};
use ofproto::barrier::PATIENCE_MS as PATIENCE_MS_OF_BARRIERS;
use ofproto::flow_mod::{DoneGroupMod, ModQueue};
use ofproto::ports::Port;
use openflow::budget::{Budgets, Share};
use openflow::msg::asyncs::AsyncConfig;
use openflow::msg::bundle::BundleControlType;
use openflow::msg::control::ControllerRole;
use openflow::session::{CloseReason, Config, Event, SendError, Session};
use openflow::text::message_name;
use openflow::{ErrorKind, Format, Message, Version, VersionSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use sync::Ordering;

/// Pending output below which requests are processed.
const BUSY_OUTPUT_BYTES: usize = 1 << 20;
/// Limit of unsent output if the connections of all bridges use half of their memory limit.
const BUSY_OUTPUT_OF_MANY_BYTES: usize = 16 << 10;
/// Default of `Controller.controller_queue_size`.
const DEFAULT_QUEUE_PACKETS: usize = 100;
/// Pending output beyond which other events are dropped.
const EVENT_OUTPUT_BYTES: usize = 2 << 20;
/// Pending input beyond which no more is read.
const PENDING_BYTES: usize = 128 << 10;
/// Pending output beyond which the session refuses messages.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// Number of flow-mods executed together.
const GATHER_MAX: usize = 1024;
/// Time without progress after which removed rules no longer wait for a reader.
const PATIENCE_MS: u64 = 5_000;
/// Minimum bytes read in that time that count as progress.
const PATIENCE_BYTES: u64 = 64 << 10;
/// Default `miss_send_len` of a controller (OpenFlow 1.3 §7.3.2).
pub(super) const DEFAULT_MISS_SEND_LEN_BYTES: u16 = 128;

/// Kind of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnKind {
    /// A service connection, as from `ovs-ofctl`: gets no events unless it sets `miss_send_len`.
    Service,
    /// A controller of the bridge.
    Controller,
    /// A snoop: gets a copy of every message to and from the bridge's controllers, and nothing else. Copies pause
    /// for one that does not read.
    Snoop,
}

/// Settings of a connection, from its row of `Controller`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnSettings {
    /// Inactivity probe interval; 0 disables probes.
    pub probe_interval_ms: u64,
    /// Limit of packet-ins; `None` unlimited.
    pub rate_limit: Option<RateLimit>,
    /// Maximum unsent packet-ins; more are dropped.
    pub queue_packets: usize,
    /// Whether it starts with the default asynchronous messages; otherwise with none.
    pub async_messages: bool,
}

impl Default for ConnSettings {
    /// Settings of a connection without a row: no probes, no rate limit.
    fn default() -> ConnSettings {
        ConnSettings {
            probe_interval_ms: 0,
            rate_limit: None,
            queue_packets: DEFAULT_QUEUE_PACKETS,
            async_messages: true,
        }
    }
}

/// Kinds of events; the bits of each are reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AsyncKind {
    PacketIn,
    PortStatus,
    FlowRemoved,
    RequestForward,
    TableStatus,
}

/// Effects of serving a connection beyond itself.
#[derive(Default)]
pub(super) struct Outcome {
    /// It became master: others lose the role.
    pub(super) became_master: bool,
    /// Whether it wants packets has changed.
    pub(super) interest_changed: bool,
    /// It changed the mappings of tunnel metadata.
    pub(super) tlv_changed: bool,
    /// Ports it configured, before and after.
    pub(super) ports: Vec<(Arc<Port>, Arc<Port>)>,
    /// Executed requests that others may ask for.
    pub(super) forwards: Vec<Forward>,
}

/// A barrier that waits for the datapath; later requests of its connection wait with it.
pub(super) struct PendingBarrier {
    pub(super) xid: u32,
    /// Its epoch ([`ofproto::barrier`]).
    epoch: u64,
    /// Latest time of its reply.
    until_ms: u64,
}

/// Errors of a connection that are kept for the log between two turns.
const REFUSALS_KEPT: usize = 16;

/// An error that a connection was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The error.
    pub kind: ErrorKind,
    /// Name of the rejected message.
    pub request: String,
}

pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) kind: ConnKind,
    pub(super) session: Session,
    pub(super) over: Option<CloseReason>,
    /// It has sent a message besides the hello.
    pub(super) has_asked: bool,
    pub(super) role: ControllerRole,
    pub(super) asyncs: AsyncConfig,
    pub(super) settings: ConnSettings,
    pub(super) miss_send_len_bytes: u16,
    pub(super) controller_id: u16,
    pub(super) packet_in_format: Format,
    pub(super) bundles: BTreeMap<u32, Bundle>,
    /// Errors sent since the owner last asked, up to [`REFUSALS_KEPT`].
    pub(super) refusals: Vec<Refusal>,
    /// Changes of tables by transaction, of which parts are still to come.
    pub(super) table_changes: BTreeMap<u32, PartialChange>,
    pub(super) dump: Option<Dump>,
    pub(super) monitors: Monitors,
    pub(super) counters: ConnCounters,
    /// Packet-ins of table misses, then those of actions, that wait for the rate limit; `None` without a limit.
    pub(super) packet_queues: Option<[PacketQueue; 2]>,
    /// Output positions of the ends of unsent packet-ins.
    pub(super) unsent_packet_ins: VecDeque<u64>,
    /// A packet-in was dropped since the owner last asked.
    pub(super) overflowed: bool,
    /// Consecutive flow-mods and group-mods, executed together.
    pub(super) mods: ModQueue,
    /// Executed flow-mods that the log does not have yet.
    pub(super) mod_report: ModReport,
    /// A request after them, waiting for their end.
    pub(super) held: Option<Event>,
    /// Bytes held by the collected flow-mods and the bundles.
    kept: Share,
    /// Bytes of the collected flow-mods.
    pub(super) mods_bytes: usize,
    /// Unprocessed input has arrived.
    pub(super) fresh: bool,
    /// It changes rules, and waits until removed rules have been reported, or for the change of another connection.
    pub(super) blocked: bool,
    /// A request of its own is being executed beside it.
    pub(super) waits: bool,
    /// Its deletion of tracked connections is not finished.
    pub(super) flush: Option<PendingFlush>,
    /// Time at which it agreed on a version.
    pub(super) connected_ms: u64,
    /// It sent a message that admits the bridge.
    pub(super) is_admitted: bool,
    /// Epoch of its last change, for barriers.
    pub(super) changed_epoch: u64,
    /// A barrier that waits for the datapath.
    pub(super) barrier: Option<PendingBarrier>,
    /// Bytes of its bundle that is being committed.
    pub(super) commit_bytes: usize,
    /// Bytes of output sent so far.
    taken_bytes: u64,
    /// Start of the present lack of space for removed rules, with the bytes sent by then.
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
        let miss_send_len_bytes = match kind {
            ConnKind::Service | ConnKind::Snoop => 0,
            ConnKind::Controller => DEFAULT_MISS_SEND_LEN_BYTES,
        };
        let config = Config {
            versions: versions.and(VersionSet::IMPLEMENTED),
            max_output_bytes: MAX_OUTPUT_BYTES,
            ..Config::default()
        };
        Conn {
            id,
            kind,
            session: Session::sharing(config, now_ms, budgets),
            over: None,
            has_asked: false,
            role: ControllerRole::Equal,
            asyncs: AsyncConfig::default(),
            settings: ConnSettings::default(),
            miss_send_len_bytes,
            controller_id: 0,
            packet_in_format: Format::Standard,
            bundles: BTreeMap::new(),
            refusals: Vec::new(),
            table_changes: BTreeMap::new(),
            dump: None,
            monitors: Monitors::default(),
            counters: ConnCounters::default(),
            packet_queues: None,
            unsent_packet_ins: VecDeque::new(),
            overflowed: false,
            mods: ModQueue::of(id),
            mod_report: ModReport::default(),
            held: None,
            kept: Share::new(&budgets.input),
            mods_bytes: 0,
            fresh: false,
            blocked: false,
            waits: false,
            flush: None,
            connected_ms: 0,
            is_admitted: false,
            changed_epoch: 0,
            barrier: None,
            commit_bytes: 0,
            taken_bytes: 0,
            full: None,
        }
    }

    /// Its counters.
    pub(super) fn all_counters(&self) -> ConnCounters {
        ConnCounters { messages: self.session.counts(), ..self.counters }
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

    /// Whether to read more. While a reply is unread, requests behind those already read wait in the socket.
    pub(super) fn wants_input(&self) -> bool {
        let is_short = self.session.input_share().budget().is_short();
        let lags = self.dump.is_some() || !self.session.output().is_empty();
        let has_requests = lags && self.session.has_frame();
        let has_room = self.session.pending().len() < PENDING_BYTES && !has_requests;
        !is_short && !self.is_over() && has_room && !self.is_behind()
    }

    /// Whether its requests wait for anything but its reader.
    pub(super) fn is_busy(&self) -> bool {
        let waits = self.blocked || self.waits || self.barrier.is_some() || self.flush.is_some();
        waits || self.has_requests()
    }

    fn is_behind(&self) -> bool {
        let limit = match self.session.output_share().budget().is_half_used() {
            true => BUSY_OUTPUT_OF_MANY_BYTES,
            false => BUSY_OUTPUT_BYTES,
        };
        self.session.output().len() >= limit
    }

    /// Whether memory for replies is exhausted, regardless of readers: the owner frees some before the next turn.
    pub(super) fn waits_for_memory(&self) -> bool {
        self.session.output_share().budget().is_short()
    }

    /// Whether the peer reads fast enough for requests to be processed.
    pub(super) fn has_requests(&self) -> bool {
        let has = self.dump.is_some() || self.fresh || self.held.is_some() || !self.mods.is_empty();
        has && self.may_go_on()
    }

    /// Whether it has work that need not wait.
    pub(super) fn has_work(&self) -> bool {
        self.has_requests() && !self.waits_for_memory()
    }

    /// Bytes of unsent output and queued packet-ins.
    pub(super) fn output_bytes(&self) -> usize {
        let queued: usize = self.packet_queues.iter().flatten().map(PacketQueue::bytes).sum();
        self.session.output_share().bytes() + queued
    }

    /// Unprocessed bytes received.
    pub(super) fn input_bytes(&self) -> usize {
        self.session.input_share().bytes() + self.kept.bytes()
    }

    /// Updates the memory held by its requests.
    pub(super) fn count_kept(&mut self) {
        if self.mods.is_empty() {
            self.mods_bytes = 0;
        }
        self.kept.set(self.mods_bytes + self.bundle_bytes() + self.commit_bytes);
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now_ms: u64) {
        if self.is_over() || bytes.is_empty() {
            return;
        }
        if self.session.pending().len() > 8 * PENDING_BYTES {
            // The owner passes in more than wanted: the peer floods, so close the connection.
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
        self.monitors.sent(self.taken_bytes);
        while self.unsent_packet_ins.pop_front_if(|end| *end <= self.taken_bytes).is_some() {}
    }

    /// Position of the end of its output.
    pub(super) fn output_end(&self) -> u64 {
        self.taken_bytes + self.session.output().len() as u64
    }

    fn may_go_on(&self) -> bool {
        let waits = self.blocked || self.waits || self.barrier.is_some() || self.flush.is_some();
        !self.is_over() && !self.is_behind() && !waits
    }

    /// Processes waiting requests until the reader lags, `work` is used up, or removed rules must be reported first.
    pub(super) fn serve(
        &mut self,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
        work: &mut usize,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.blocked = false;
        // A change of interest counts for the packets of the next request: the manager publishes it first.
        while *work > 0 && self.may_go_on() && !self.waits_for_memory() && !outcome.interest_changed {
            if self.dump.is_some() {
                *work = work.saturating_sub(self.continue_dump(ctx, now_ms));
                continue;
            }
            let event = self.held.take().or_else(|| self.session.next_event());
            let gathers = event.as_ref().is_some_and(is_mod) && self.mods.len() < GATHER_MAX;
            self.fresh = event.is_some();
            // Later requests see their effects.
            if !gathers && !self.mods.is_empty() {
                self.held = event;
                let groups = self.change_rules(shared, ctx, now_ms, work);
                outcome.forwards.extend(groups.into_iter().map(Forward::Group));
                self.report_changes(ctx, &mut shared.stamps, work);
                continue;
            }
            let Some(event) = event else { break };
            if is_exclusive(&event) && shared.is_busy(ctx) {
                (self.held, self.blocked) = (Some(event), true);
                break;
            }
            if is_monitor_request(&event) && self.monitors.is_paused() {
                (self.held, self.waits) = (Some(event), true);
                break;
            }
            *work -= usize::from(!gathers);
            let epoch = ctx.backer.epoch();
            self.take_event(event, shared, ctx, now_ms, &mut outcome);
            self.count_changes(epoch, ctx);
        }
        self.count_kept();
        outcome
    }

    /// Continues with the collected flow-mods; returns executed group-mods.
    fn change_rules(
        &mut self,
        shared: &Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
        work: &mut usize,
    ) -> Vec<DoneGroupMod> {
        let has_meter = |id| shared.meters.has(id);
        let cx = self.mod_context(&has_meter, ctx, now_ms);
        let epoch = ctx.backer.epoch();
        let step = self.mods.step(ctx.backer, ctx.bridge, &cx, work);
        self.count_changes(epoch, ctx);
        self.mod_report.count(step.flow_mods, now_ms);
        for (kind, frame) in step.failed {
            self.refuse(kind, &frame);
        }
        self.blocked = step.paused;
        ctx.backer.tell_groups(step.groups.iter().filter_map(DoneGroupMod::built));
        step.groups
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
            Event::Connected(version) => {
                self.connected_ms = now_ms;
                if self.settings.async_messages {
                    self.asyncs = default_asyncs(version);
                }
                outcome.interest_changed = true;
            }
            // The session has replied.
            Event::Refused(e) => {
                self.note_refusal(e.kind, &e.data);
                self.part_refused(&e, now_ms);
            }
            Event::Message { .. } if self.kind == ConnKind::Snoop => {}
            Event::Message { message, .. }
                if self.session.is_mute() && !super::gone::matters_unheard(message.kind()) => {}
            Event::Closed(reason) => self.over = Some(reason),
            Event::Message { xid, message, frame } => {
                self.has_asked = true;
                if super::fail::admits(&message) {
                    self.is_admitted = true;
                    shared.admitted_by(self.kind, ctx);
                }
                let request = super::requests::Request { xid, frame: &frame, now_ms };
                if let Err(kind) = self.handle(*message, &request, shared, ctx, outcome) {
                    self.refuse(kind, &frame);
                }
            }
        }
    }

    /// Its barriers cover changes after that epoch, if there are any. Changes of others at the same time count too.
    fn count_changes(&mut self, since: u64, ctx: &BridgeCtx<'_>) {
        let epoch = ctx.backer.epoch();
        if epoch != since {
            self.changed_epoch = epoch;
        }
    }

    /// A request executed beside it has ended.
    pub(super) fn end_wait(&mut self, ctx: &BridgeCtx<'_>) {
        if std::mem::take(&mut self.waits) {
            self.changed_epoch = ctx.backer.epoch();
        }
    }

    /// Replies to a barrier request once the datapath follows the rules.
    pub(super) fn begin_barrier(
        &mut self,
        xid: u32,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        let epoch = self.changed_epoch;
        if ctx.backer.covers(epoch) {
            return self.reply(&Message::BarrierReply, xid);
        }
        ctx.backer.barrier.want(epoch);
        self.barrier = Some(PendingBarrier { xid, epoch, until_ms: now_ms + PATIENCE_MS_OF_BARRIERS });
        Ok(())
    }

    /// Replies to a barrier that need not wait any longer.
    pub(super) fn end_barrier(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let state = &ctx.backer.barrier;
        let is_over = |b: &mut PendingBarrier| {
            let is_covered = state.covered() >= b.epoch || state.is_held();
            state.timeouts.fetch_add(u64::from(!is_covered && now_ms >= b.until_ms), Ordering::Relaxed);
            is_covered || now_ms >= b.until_ms
        };
        if let Some(PendingBarrier { xid, .. }) = self.barrier.take_if(is_over) {
            // A barrier reply has a form in every version.
            let _ = self.reply(&Message::BarrierReply, xid);
        }
    }

    /// Sends an error about `frame`. The session's own limit handles output that does not fit.
    pub(super) fn refuse(&mut self, kind: ErrorKind, frame: &[u8]) {
        self.note_refusal(kind, frame);
        if let Err(why) = self.session.send_error(kind, frame) {
            self.over.get_or_insert(no_room(why));
        }
    }

    /// Notes an error for the log.
    fn note_refusal(&mut self, kind: ErrorKind, frame: &[u8]) {
        if self.refusals.len() < REFUSALS_KEPT {
            let request = message_name(frame).unwrap_or_else(|| "invalid".to_string());
            self.refusals.push(Refusal { kind, request });
        }
    }

    /// Sends a reply.
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
        let barrier = self.barrier.as_ref().map(|b| b.until_ms);
        let queues = self.packet_queues.iter().flatten();
        let packet_ins = queues.filter_map(PacketQueue::next_wakeup_ms).min();
        let own = [bundles, barrier, packet_ins, self.parts_due_ms(), self.mod_report.due_ms()];
        own.into_iter().chain([self.session.next_wakeup_ms()]).flatten().min()
    }

    /// Whether it receives events of this kind and reason (OpenFlow 1.3 §6.3.6).
    pub(super) fn receives(&self, kind: AsyncKind, reason: u8) -> bool {
        self.reasons(kind) >> reason & 1 != 0
    }

    /// The enabled reasons of this kind of event, as bits.
    pub(super) fn reasons(&self, kind: AsyncKind) -> u32 {
        if !self.is_up() || self.is_over() || self.session.is_mute() {
            return 0;
        }
        match self.kind {
            ConnKind::Snoop => return 0,
            ConnKind::Service if self.miss_send_len_bytes == 0 => return 0,
            ConnKind::Service | ConnKind::Controller => {}
        }
        let bits = match kind {
            AsyncKind::PacketIn => self.asyncs.packet_in,
            AsyncKind::PortStatus => self.asyncs.port_status,
            AsyncKind::FlowRemoved => self.asyncs.flow_removed,
            AsyncKind::TableStatus => self.asyncs.table_status,
            AsyncKind::RequestForward => self.asyncs.request_forward,
        };
        let slave = usize::from(self.role == ControllerRole::Slave);
        bits[slave]
    }

    /// Whether it receives table misses.
    pub(super) fn wants_misses(&self) -> bool {
        self.version() < Version::V13 && self.controller_id == 0 && self.receives(AsyncKind::PacketIn, 0)
    }

    /// Whether its output has space for events.
    pub(super) fn has_event_room(&self) -> bool {
        self.session.output().len() < EVENT_OUTPUT_BYTES && !self.waits_for_memory()
    }

    /// Whether a removed rule can be reported to it now: its output has space, or has had none for so long that it
    /// is skipped. Otherwise returns the time of the next attempt.
    pub(super) fn may_send_async(&mut self, now_ms: u64) -> Result<(), u64> {
        if self.waits_for_memory() {
            return Err(now_ms);
        }
        if self.session.output().len() < EVENT_OUTPUT_BYTES {
            self.full = None;
            return Ok(());
        }
        self.is_stalled(now_ms)
    }

    /// Whether it has read little since it last had no space. Otherwise returns the time of the next check.
    pub(super) fn is_stalled(&mut self, now_ms: u64) -> Result<(), u64> {
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

    /// Ends the connection of a reader for which changes of rules no longer wait.
    pub(super) fn give_up_reader(&mut self) {
        self.counters.events_dropped += 1;
        self.over = Some(CloseReason::OutputOverflow);
    }

    /// Sends an event other than a packet-in; drops and counts it if the reader lags.
    pub(super) fn send_async(&mut self, message: &Message) {
        let sent = self.has_event_room() && self.session.send_with_xid(message, 0).is_ok();
        self.counters.events_dropped += u64::from(!sent);
    }

    /// Applies settings of its row; the probe interval and limits count from now on.
    pub(super) fn configure(&mut self, settings: ConnSettings, budgets: &Budgets) {
        self.settings = settings;
        self.session.set_probe_interval_ms(settings.probe_interval_ms);
        match (settings.rate_limit, &mut self.packet_queues) {
            (None, queues) => *queues = None,
            (Some(limit), Some(queues)) => {
                queues.iter_mut().filter(|q| q.limit() != limit).for_each(|q| q.set_limit(limit));
            }
            (Some(limit), queues @ None) => {
                *queues = Some([0, 1].map(|_| PacketQueue::new(limit, &budgets.output)));
            }
        }
    }
}

/// Reason to close a connection whose reply was not accepted.
fn no_room(why: SendError) -> CloseReason {
    match why {
        SendError::Short => CloseReason::MemoryShort,
        SendError::NotConnected | SendError::Full { .. } | SendError::Unencodable(_) => {
            CloseReason::OutputOverflow
        }
    }
}

fn is_mod(event: &Event) -> bool {
    matches!(event, Event::Message { message, .. } if matches!(**message, Message::FlowMod(_) | Message::GroupMod(_)))
}

pub(super) fn is_monitor_request(event: &Event) -> bool {
    matches!(event, Event::Message { message, .. } if matches!(**message, Message::FlowMonitorRequest(_)))
}

/// Whether it waits for another such request of the bridge: it commits a bundle, or changes meters or mappings.
fn is_exclusive(event: &Event) -> bool {
    let Event::Message { message, .. } = event else { return false };
    let commits = matches!(&**message, Message::BundleControl(m) if m.ty == BundleControlType::CommitRequest);
    commits || matches!(**message, Message::MeterMod(_) | Message::TlvTableMod(_))
}

/// Default asynchronous configuration of a connection.
fn default_asyncs(version: Version) -> AsyncConfig {
    // All reasons of the version but an invalid TTL.
    let (packet_in, flow_removed) = if version >= Version::V14 { (0x3b, 0x3f) } else { (3, 0xf) };
    AsyncConfig {
        packet_in: [packet_in, 0],
        port_status: [7, 7],
        flow_removed: [flow_removed, 0],
        ..AsyncConfig::default()
    }
}
