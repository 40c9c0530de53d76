//! Packets to and from controllers, and removed rules.

use super::conn::{AsyncKind, Conn};
use super::continuation::continuation_of;
use super::{BridgeCtx, Connmgr, Shared};
use dpif::{DpifOp, Execute, FlowStats, OpBatch, PmdId};
use flow::extract::{Metadata, extract_typed};
use flow::fields::FieldId;
use flow::{DpPort, FlowKey, Match, OfPort, TableId};
use ofp_actions::{Action, PacketInReason, check_actions};
use ofproto::ct_support;
use ofproto::events::PacketInEvent;
use ofproto::flow_mod::{PacketOfTurn, check_references};
use ofproto::links;
use ofproto::packet_state::{SHOWN, TUPLE, set_hidden, shows_tuple};
use ofproto::rule::Rule;
use ofproto::tables::Tables;
use ofproto::view::{BridgeView, View};
use ofproto::xlate::{Request, Start, miss_reason, translate};
use openflow::msg::flow_mod::{FlowRemoved, FlowRemovedReason};
use openflow::msg::packet::{PacketIn, PacketOut};
use openflow::{ErrorKind, Format, Message, NO_BUFFER, Version};
use packet::Packet;
use packet::headers::ETH_TYPE_IP;
use std::sync::Arc;

/// Length of an Ethernet header: a shorter frame cannot be sent.
const ETH_HEADER_BYTES: usize = 14;
/// Metadata fields of packet-ins that packet-outs must not give.
const UNSENT_FIELDS: [FieldId; 5] =
    [FieldId::PktMark, FieldId::CtState, FieldId::CtZone, FieldId::CtMark, FieldId::CtLabel];

impl Shared {
    /// Rejects actions that refer to missing groups or meters.
    pub(super) fn check_references(&self, actions: &[Action], tables: &Tables) -> Result<(), ErrorKind> {
        check_references(actions, tables, &|id| self.meters.has(id))
    }
}

impl Conn {
    /// Checks a packet-out by itself: its groups and meters may be missing.
    pub(super) fn check_packet_out(
        &self,
        m: &PacketOut,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        let view = ctx.bridge_view().ok_or(ErrorKind::BrcBadPort)?;
        self.prepare(m, ctx, &view, now_ms).map(drop)
    }

    /// Key and flow of a packet-out's packet, if its actions fit them.
    fn prepare(
        &self,
        m: &PacketOut,
        ctx: &BridgeCtx<'_>,
        bridge: &BridgeView,
        now_ms: u64,
    ) -> Result<(FlowKey, flow::Flow), ErrorKind> {
        if m.buffer_id != NO_BUFFER {
            return Err(ErrorKind::BrcBufferUnknown);
        }
        if UNSENT_FIELDS.iter().any(|f| m.metadata.get(*f).1 != 0) {
            return Err(ErrorKind::BrcPipelineFieldsOnly);
        }
        let dp_port = bridge.ports.port(m.in_port).and_then(|p| p.dp_port).unwrap_or(DpPort::NONE);
        let (key, flow) = key_and_flow(&m.data, (dp_port, m.in_port), (&m.metadata, &[]), ctx)?;
        self.check_sent(&flow, [(None, &m.actions[..])], ctx, now_ms)?;
        Ok((key, flow))
    }

    /// Checks lists of actions of a packet that a controller sends, each with the table of its rule, if any. Their
    /// groups and meters may be missing.
    pub(super) fn check_sent<'a>(
        &self,
        flow: &flow::Flow,
        lists: impl IntoIterator<Item = (Option<TableId>, &'a [Action])>,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        let cx = self.mod_context(&|_| true, ctx, now_ms);
        lists.into_iter().try_for_each(|(table, actions)| {
            check_actions(actions, &exactly(flow), &cx.for_actions(table))?;
            ct_support::check_actions(actions, &cx.can)
        })
    }

    /// Executes the actions of a packet-out on its packet.
    pub(super) fn packet_out(
        &mut self,
        m: &PacketOut,
        shared: &Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        self.counters.packet_outs += 1;
        let view = ctx.backer.view();
        let bridge = view.bridge(ctx.bridge).ok_or(ErrorKind::BrcBadPort)?;
        let (key, flow) = self.prepare(m, ctx, bridge, now_ms)?;
        shared.check_references(&m.actions, &bridge.tables)?;
        let packet = SentPacket { data: &m.data, key, flow: &flow };
        packet.translate_and_execute(&view, Start::Actions(&m.actions), ctx, now_ms);
        Ok(())
    }

