//! Behaviour of a bridge without controllers (`Bridge.fail_mode`).
//!
//! A bridge without configured controllers is a learning switch (by a rule of priority 0, visible to controllers),
//! or, in secure mode, has no rules. A bridge that no controller has admitted for three times the probe interval
//! becomes a learning switch by a hidden rule, above all others, until one admits it; in secure mode it keeps its
//! rules.
//!
//! A controller admits the bridge by a message that shows its interest, such as a flow-mod, or by any message at
//! least 30 seconds after it connected. Meanwhile an open bridge sends connected controllers a packet-in of its own
//! every two seconds, to which a controller responds.

use super::conn::{AsyncKind, Conn};
use super::{BridgeCtx, ConnKind, Connmgr};
use flow::fields::FieldId;
use flow::{MacAddr, Match, OfPort, TableId};
use ofp_actions::{Action, Output, PacketInReason};
use ofproto::flow_mod;
use ofproto::rule::{Rule, RuleStats, RuleTimeouts};
use openflow::msg::flow_mod::FlowModFlags;
use openflow::msg::packet::PacketIn;
use openflow::{Format, Message, NO_BUFFER};
use std::sync::Arc;

/// Priority of the fail-open rule; above every priority of OpenFlow.
pub(super) const FAIL_OPEN_PRIORITY: i32 = 0x00f0_f0f0;
/// Probe intervals without a controller until fail-open.
const PROBES_TO_FAIL: u64 = 3;
/// Least time without a controller until fail-open, with probes disabled.
const FAIL_MIN_MS: u64 = 1000;
/// Time from its connection after which any message of a controller admits the bridge.
const ADMISSION_MS: u64 = 30_000;
/// Interval of an open bridge's own packet-ins.
const PROBE_INTERVAL_MS: u64 = 2000;
/// Interval of log lines of an open bridge.
const STILL_OPEN_S: u64 = 60;

/// `Bridge.fail_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailMode {
    /// Standalone: a learning switch without controllers.
    #[default]
    Standalone,
    /// Secure: keep the rules.
    Secure,
}

/// Configuration of a bridge's controllers in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteConfig {
    /// Fail mode.
    pub fail_mode: FailMode,
    /// Whether a controller is configured.
    pub has_controllers: bool,
    /// The maximum of their probe intervals.
    pub max_probe_interval_ms: u64,
}

/// Fail-mode state machine of a bridge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Governance {
    Controllers,
    Standalone,
    Nobody,
}

impl RemoteConfig {
    fn governance(&self) -> Governance {
        match (self.has_controllers, self.fail_mode) {
            (true, _) => Governance::Controllers,
            (false, FailMode::Standalone) => Governance::Standalone,
            (false, FailMode::Secure) => Governance::Nobody,
        }
    }
}

/// A change for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailEvent {
    /// Without a controller for this number of seconds: fails open.
    Entered(u64),
    /// Still open after this number of seconds.
    Still(u64),
    /// A controller admitted the bridge.
    Left,
}

#[derive(Default)]
pub(super) struct FailState {
    config: Option<RemoteConfig>,
    /// Time of the last message from a controller that admitted the bridge; `None` while one is connected.
    alone_since_ms: Option<u64>,
    /// Latest such time of closed connections.
    admitted_ms: Option<u64>,
    open: bool,
    /// Time of the next packet-in of its own; `None` if no controller is connected.
    probe_at_ms: Option<u64>,
    /// Number of these.
    probes: u64,
    /// Seconds of the latest log line.
    logged_s: u64,
    events: Vec<FailEvent>,
}

