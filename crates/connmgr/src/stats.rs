//! Requests for statistics of rules, tables and queues; long replies in pieces.
//!
//! The rules of a reply are those of one moment, searched and sent piece by piece as the reader reads.

use super::BridgeCtx;
use super::conn::Conn;
use super::groups::GroupDump;
use super::monitors::MonitorDump;
use dpif::qos::QueueStats as PortQueue;
use flow::{OfPort, PackedMatch, TableId};
use ofproto::flow_mod::LOOKS_PER_CHANGE;
use ofproto::rule::Rule;
use ofproto::tables::{Selected, Selection, TABLE_MAX_RULES};
use openflow::msg::control::TableMiss;
use openflow::msg::flow_stats::{AggregateStats, FlowStats, FlowStatsRequest};
use openflow::msg::stats::{
    QUEUE_ALL, Queue, QueueConfig, QueueDesc, QueueStats, QueueStatsRequest, TableAbilities, TableStats,
};
use openflow::{ErrorKind, Format, Message, Multi};

/// Rules examined for one piece.
const PIECE_RULES: usize = 512;

/// A reply in progress.
pub(super) enum Dump {
    /// About rules.
    Rules(Box<RuleDump>),
    /// About groups.
    Groups(GroupDump),
    /// To new flow monitors.
    Monitors(Box<MonitorDump>),
}

pub(super) struct RuleDump {
    selected: Selected,
    xid: u32,
    format: Format,
    /// The sums so far, for an aggregate request.
    sums: Option<AggregateStats>,
}

/// The selected rules, hidden ones included.
fn wanted(m: &FlowStatsRequest, ctx: &BridgeCtx<'_>) -> Selected {
    let by = Selection {
        table: m.table,
        matching: PackedMatch::from(&*m.matching),
        cookie: m.cookie,
        cookie_mask: m.cookie_mask,
        out_port: m.out_port,
        out_group: m.out_group,
    };
    match ctx.bridge_view() {
        Some(bridge) => bridge.tables.select(&by),
        None => Selected::of(&by, Vec::new()),
    }
}

fn flow_stats_of(rule: &Rule, now_ms: u64) -> FlowStats {
    let (packet_count, byte_count) = rule.stats.counts();
    let age_ms = now_ms.saturating_sub(rule.created_ms);
    let seconds_since =
        |then_ms: u64| Some((now_ms.saturating_sub(then_ms) / 1000).min(u64::from(u32::MAX)) as u32);
    FlowStats {
        table: rule.table,
        duration_s: (age_ms / 1000) as u32,
        duration_ns: (age_ms % 1000) as u32 * 1_000_000,
        priority: rule.priority.clamp(0, i32::from(u16::MAX)) as u16,
        idle_timeout_s: rule.timeouts.idle_s(),
        hard_timeout_s: rule.timeouts.hard_s(),
        idle_age_s: seconds_since(rule.stats.used_ms()),
        hard_age_s: seconds_since(rule.renewed_ms()),
        flags: rule.flags,
        importance: rule.importance,
        cookie: rule.cookie,
        packet_count,
        byte_count,
        matching: rule.matching.clone(),
        actions: rule.actions.clone(),
    }
}

fn add_to(sums: &mut AggregateStats, rule: &Rule) {
    let (packets, bytes) = rule.stats.counts();
    sums.packet_count = sums.packet_count.saturating_add(packets);
    sums.byte_count = sums.byte_count.saturating_add(bytes);
    sums.flow_count += 1;
}

impl Conn {
    /// Begins a reply with rules, or with `summed` their aggregate.
    pub(super) fn flow_stats(
        &mut self,
        m: &FlowStatsRequest,
        summed: bool,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let sums = summed.then(|| AggregateStats { format: m.format, ..AggregateStats::default() });
        let dump = RuleDump { selected: wanted(m, ctx), xid, format: m.format, sums };
        self.dump = Some(Dump::Rules(Box::new(dump)));
        Ok(())
    }

    /// Sends the next piece of the reply; returns its work in rules, at least one.
    pub(super) fn continue_dump(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) -> usize {
        match self.dump.take() {
            Some(Dump::Rules(dump)) => self.continue_rules(dump, now_ms),
            Some(Dump::Monitors(dump)) => self.continue_monitors(dump, PIECE_RULES),
            Some(Dump::Groups(mut dump)) => {
                let (reply, work) = dump.next_piece(ctx, now_ms);
                // Parts are split, and every group fits a part.
                let _ = self.reply(&reply, dump.xid());
                self.dump = dump.has_more().then_some(Dump::Groups(dump));
                work.max(1)
            }
            None => 1,
        }
    }