    /// Executes the actions of a bundle's packet-out on its packet, with the tables of its turn. It was checked; if the
    /// bridge changed since, it may go nowhere.
    pub(super) fn bundled_packet_out(&self, packet: &PacketOfTurn, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let PacketOfTurn { out, tables } = packet;
        let mut view = View::clone(&ctx.backer.view());
        let Some(bridge) = view.bridges.get_mut(&ctx.bridge) else { return };
        Arc::make_mut(bridge).tables = tables.clone();
        if let Ok((key, flow)) = self.prepare(out, ctx, bridge, now_ms) {
            let packet = SentPacket { data: &out.data, key, flow: &flow };
            packet.translate_and_execute(&view, Start::Actions(&out.actions), ctx, now_ms);
        }
    }
}

/// Key and flow of a packet that a controller sends, with an input port, other pipeline fields, and hidden ones of a
/// continuation.
pub(super) fn key_and_flow(
    data: &[u8],
    (dp_port, in_port): (DpPort, OfPort),
    (fields, hidden): (&Match, &[(u16, u128)]),
    ctx: &BridgeCtx<'_>,
) -> Result<(FlowKey, flow::Flow), ErrorKind> {
    let mut key = FlowKey::default();
    let metadata = Metadata { in_port: dp_port.0, ..Metadata::default() };
    let (packet_type, _) = fields.get(FieldId::PacketType);
    extract_typed(data, packet_type as u32, &metadata, ctx.backer.view().vlan_limit, &mut key);
    let mut flow = key.to_flow(in_port);
    for (number, value) in hidden {
        set_hidden(&mut flow, *number, *value).ok_or(ErrorKind::BpcBadValue)?;
    }
    set_pipeline_fields(&mut flow, fields)?;
    // The datapath's packet has the same state beside its bytes.
    let mut key = FlowKey::from_flow(&flow, dp_port);
    if let Some(bridge) = ctx.bridge_view() {
        key.options = bridge.tables.tlv().encode(&flow);
        key.set_shape();
    }
    Ok((key, flow))
}

/// A packet that a controller sends.
pub(super) struct SentPacket<'a> {
    /// The frame.
    pub(super) data: &'a [u8],
    /// Its key in the datapath.
    pub(super) key: FlowKey,
    /// Its flow, with pipeline fields.
    pub(super) flow: &'a flow::Flow,
}

impl SentPacket<'_> {
    /// Translates it and has the datapath execute the result.
    pub(super) fn translate_and_execute(
        self,
        view: &View,
        start: Start<'_>,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) {
        if self.data.len() < ETH_HEADER_BYTES && self.flow.packet_type == 0 {
            // Not sendable: accepted without effect, as by every switch without buffers.
            return;
        }
        let request = Request { view, bridge: ctx.bridge, flow: self.flow, start, trace: false };
        let t = translate(&request, &mut ctx.backer.xlate_host(true, now_ms).with_packet(self.data));
        if let Some(bridge) = view.bridge(ctx.bridge) {
            ctx.backer.failures.report(&bridge.name, self.flow, &t);
        }
        let bytes = self.data.len() as u64;
        let seen = FlowStats { packets: 1, bytes, used_ms: now_ms, tcp_flags: self.flow.flags_of_tcp() };
        t.cache.replay(&seen, &mut ctx.backer.effect_host());
        t.cache.end_flow(None);
        let claimed = links::deliver(&t.claimed, self.data);
        let execute = Execute {
            packet: Packet::from_slice(self.data),
            key: self.key,
            actions: t.actions.into(),
            ticket: None,
            upcall: 0,
            went_on: claimed,
        };
        let ops = vec![DpifOp::Execute(Box::new(execute))];
        ctx.datapath.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
        ctx.backer.ukeys.defer_release(&t.recircs);
    }
}