impl FailState {
    /// Notes the connected controllers.
    pub(super) fn controllers_seen<'a>(&mut self, conns: impl Iterator<Item = &'a Conn>, now_ms: u64) {
        if conns.filter(|c| c.kind == ConnKind::Controller).any(|c| c.admitted_ms().is_some()) {
            self.alone_since_ms = None;
        } else {
            self.alone_since_ms.get_or_insert(self.admitted_ms.take().unwrap_or(now_ms));
        }
    }

    /// Notes a closed connection.
    pub(super) fn closed(&mut self, conn: &Conn) {
        let admitted_ms = conn.admitted_ms().filter(|_| conn.kind == ConnKind::Controller);
        self.admitted_ms = self.admitted_ms.max(admitted_ms);
    }

    /// Time of fail-open.
    fn fails_at_ms(&self) -> Option<u64> {
        let config = self.config?;
        let may = config.has_controllers && config.fail_mode == FailMode::Standalone;
        let after_ms = config.max_probe_interval_ms.saturating_mul(PROBES_TO_FAIL).max(FAIL_MIN_MS);
        self.alone_since_ms.filter(|_| may).map(|since_ms| since_ms.saturating_add(after_ms))
    }

    pub(super) fn next_wakeup_ms(&self) -> Option<u64> {
        if self.open { self.probe_at_ms } else { self.fails_at_ms() }
    }

    /// Seconds without a controller.
    fn alone_s(&self, now_ms: u64) -> u64 {
        self.alone_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms) / 1000)
    }
}

impl Conn {
    /// Time of the last message of a controller that has admitted the bridge; `None` if it has not.
    fn admitted_ms(&self) -> Option<u64> {
        let last_ms = self.session.last_input_ms();
        let is_admitted = self.is_admitted || last_ms >= self.connected_ms.saturating_add(ADMISSION_MS);
        (self.is_up() && is_admitted).then_some(last_ms)
    }
}

/// Whether a controller that sends this admits the bridge. Others also come from a controller that has not decided
/// yet. OVS 3.1 does so, too.
pub(super) fn admits(message: &Message) -> bool {
    !matches!(
        message,
        Message::Hello(_)
            | Message::Error(_)
            | Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesRequest
            | Message::FeaturesReply(_)
            | Message::GetConfigRequest
            | Message::GetConfigReply(_)
            | Message::SetConfig(_)
            | Message::QueueGetConfigRequest(_)
            | Message::QueueGetConfigReply(_)
            | Message::GetAsyncRequest
            | Message::GetAsyncReply(_)
            | Message::GroupStatsRequest(_)
            | Message::GroupStatsReply(_)
            | Message::GroupDescRequest(_)
            | Message::GroupDescReply(_)
            | Message::GroupFeaturesRequest
            | Message::GroupFeaturesReply(_)
            | Message::TableFeaturesRequest(_)
            | Message::TableFeaturesReply(_)
            | Message::SetFlowFormat(_)
    )
}

/// A rule of the bridge's own, in the first table.
pub(super) fn own_rule(priority: i32, matching: &Match, actions: &[Action], now_ms: u64) -> Rule {
    Rule {
        table: TableId(0),
        matching: matching.into(),
        priority,
        cookie: 0,
        timeouts: RuleTimeouts::new(0, 0, &[]),
        importance: 0,
        flags: FlowModFlags::empty(),
        actions: actions.into(),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(RuleStats::new(now_ms)),
    }
}

/// The action of a learning switch.
pub(super) const NORMAL: Action = Action::Output(Output { port: OfPort::NORMAL, max_len_bytes: 0 });

fn add_normal(ctx: &BridgeCtx<'_>, priority: i32, now_ms: u64) {
    let rule = own_rule(priority, &Match::catchall(), &[NORMAL], now_ms);
    ctx.backer.change_tables(ctx.bridge, |t| t.insert(Arc::new(rule)));
}

/// A reverse ARP request of an address with OVS's prefix, which no host has. OVS sends the same, from a random address.
fn own_packet(number: u64) -> Vec<u8> {
    let mac = MacAddr::from_u64(0x0023_2080_0000 | number & 0x7f_ffff).0;
    let header: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    [&MacAddr::BROADCAST.0[..], &mac, &header, &mac, &[0; 4], &mac, &[0; 4]].concat()
}

