//! Dispatch of requests, and their permissions.

use super::conn::{Conn, Outcome};
use super::{BridgeCtx, Shared};
use dpif::{CtMatch, CtTupleMatch, Masked};
use flow::TableId;
use ofproto::flow_mod::{Mod, ModContext};
use openflow::msg::control::{ControllerRole, TableMiss, TableMod};
use openflow::msg::ct_flush::{CtFlush, CtFlushTuple};
use openflow::msg::flow_mod::FlowMod;
use openflow::msg::ipfix::IpfixStats;
use openflow::{ErrorKind, Kind, Message, Multi, Version};
use std::collections::BTreeMap;
use std::net::IpAddr;
use sync::lock;

/// A received request.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) xid: u32,
    /// All its bytes.
    pub(super) frame: &'a [u8],
    pub(super) now_ms: u64,
}

type Res = Result<(), ErrorKind>;

/// Requests forbidden to a slave (OpenFlow 1.3 §6.3.5).
pub(super) fn changes_the_switch(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FlowMod
            | Kind::PacketOut
            | Kind::PortMod
            | Kind::GroupMod
            | Kind::MeterMod
            | Kind::TableMod
            | Kind::BundleControl
            | Kind::BundleAdd
            | Kind::TlvTableMod
    )
}

impl Conn {
    /// Context of its flow-mods and packet-outs.
    pub(super) fn mod_context<'a>(
        &self,
        has_meter: &'a dyn Fn(u32) -> bool,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> ModContext<'a> {
        ModContext {
            version: self.version(),
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter,
            can: ctx.backer.features(),
        }
    }

