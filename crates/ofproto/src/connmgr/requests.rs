//! Which function answers which request, and who may ask it.

use super::conn::{Conn, Outcome};
use super::{BridgeCtx, Shared};
use flow::TableId;
use openflow::msg::control::{ControllerRole, TableMod, TlvTable, TlvTableCommand, TlvTableMod};
use openflow::msg::group::{GroupFeatures, GroupMod, GroupModCommand};
use openflow::{ErrorKind, Kind, Message, Multi, Version};

/// A request as it came.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) xid: u32,
    /// All its bytes.
    pub(super) frame: &'a [u8],
    pub(super) now_ms: u64,
}

type Res = Result<(), ErrorKind>;

/// What a slave may not ask (OpenFlow 1.3 §6.3.5).
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

impl Conn {
    /// Carries a request out and answers it. The error is to be answered with.
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
        match message {
            Message::FlowMod(fm) => {
                self.mods.push(fm, request.frame);
                self.mods_bytes += request.frame.len();
                Ok(())
            }
            Message::PacketOut(m) => self.packet_out(&m, shared, ctx, request.now_ms),
            Message::BarrierRequest => self.reply(&Message::BarrierReply, request.xid),
            Message::PortMod(m) => self.port_mod(&m, ctx, outcome),
            Message::GroupMod(m) => group_mod(&m),
            Message::MeterMod(m) => shared.meters.change(&m, ctx, request.now_ms),
            Message::TableMod(m) => table_mod(m),
            Message::BundleControl(m) => self.bundle_control(m, request, shared, ctx),
            Message::BundleAdd(m) => self.bundle_add(&m, request),
            Message::TlvTableRequest => {
                // No tunnel option can be mapped: there is room for none.
                let table = TlvTable { max_option_bytes: 0, max_fields: 0, maps: Vec::new() };
                self.reply(&Message::TlvTableReply(table), request.xid)
            }
            Message::TlvTableMod(m) => tlv_table_mod(&m),
            // Nobody monitors flows, so there is no monitor of that id.
            Message::FlowMonitorCancel(_) => Err(ErrorKind::MofcUnknownMonitor),
            Message::FlowMonitorRequest(_) => Err(ErrorKind::BrcBadExpType),
            // What the peer says of our messages; there is nothing to do about it.
            Message::Error(_) => Ok(()),
            // NXT_FLOW_AGE: ages are always told.
            Message::FlowAge => Ok(()),
            // The session has learned it.
            Message::FlowModTableId(_) => Ok(()),
            // Both formats are always understood.
            Message::SetFlowFormat(_) => Ok(()),
            message => self.configure_or_ask(message, request, shared, ctx, outcome),
        }
    }

    /// The rest of [`Conn::handle`]: requests about the connection, and questions.
    fn configure_or_ask(
        &mut self,
        message: Message,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Res {
        let xid = request.xid;
        match message {
            Message::FeaturesRequest => self.features(xid, ctx),
            Message::GetConfigRequest => self.get_config(xid, ctx),
            Message::SetConfig(m) => {
                outcome.interest_changed = true;
                self.set_config(m, ctx)
            }
            Message::RoleRequest(m) => self.role_request(m, xid, shared, outcome),
            Message::GetAsyncRequest => {
                let asyncs = self.asyncs;
                self.reply(&Message::GetAsyncReply(asyncs), xid)
            }
            Message::SetAsync(m) => {
                outcome.interest_changed = true;
                self.set_async(m)
            }
            Message::SetPacketInFormat(n) => self.set_packet_in_format(n),
            Message::SetControllerId(id) => {
                outcome.interest_changed = true;
                self.controller_id = id;
                Ok(())
            }
            Message::QueueGetConfigRequest(port) => self.queue_config(port, xid, ctx),
            Message::GroupStatsRequest(_) => {
                self.reply(&Message::GroupStatsReply(Multi::all(Vec::new())), xid)
            }
            Message::GroupDescRequest(_) => self.reply(&Message::GroupDescReply(Multi::all(Vec::new())), xid),
            Message::GroupFeaturesRequest => {
                // There are no groups, and room for none.
                self.reply(&Message::GroupFeaturesReply(GroupFeatures::default()), xid)
            }
            Message::MeterStatsRequest(id) => {
                let reply =
                    Message::MeterStatsReply(Multi::all(shared.meters.stats(id, ctx, request.now_ms)?));
                self.reply(&reply, xid)
            }
            Message::MeterConfigRequest(id) => {
                let reply = Message::MeterConfigReply(Multi::all(shared.meters.config(id)?));
                self.reply(&reply, xid)
            }
            Message::MeterFeaturesRequest => {
                self.reply(&Message::MeterFeaturesReply(super::meters::features()), xid)
            }
            message => self.ask(message, request, shared, ctx),
        }
    }

    /// Questions about rules, tables and ports. What is no question to a switch is refused.
    fn ask(
        &mut self,
        message: Message,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
    ) -> Res {
        let xid = request.xid;
        match message {
            Message::DescRequest => self.reply(&Message::DescReply(ctx.desc.clone()), xid),
            Message::FlowStatsRequest(m) => self.flow_stats(&m, false, xid, ctx),
            Message::AggregateRequest(m) => self.flow_stats(&m, true, xid, ctx),
            Message::TableStatsRequest => self.table_stats(xid, ctx),
            Message::TableFeaturesRequest(m) => {
                // A request with entries asks to change the tables.
                if !m.entries.is_empty() || m.more {
                    return Err(ErrorKind::TffcEperm);
                }
                self.reply(super::table_features::reply(), xid)
            }
            Message::PortStatsRequest(port) => self.port_stats(port, request, shared, ctx),
            Message::PortDescRequest => self.port_desc(xid, ctx),
            Message::QueueStatsRequest(m) => self.queue_stats(m, xid, ctx),
            _ => Err(ErrorKind::BrcBadType),
        }
    }
}

/// The group table has no room; what deletes finds nothing to delete.
fn group_mod(m: &GroupMod) -> Res {
    match m.command {
        GroupModCommand::Delete => Ok(()),
        GroupModCommand::Add | GroupModCommand::AddOrModify => Err(ErrorKind::GmfcOutOfGroups),
        _ => Err(ErrorKind::GmfcUnknownGroup),
    }
}

/// In OpenFlow 1.3 the configuration of a table is deprecated and has no effect (§7.3.3).
fn table_mod(m: TableMod) -> Res {
    let known = m.table == TableId::ALL || m.table.0 < TableId::COUNT;
    if known { Ok(()) } else { Err(ErrorKind::TmfcBadTable) }
}

fn tlv_table_mod(m: &TlvTableMod) -> Res {
    match m.command {
        TlvTableCommand::Clear => Ok(()),
        TlvTableCommand::Add => Err(ErrorKind::NxttmfcTableFull),
        TlvTableCommand::Delete => Err(ErrorKind::NxttmfcBadFieldIdx),
    }
}

/// Whether the version is 1.0, whose structures differ from those of all later ones.
pub(super) fn is_old(version: Version) -> bool {
    version == Version::V10
}