/// Sets the pipeline fields that a packet-out gives (OpenFlow 1.5 §7.3.6), or a continuation.
fn set_pipeline_fields(flow: &mut flow::Flow, given: &Match) -> Result<(), ErrorKind> {
    let mut others = *given;
    let is_tracked = given.get(FieldId::CtState).1 != 0;
    let tuple = if is_tracked { &TUPLE[..] } else { &[] };
    if is_tracked {
        others.set_masked(FieldId::EthType, 0, 0);
    }
    for field in SHOWN.iter().chain(tuple) {
        let (value, mask) = given.get(*field);
        if mask != 0 {
            field.set(flow, value);
            others.set_masked(*field, 0, 0);
        }
    }
    flow.set_tun_options(given.flow().tun_options().as_ref());
    others.set_tun_metadata(&flow::Flow::default());
    // The packet begins with the header of its type: a frame, or one with an EtherType.
    if flow.packet_type == 0 || flow.packet_type >> 16 == 1 {
        others.set_masked(FieldId::PacketType, 0, 0);
    }
    if others == Match::catchall() { Ok(()) } else { Err(ErrorKind::BrcPipelineFieldsOnly) }
}

/// The match of exactly this flow's packets.
fn exactly(flow: &flow::Flow) -> Match {
    let ones = flow::Flow::from_words([u64::MAX; flow::FLOW_WORDS]);
    Match::new(flow, &flow::Mask(ones))
}

/// Reason of a packet-in, for all connections.
struct Why {
    /// An `OFPR_*` value.
    reason: PacketInReason,
    miss: Option<Miss>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Miss {
    /// The table-miss rule.
    Rule,
    NoRule,
}

impl Why {
    fn of(event: &PacketInEvent) -> Why {
        let (reason, miss) = match event.cookie.reason {
            0 => (PacketInReason::NoMatch, None),
            2 => (PacketInReason::InvalidTtl, None),
            3 => (PacketInReason::ActionSet, None),
            4 => (PacketInReason::Group, None),
            5 => (PacketInReason::PacketOut, None),
            miss_reason::RULE => (PacketInReason::NoMatch, Some(Miss::Rule)),
            miss_reason::NO_RULE => (PacketInReason::NoMatch, Some(Miss::NoRule)),
            _ => (PacketInReason::Action, None),
        };
        Why { reason, miss }
    }

    /// The reason that selects connections of this version, and the reported reason; `None` if they do not receive
    /// it.
    fn for_version(&self, version: Version) -> Option<(PacketInReason, PacketInReason)> {
        match (self.reason, self.miss) {
            (_, Some(Miss::NoRule)) if version >= Version::V13 => None,
            // Before 1.3 the table-miss rule reports as any other rule, but is still selected as a miss.
            (reason, Some(Miss::Rule)) if version < Version::V13 => Some((reason, PacketInReason::Action)),
            (PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut, _)
                if version < Version::V14 =>
            {
                Some((PacketInReason::Action, PacketInReason::Action))
            }
            (reason, _) => Some((reason, reason)),
        }
    }
}

/// The flow of a packet for controllers, with the state of its translation.
pub(super) fn flow_of(event: &PacketInEvent) -> flow::Flow {
    let packet = &event.state.packet;
    let mut flow = event.key.to_flow(packet.in_port);
    packet.restore(&mut flow);
    flow
}

/// Packet-in metadata beside the packet's own fields.
fn pipeline_fields(event: &PacketInEvent) -> Box<Match> {
    let flow = flow_of(event);
    let mut m = Box::<Match>::default();
    m.set(FieldId::InPortOxm, flow.in_port.into());
    for field in &SHOWN {
        let value = field.get(&flow);
        if value != 0 {
            m.set(*field, value);
        }
    }
    if flow.ct_state != 0 {
        m.set(FieldId::EthType, flow.dl_type.into());
        let has_tuple = shows_tuple(&flow);
        let other_family = match flow.dl_type == ETH_TYPE_IP {
            true => [FieldId::CtIpv6Src, FieldId::CtIpv6Dst],
            false => [FieldId::CtNwSrc, FieldId::CtNwDst],
        };
        for field in TUPLE.iter().filter(|f| has_tuple && !other_family.contains(f)) {
            m.set(*field, field.get(&flow));
        }
    }
    m.set_tun_metadata(&flow);
    if flow.packet_type != 0 {
        m.set(FieldId::PacketType, flow.packet_type.into());
    }
    m
}

impl Connmgr {
    /// Sends a packet to its controllers, or queues it for them.
    pub fn deliver_packet_in(&mut self, event: &PacketInEvent, now_ms: u64) {
        let continuation = event.paused_in.map(|bridge| continuation_of(event, bridge));
        let why = Why::of(event);
        let mut message: Option<PacketIn> = None;
        for conn in self.conns.values_mut().filter(|c| c.controller_id == event.cookie.controller_id) {
            let Some((choice, reason)) = why.for_version(conn.version()) else { continue };
            if !conn.receives(AsyncKind::PacketIn, choice as u8) {
                continue;
            }
            let m = message.get_or_insert_with(|| PacketIn {
                format: Format::Standard,
                buffer_id: NO_BUFFER,
                total_len_bytes: event.packet.len() as u32,
                reason,
                // As in OVS, that of a paused translation has none.
                table: if event.cookie.continuation { TableId(0) } else { event.state.table },
                cookie: event.cookie.rule_cookie,
                metadata: pipeline_fields(event),
                // Without buffers, send the whole packet regardless of the requested length: the rest could not be
                // fetched.
                data: event.packet.data().to_vec(),
                userdata: event.state.userdata.clone(),
                continuation: Vec::new(),
            });
            (m.format, m.reason) = (conn.packet_in_format, reason);
            if let Some(continuation) = continuation.as_ref().filter(|_| m.format == Format::Nxt2) {
                let Some(bytes) = continuation.encode(conn.version(), conn.session.options()) else {
                    conn.counters.packet_ins_dropped += 1;
                    continue;
                };
                m.continuation = bytes;
            }
            let is_miss = why.reason == PacketInReason::NoMatch;
            conn.send_packet_in(event.state.packet.in_port.0, is_miss, m, now_ms);
        }
    }