    /// Executes a request and replies. On an error, the caller replies with it.
    pub(super) fn handle(
        &mut self,
        message: Message,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Res {
        if self.role == ControllerRole::Slave && changes_the_switch(message.kind()) {
            return Err(ErrorKind::BrcIsSlave);
        }
        self.dispatch(message, request.xid, request, shared, ctx, outcome)
    }

    fn dispatch(
        &mut self,
        message: Message,
        xid: u32,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Res {
        match message {
            Message::FlowMod(fm) => self.queue_flow_mod(fm, request),
            Message::PacketOut(m) => self.packet_out(&m, shared, ctx, request.now_ms),
            Message::BarrierRequest => self.begin_barrier(xid, ctx, request.now_ms),
            Message::PortMod(m) => self.port_mod(&m, ctx, outcome),
            Message::GroupMod(m) => self.queue_group_mod(m, request.frame),
            Message::MeterMod(m) => self.meter_mod(m, request, shared, ctx, outcome),
            Message::TableMod(m) => self.table_mod(m, ctx),
            Message::TableDescRequest => self.reply(&table_desc(ctx), xid),
            Message::QueueDescRequest(m) => self.queue_desc(m, xid, ctx),
            Message::BundleControl(m) => self.bundle_control(m, request, shared, ctx),
            Message::BundleAdd(m) => self.bundle_add(m, request, ctx),
            Message::TlvTableRequest => self.tlv_table(xid, ctx),
            Message::TlvTableMod(m) => self.tlv_table_mod(&m, ctx, outcome),
            Message::FlowMonitorCancel(id) => self.cancel_monitor(id),
            Message::FlowMonitorRequest(m) => self.flow_monitor(&m.entries, xid, ctx),
            // The peer's error about our message; no action is possible.
            Message::Error(_) => Ok(()),
            // NXT_FLOW_AGE: ages are always reported.
            Message::FlowAge => Ok(()),
            // The session has processed it.
            Message::FlowModTableId(_) => Ok(()),
            Message::Resume(m) => self.resume_translation(&m, shared, ctx, request.now_ms),
            // Both formats are always accepted.
            Message::SetFlowFormat(_) => Ok(()),
            Message::FeaturesRequest => self.features(xid, ctx),
            Message::GetConfigRequest => self.get_config(xid, ctx),
            Message::SetConfig(m) => self.set_config(m, ctx, outcome),
            Message::RoleRequest(m) => self.role_request(m, xid, shared, outcome),
            Message::GetAsyncRequest => self.reply(&Message::GetAsyncReply(self.asyncs), xid),
            Message::SetAsync(m) => self.set_async(m, outcome),
            Message::SetPacketInFormat(n) => self.set_packet_in_format(n),
            Message::CtFlushZone(zone) => {
                self.begin_flush(CtMatch { zone: Some(zone), ..CtMatch::default() }, request.frame, ctx)
            }
            Message::CtFlush(m) => self.begin_flush(selected_connections(&m), request.frame, ctx),
            Message::SetControllerId(id) => self.set_controller_id(id, outcome),
            Message::QueueGetConfigRequest(port) => self.queue_config(port, xid, ctx),
            Message::GroupStatsRequest(m) => self.group_stats(m, xid, ctx),
            Message::GroupDescRequest(m) => self.group_desc(m, xid, ctx),
            Message::GroupFeaturesRequest => self.group_features(xid),
            Message::MeterStatsRequest(id) => self.meter_stats(id, request, shared, ctx),
            Message::MeterConfigRequest(id) => self.meter_config(id, xid, shared),
            Message::MeterFeaturesRequest => {
                self.reply(&Message::MeterFeaturesReply(super::meters::features()), xid)
            }
            Message::DescRequest => self.reply(&Message::DescReply(ctx.desc.clone()), xid),
            Message::FlowStatsRequest(m) => self.flow_stats(&m, false, xid, ctx),
            Message::AggregateRequest(m) => self.flow_stats(&m, true, xid, ctx),
            Message::TableStatsRequest => self.table_stats(xid, ctx),
            Message::TableFeaturesRequest(m) => self.table_features(&m, request, ctx),
            Message::PortStatsRequest(port) => self.port_stats(port, request, shared, ctx),
            Message::PortDescRequest(port) => self.port_desc(port, xid, ctx),
            Message::QueueStatsRequest(m) => self.queue_stats(m, xid, ctx),
            Message::IpfixBridgeRequest => self.ipfix_bridge(xid, ctx),
            Message::IpfixFlowRequest => self.ipfix_flows(xid, ctx),
            // Not a request to a switch.
            Message::Hello(_)
            | Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(_)
            | Message::FlowRemoved(_)
            | Message::PortStatus(_)
            | Message::BarrierReply
            | Message::QueueGetConfigReply(_)
            | Message::RoleReply(_)
            | Message::GetAsyncReply(_)
            | Message::TlvTableReply(_)
            | Message::IpfixBridgeReply(_)
            | Message::IpfixFlowReply(_)
            | Message::DescReply(_)
            | Message::FlowStatsReply(_)
            | Message::AggregateReply(_)
            | Message::TableStatsReply(_)
            | Message::PortStatsReply(_)
            | Message::QueueStatsReply(_)
            | Message::GroupStatsReply(_)
            | Message::GroupDescReply(_)
            | Message::GroupFeaturesReply(_)
            | Message::MeterStatsReply(_)
            | Message::MeterConfigReply(_)
            | Message::MeterFeaturesReply(_)
            | Message::TableFeaturesReply(_)
            | Message::PortDescReply(_)
            | Message::TableDescReply(_)
            | Message::QueueDescReply(_)
            | Message::FlowMonitorReply(_)
            | Message::FlowMonitorPaused
            | Message::FlowMonitorResumed
            | Message::RequestForward(_)
            | Message::TableStatus(_)
            | Message::RoleStatus(_) => Err(ErrorKind::BrcBadType),
        }
    }

    /// Flow-mods are executed in order, a bounded number of rules at a time.
    fn queue_flow_mod(&mut self, fm: FlowMod, request: &Request<'_>) -> Res {
        self.mods.push(Mod::Flow(fm), request.frame);
        self.mods_bytes += request.frame.len();
        Ok(())
    }

    /// In OpenFlow 1.3 the configuration of a table is deprecated and has no effect (§7.3.3). A miss goes to the
    /// controllers of 1.1 and 1.2 only.
    fn table_mod(&self, m: TableMod, ctx: &BridgeCtx<'_>) -> Res {
        if m.table == TableId::INTERNAL {
            return Err(ErrorKind::TmfcEperm);
        }
        let ids = match m.table {
            TableId::ALL => 0..TableId::COUNT,
            table => table.0..table.0 + 1,
        };
        let ids = ids.map(TableId);
        match self.version() {
            Version::V11 | Version::V12 => {
                let miss = TableMiss::from_config(m.config).ok_or(ErrorKind::TmfcBadConfig)?;
                ctx.backer.change_bridge(ctx.bridge, |b| ids.for_each(|id| b.tables.set_miss(id, miss)));
            }
            // Nothing to configure.
            Version::V10 | Version::V13 => {}
            _ => drop(ctx.backer.change_bridge(ctx.bridge, |b| ids.for_each(|id| b.tables.modify(id, &m)))),
        }
        Ok(())
    }

    fn set_controller_id(&mut self, id: u16, outcome: &mut Outcome) -> Res {
        outcome.interest_changed = true;
        self.controller_id = id;
        Ok(())
    }

    fn ipfix_bridge(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Res {
        let counters = ipfix_counters(ctx).remove(&None).ok_or(ErrorKind::NxstNotConfigured)?;
        self.reply(&Message::IpfixBridgeReply(counters), xid)
    }

    fn ipfix_flows(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Res {
        let counters = ipfix_counters(ctx);
        let sets: Vec<_> = counters.into_iter().filter_map(|(set, counters)| set.map(|_| counters)).collect();
        match sets.is_empty() {
            true => Err(ErrorKind::NxstNotConfigured),
            false => self.reply(&Message::IpfixFlowReply(Multi::all(sets)), xid),
        }
    }

    fn meter_stats(&mut self, id: u32, request: &Request<'_>, shared: &Shared, ctx: &BridgeCtx<'_>) -> Res {
        let stats = shared.meters.stats(id, ctx, request.now_ms)?;
        self.reply(&Message::MeterStatsReply(Multi::all(stats)), request.xid)
    }

    fn meter_config(&mut self, id: u32, xid: u32, shared: &Shared) -> Res {
        self.reply(&Message::MeterConfigReply(Multi::all(shared.meters.config(id)?)), xid)
    }
}

/// The configuration of all tables.
fn table_desc(ctx: &BridgeCtx<'_>) -> Message {
    let bridge = ctx.bridge_view();
    let all = bridge.iter().flat_map(|b| (0..TableId::COUNT).map(|n| b.tables.desc(TableId(n))));
    Message::TableDescReply(Multi::all(all.collect()))
}

/// The connections that a request selects. The protocol, the same for both directions, is in each tuple with fields.
pub fn selected_connections(m: &CtFlush) -> CtMatch {
    let tuple = |t: &CtFlushTuple, proto: u8| CtTupleMatch {
        src: t.src.map(|a| IpAddr::from(a).to_canonical()),
        dst: t.dst.map(|a| IpAddr::from(a).to_canonical()),
        proto,
        src_port: t.src_port,
        dst_port: t.dst_port,
        icmp_id: t.icmp_id,
        icmp_type: t.icmp_type,
        icmp_code: t.icmp_code,
    };
    let of = |t: &CtFlushTuple| if *t == CtFlushTuple::default() { 0 } else { m.proto };
    let (mut orig, reply) = (tuple(&m.orig, of(&m.orig)), tuple(&m.reply, of(&m.reply)));
    if reply.proto == 0 {
        orig.proto = m.proto;
    }
    CtMatch {
        zone: m.zone,
        mark: m.mark.map(|(value, mask)| Masked { value, mask }),
        labels: m.labels.map(|(value, mask)| Masked { value, mask }),
        orig,
        reply,
    }
}

/// Counters of the bridge's exporters of IPFIX.
fn ipfix_counters(ctx: &BridgeCtx<'_>) -> BTreeMap<Option<u32>, IpfixStats> {
    let sampling = ctx.bridge_view().and_then(|bridge| bridge.sampling.clone());
    sampling.map(|sampling| lock(&sampling.counters.0).clone()).unwrap_or_default()
}