impl Connmgr {
    /// Applies the configuration of the bridge's controllers, at start and after changes. Flushes rules, groups and meters if the
    /// bridge gets its first controller, loses its last, or without controllers changes its mode.
    pub fn configure(&mut self, config: RemoteConfig, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let was = self.fail.config.replace(config);
        let now = config.governance();
        let changed = was.is_none_or(|was| was.governance() != now);
        if changed {
            self.finish_commit(ctx, now_ms);
        }
        if was.is_some() && changed {
            self.flush(ctx);
            self.fail.open = false;
        }
        if changed && now == Governance::Standalone {
            add_normal(ctx, 0, now_ms);
        }
        if changed {
            self.fail.alone_since_ms = Some(now_ms);
            self.fail.controllers_seen(self.conns.values(), now_ms);
            self.in_band.flushed();
        }
        self.run_fail_open(ctx, now_ms);
        self.run_in_band(ctx, now_ms);
    }

    /// Removes all rules, groups and meters.
    pub(super) fn flush(&mut self, ctx: &BridgeCtx<'_>) {
        flow_mod::flush(ctx.backer, ctx.bridge);
        let waits = self.shared.meters.is_ending();
        self.shared.meters.clear(ctx);
        if waits {
            self.conns.values_mut().for_each(|conn| conn.end_wait(ctx));
        }
    }

    /// Whether the bridge is in fail-open mode.
    pub fn is_fail_open(&self) -> bool {
        self.fail.open
    }

    /// Ends the connections of a deleted bridge, and removes its meters from the datapath.
    pub fn shut_down(&mut self, ctx: &BridgeCtx<'_>) {
        for conn in std::mem::take(&mut self.conns).values() {
            self.gone.add(&conn.all_counters().ended());
        }
        self.shared.commit = None;
        self.shared.meters.clear(ctx);
    }

    /// Takes changes of fail-open for the log, oldest first.
    pub fn take_fail_events(&mut self) -> Vec<FailEvent> {
        std::mem::take(&mut self.fail.events)
    }

    pub(super) fn run_fail_open(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let failed = self.fail.fails_at_ms().is_some_and(|at| now_ms >= at);
        let alone_s = self.fail.alone_s(now_ms);
        if failed != self.fail.open {
            self.finish_commit(ctx, now_ms);
            self.fail.open = failed;
            self.fail.logged_s = alone_s;
            self.fail.events.push(if failed { FailEvent::Entered(alone_s) } else { FailEvent::Left });
            if failed {
                self.flush(ctx);
                self.in_band.flushed();
                add_normal(ctx, FAIL_OPEN_PRIORITY, now_ms);
            } else {
                let everything = Match::catchall().into();
                ctx.backer
                    .change_tables(ctx.bridge, |t| t.remove(TableId(0), &everything, FAIL_OPEN_PRIORITY));
            }
        } else if failed && alone_s > self.fail.logged_s + STILL_OPEN_S {
            self.fail.logged_s = alone_s;
            self.fail.events.push(FailEvent::Still(alone_s));
        }
        self.probe_controllers(now_ms);
    }

    /// Sends controllers that have not admitted an open bridge a packet-in of its own, at intervals.
    fn probe_controllers(&mut self, now_ms: u64) {
        if !self.fail.open || !self.controller_is_connected() {
            self.fail.probe_at_ms = None;
            return;
        }
        if *self.fail.probe_at_ms.get_or_insert(now_ms + PROBE_INTERVAL_MS) > now_ms {
            return;
        }
        self.fail.probe_at_ms = Some(now_ms + PROBE_INTERVAL_MS);
        self.fail.probes += 1;
        let data = own_packet(self.fail.probes);
        let mut metadata = Box::<Match>::default();
        metadata.set(FieldId::InPortOxm, OfPort::LOCAL.0.into());
        let reason = PacketInReason::NoMatch;
        let mut message = PacketIn {
            format: Format::Standard,
            buffer_id: NO_BUFFER,
            total_len_bytes: data.len() as u32,
            reason,
            table: TableId(0),
            // No rule's.
            cookie: u64::MAX,
            metadata,
            data,
            userdata: Vec::new(),
            continuation: Vec::new(),
        };
        let listens = |c: &&mut Conn| c.controller_id == 0 && c.receives(AsyncKind::PacketIn, reason as u8);
        for conn in self.conns.values_mut().filter(listens) {
            message.format = conn.packet_in_format;
            conn.send_packet_in(OfPort::LOCAL.0, true, &message, now_ms);
        }
    }
}