    /// Reports tables whose room passed a threshold (OpenFlow 1.4 §7.4.5).
    pub(super) fn send_table_status(&mut self, ctx: &BridgeCtx<'_>) {
        for status in ctx.backer.events.take_statuses(ctx.bridge) {
            let asks = |c: &Conn| {
                c.version() >= Version::V14 && c.receives(AsyncKind::TableStatus, status.reason as u8)
            };
            for conn in self.conns.values_mut().filter(|c| asks(c)) {
                conn.send_async(&Message::TableStatus(status));
            }
        }
    }

    /// Reports removed rules to the controllers, oldest first, until `work` is used up or a receiver has no space. A
    /// receiver without progress for long is skipped and counted.
    pub(super) fn send_flow_removed(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        self.removed_again_ms = None;
        while *work > 0
            && let Some(event) = ctx.backer.events.take_removed(ctx.bridge)
        {
            let reason = event.reason.on_wire();
            let listens = |c: &Conn| c.receives(AsyncKind::FlowRemoved, reason as u8);
            let listeners = self.conns.values_mut().filter(|c| listens(c));
            if let Some(again_ms) = listeners.filter_map(|c| c.may_send_async(now_ms).err()).min() {
                ctx.backer.events.give_back(ctx.bridge, event);
                self.removed_again_ms = Some(again_ms);
                return;
            }
            *work -= 1;
            for conn in self.conns.values_mut().filter(|c| listens(c)) {
                let message = described(&event.rule, reason, now_ms);
                conn.send_async(&Message::FlowRemoved(message));
            }
        }
        if ctx.backer.events.removed_len(ctx.bridge) > 0 {
            self.removed_again_ms = Some(0);
        }
    }
}

fn described(rule: &Rule, reason: FlowRemovedReason, now_ms: u64) -> FlowRemoved {
    let (packet_count, byte_count) = rule.stats.counts();
    let age_ms = now_ms.saturating_sub(rule.created_ms);
    let matching = Box::new(rule.matching.unpack());
    FlowRemoved {
        // OpenFlow 1.0's own form cannot express every match.
        format: if openflow::match_fits_10(&matching) { Format::Standard } else { Format::Nxt },
        matching,
        cookie: rule.cookie,
        priority: rule.priority.clamp(0, i32::from(u16::MAX)) as u16,
        reason,
        table: rule.table,
        duration_s: (age_ms / 1000) as u32,
        duration_ns: (age_ms % 1000) as u32 * 1_000_000,
        idle_timeout_s: rule.timeouts.idle_s(),
        hard_timeout_s: rule.timeouts.hard_s(),
        packet_count,
        byte_count,
    }
}