    fn continue_rules(&mut self, mut dump: Box<RuleDump>, now_ms: u64) -> usize {
        let mut rules = Vec::new();
        let looked = dump.selected.next_slice(PIECE_RULES, &mut rules);
        rules.retain(|r| !r.is_hidden());
        let more = !dump.selected.is_done();
        let work = rules.len() + looked / LOOKS_PER_CHANGE;
        if let Some(sums) = &mut dump.sums {
            rules.iter().for_each(|r| add_to(sums, r));
            if !more {
                // Sums always fit a message.
                let _ = self.reply(&Message::AggregateReply(*sums), dump.xid);
            }
        } else if !rules.is_empty() || !more {
            let entries = rules.iter().map(|r| flow_stats_of(r, now_ms)).collect();
            let reply = Message::FlowStatsReply(Multi { entries, more, format: dump.format });
            // A reply with rules always fits: parts are split, and every rule came in a message of this protocol.
            let _ = self.reply(&reply, dump.xid);
        }
        self.dump = more.then_some(Dump::Rules(dump));
        work.max(1)
    }

    pub(super) fn table_stats(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Result<(), ErrorKind> {
        let bridge = ctx.bridge_view();
        let version = self.version();
        let row = |n: u8| {
            let table = TableId(n);
            let counts = bridge.as_ref().and_then(|b| Some(b.tables.table(table)?.counters.counts()));
            let (lookup_count, matched_count) = counts.unwrap_or_default();
            let miss = bridge.as_ref().and_then(|b| b.tables.miss(table));
            let abilities = super::table_features::abilities(table, version);
            TableStats {
                table,
                name: bridge.as_ref().map_or_else(String::new, |b| b.tables.name(table).to_string()),
                abilities: TableAbilities { config: miss.map_or(0, TableMiss::to_config), ..abilities },
                max_entries: bridge.as_ref().map_or(TABLE_MAX_RULES, |b| b.tables.limit(table)),
                active_count: bridge.as_ref().map_or(0, |b| b.tables.visible_count(table) as u32),
                lookup_count,
                matched_count,
            }
        };
        let entries = (0..TableId::COUNT).map(row).collect();
        self.reply(&Message::TableStatsReply(Multi::all(entries)), xid)
    }

    /// As in OVS a port without a device has no queues, and a specific queue that is missing is an error.
    pub(super) fn queue_stats(
        &mut self,
        m: QueueStatsRequest,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let stats = |(port, q): (OfPort, PortQueue)| QueueStats {
            port,
            queue: q.queue,
            tx_bytes: q.tx_bytes,
            tx_packets: q.tx_packets,
            tx_errors: q.tx_errors,
            duration_s: q.age_ms.map_or(u32::MAX, |ms| u32::try_from(ms / 1000).unwrap_or(u32::MAX)),
            duration_ns: q.age_ms.map_or(u32::MAX, |ms| (ms % 1000) as u32 * 1_000_000),
        };
        let all = known_queues(m, ctx)?.into_iter().map(stats).collect();
        self.reply(&Message::QueueStatsReply(Multi::all(all)), xid)
    }

    pub(super) fn queue_desc(
        &mut self,
        m: QueueStatsRequest,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let all = known_queues(m, ctx)?.into_iter();
        let all = all.map(|(port, q)| QueueDesc { port, queue: numbered(&q) }).collect();
        self.reply(&Message::QueueDescReply(Multi::all(all)), xid)
    }

    pub(super) fn queue_config(
        &mut self,
        port: OfPort,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let all = known_queues(QueueStatsRequest { port, queue: QUEUE_ALL }, ctx)?;
        let queues = all.iter().map(|(_, q)| numbered(q)).collect();
        self.reply(&Message::QueueGetConfigReply(QueueConfig { port, queues }), xid)
    }
}

/// As in OVS the reply tells no rates.
fn numbered(q: &PortQueue) -> Queue {
    Queue { queue: q.queue, ..Queue::default() }
}

/// The selected queues of a port of the bridge, or of any.
fn known_queues(m: QueueStatsRequest, ctx: &BridgeCtx<'_>) -> Result<Vec<(OfPort, PortQueue)>, ErrorKind> {
    known_port(m.port, ctx)?;
    let Some(bridge) = ctx.bridge_view() else { return Ok(Vec::new()) };
    let ports = bridge.ports.ports.values().filter(|p| m.port == OfPort::NONE || p.of_port == m.port);
    let devices = ports.filter_map(|p| Some((p.of_port, p.dp_port.filter(|_| p.tunnel.is_none())?)));
    let of_port = |(port, device)| ctx.datapath.queues(device).into_iter().map(move |queue| (port, queue));
    let queues = devices.flat_map(of_port).filter(|(_, q)| m.queue == QUEUE_ALL || q.queue == m.queue);
    let queues: Vec<_> = queues.collect();
    if m.queue != QUEUE_ALL && queues.is_empty() { Err(ErrorKind::QofcBadQueue) } else { Ok(queues) }
}

/// Requires a port of the bridge, or any (`NONE`).
fn known_port(port: OfPort, ctx: &BridgeCtx<'_>) -> Result<(), ErrorKind> {
    let there = ctx.bridge_view().is_some_and(|b| b.ports.port(port).is_some());
    if there || port == OfPort::NONE { Ok(()) } else { Err(ErrorKind::QofcBadPort) }
}
