//! Dispatch of requests, and their permissions.

use super::conn::{Conn, Outcome};
use super::forward::Forward;
use super::{BridgeCtx, Shared};
use crate::flow_mod::Mod;
use flow::TableId;
use openflow::msg::control::{
    ControllerRole, TableMod, TlvTable, TlvTableCommand, TlvTableMod, table_config,
};
use openflow::msg::features::TableFeatures;
use openflow::msg::flow_mod::FlowMod;
use openflow::{ErrorKind, Kind, Message, Multi, Version};

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
fn changes_the_switch(kind: Kind) -> bool {
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

/// No tunnel option can be mapped: the space for them is 0.
const NO_TLV_TABLE: TlvTable = TlvTable { max_option_bytes: 0, max_fields: 0, maps: Vec::new() };

impl Conn {
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
            Message::BarrierRequest => self.reply(&Message::BarrierReply, xid),
            Message::PortMod(m) => self.port_mod(&m, ctx, outcome),
            Message::GroupMod(m) => self.queue_group_mod(m, request.frame),
            Message::MeterMod(m) => {
                self.meter_mod(&m, shared, ctx, request.now_ms)?;
                outcome.forwards.push(Forward::Meter(m, xid));
                Ok(())
            }
            Message::TableMod(m) => table_mod(m, self.version()),
            Message::TableDescRequest => self.reply(&table_desc(), xid),
            Message::QueueDescRequest(m) => self.queue_desc(m, xid, ctx),
            Message::BundleControl(m) => self.bundle_control(m, request, shared, ctx),
            Message::BundleAdd(m) => self.bundle_add(m, request, shared, ctx),
            Message::TlvTableRequest => self.reply(&Message::TlvTableReply(NO_TLV_TABLE), xid),
            Message::TlvTableMod(m) => tlv_table_mod(&m),
            Message::FlowMonitorCancel(id) => self.cancel_monitor(id),
            Message::FlowMonitorRequest(m) => self.flow_monitor(&m.entries, xid, ctx),
            // The peer's error about our message; no action is possible.
            Message::Error(_) => Ok(()),
            // NXT_FLOW_AGE: ages are always reported.
            Message::FlowAge => Ok(()),
            // The session has processed it.
            Message::FlowModTableId(_) => Ok(()),
            // Both formats are always accepted.
            Message::SetFlowFormat(_) => Ok(()),
            Message::FeaturesRequest => self.features(xid, ctx),
            Message::GetConfigRequest => self.get_config(xid, ctx),
            Message::SetConfig(m) => self.set_config(m, ctx, outcome),
            Message::RoleRequest(m) => self.role_request(m, xid, shared, outcome),
            Message::GetAsyncRequest => self.reply(&Message::GetAsyncReply(self.asyncs), xid),
            Message::SetAsync(m) => self.set_async(m, outcome),
            Message::SetPacketInFormat(n) => self.set_packet_in_format(n),
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
            Message::TableFeaturesRequest(m) => self.table_features(&m, xid),
            Message::PortStatsRequest(port) => self.port_stats(port, request, shared, ctx),
            Message::PortDescRequest(port) => self.port_desc(port, xid, ctx),
            Message::QueueStatsRequest(m) => self.queue_stats(m, xid, ctx),
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
            | Message::RoleStatus(_) => Err(ErrorKind::BrcBadType),
        }
    }

    /// Flow-mods are executed in order, a bounded number of rules at a time.
    fn queue_flow_mod(&mut self, fm: FlowMod, request: &Request<'_>) -> Res {
        self.mods.push(Mod::Flow(fm), request.frame);
        self.mods_bytes += request.frame.len();
        Ok(())
    }

    fn set_controller_id(&mut self, id: u16, outcome: &mut Outcome) -> Res {
        outcome.interest_changed = true;
        self.controller_id = id;
        Ok(())
    }

    fn meter_stats(&mut self, id: u32, request: &Request<'_>, shared: &Shared, ctx: &BridgeCtx<'_>) -> Res {
        let stats = shared.meters.stats(id, ctx, request.now_ms)?;
        self.reply(&Message::MeterStatsReply(Multi::all(stats)), request.xid)
    }

    fn meter_config(&mut self, id: u32, xid: u32, shared: &Shared) -> Res {
        self.reply(&Message::MeterConfigReply(Multi::all(shared.meters.config(id)?)), xid)
    }

    /// A request with entries changes the tables.
    fn table_features(&mut self, m: &Multi<TableFeatures>, xid: u32) -> Res {
        if !m.entries.is_empty() || m.more {
            return Err(ErrorKind::TffcEperm);
        }
        self.reply(super::table_features::reply(self.version()), xid)
    }
}

/// In OpenFlow 1.3 the configuration of a table is deprecated and has no effect (§7.3.3). A miss goes to the controllers
/// of 1.1 and 1.2 only; tables neither evict rules nor report their room.
fn table_mod(m: TableMod, version: Version) -> Res {
    if m.table != TableId::ALL && m.table.0 >= TableId::COUNT {
        return Err(ErrorKind::TmfcBadTable);
    }
    let unsupported = match version {
        Version::V11 | Version::V12 => table_config::MISS_MASK,
        Version::V10 | Version::V13 => 0,
        _ => table_config::EVICTION | table_config::VACANCY_EVENTS,
    };
    if m.config & unsupported == 0 { Ok(()) } else { Err(ErrorKind::TmfcBadConfig) }
}

/// `OFPTMPEF14_*`, as OVS describes a table that does not evict: other, importance, lifetime.
const EVICTION_FLAGS: u32 = 7;

/// The configuration of all tables.
fn table_desc() -> Message {
    let of_table =
        |n| TableMod { table: TableId(n), config: 0, eviction: Some(EVICTION_FLAGS), vacancy: None };
    Message::TableDescReply(Multi::all((0..TableId::COUNT).map(of_table).collect()))
}

fn tlv_table_mod(m: &TlvTableMod) -> Res {
    match m.command {
        TlvTableCommand::Clear => Ok(()),
        TlvTableCommand::Add => Err(ErrorKind::NxttmfcTableFull),
        TlvTableCommand::Delete => Err(ErrorKind::NxttmfcBadFieldIdx),
    }
}
