//! Requests about the connection itself: features, configuration, role, asynchronous events.

use super::conn::{Conn, ConnKind, DEFAULT_MISS_SEND_LEN_BYTES, Outcome};
use super::{BridgeCtx, Shared, ports};
use flow::TableId;
use ofproto::view::FragHandling;
use openflow::msg::asyncs::{AsyncConfig, known_reasons};
use openflow::msg::control::{ControllerRole, Role, RoleReason, RoleStatus, SwitchConfig, SwitchFeatures};
use openflow::{ErrorKind, Format, Message, Version};

/// `OFPC_*`: flow, table, port and queue statistics, matching addresses in ARP (OpenFlow 1.0 §5.3.1).
const CAPABILITIES_10: u32 = 0xc7;
/// `OFPC_*`: flow, table, port, group and queue statistics (1.3 §7.3.1).
const CAPABILITIES_12: u32 = 0x4f;
/// `OFPC_BUNDLES` (1.5 §7.3.1).
const BUNDLES: u32 = 1 << 9;
/// `1 << OFPAT10_*` of all actions of OpenFlow 1.0.
const ACTIONS_10: u32 = 0xfff;
/// `OFPC_INVALID_TTL_TO_CONTROLLER`, to OpenFlow 1.2.
const INVALID_TTL_TO_CONTROLLER: u16 = 4;
/// `1 << OFPR_INVALID_TTL`.
const INVALID_TTL_BIT: u32 = 1 << 2;

/// Whether `OFPT_SET_CONFIG` has [`INVALID_TTL_TO_CONTROLLER`]: OpenFlow 1.3 removed it.
fn has_ttl_flag(version: Version) -> bool {
    version < Version::V13
}

/// The capabilities in the numbers of a version.
fn capabilities(version: Version) -> u32 {
    match version {
        Version::V10 => CAPABILITIES_10,
        // OpenFlow 1.1 has the bit of addresses in ARP too.
        Version::V11 => CAPABILITIES_12 | CAPABILITIES_10 & 0x80,
        Version::V12 | Version::V13 => CAPABILITIES_12,
        _ => CAPABILITIES_12 | BUNDLES,
    }
}

impl Conn {
    pub(super) fn features(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Result<(), ErrorKind> {
        let version = self.version();
        let ports = match ctx.bridge_view() {
            Some(b) if version < Version::V13 => {
                b.ports.flood_order().map(|p| ports::describe(p, version)).collect()
            }
            _ => Vec::new(),
        };
        let features = SwitchFeatures {
            datapath_id: ctx.datapath_id,
            n_buffers: 0,
            n_tables: TableId::COUNT,
            auxiliary_id: 0,
            capabilities: capabilities(version),
            actions: ACTIONS_10,
            ports,
        };
        self.reply(&Message::FeaturesReply(features), xid)
    }

    pub(super) fn get_config(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Result<(), ErrorKind> {
        let frags = ctx.bridge_view().map_or(FragHandling::default(), |b| b.frags);
        let ttl = has_ttl_flag(self.version()) && self.asyncs.packet_in[0] & INVALID_TTL_BIT != 0;
        let config = SwitchConfig {
            flags: frags.to_flags() | if ttl { INVALID_TTL_TO_CONTROLLER } else { 0 },
            miss_send_len_bytes: self.miss_send_len_bytes,
        };
        self.reply(&Message::GetConfigReply(config), xid)
    }

    /// Reassembly leaves fragment handling unchanged, which the client sees in the reply to a get-config. A slave
    /// changes only its own connection.
    pub(super) fn set_config(
        &mut self,
        m: SwitchConfig,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), ErrorKind> {
        outcome.interest_changed = true;
        let ttl_flag = has_ttl_flag(self.version());
        let known = FragHandling::MASK | if ttl_flag { INVALID_TTL_TO_CONTROLLER } else { 0 };
        if m.flags & !known != 0 {
            return Err(ErrorKind::ScfcBadFlags);
        }
        if let Some(wanted) = FragHandling::from_flags(m.flags)
            && self.role != ControllerRole::Slave
            && ctx.bridge_view().is_some_and(|b| b.frags != wanted)
        {
            ctx.backer.change_bridge(ctx.bridge, |b| b.frags = wanted);
        }
        if ttl_flag {
            let bit = if m.flags & INVALID_TTL_TO_CONTROLLER != 0 { INVALID_TTL_BIT } else { 0 };
            self.asyncs.packet_in[0] = self.asyncs.packet_in[0] & !INVALID_TTL_BIT | bit;
        }
        self.miss_send_len_bytes = m.miss_send_len_bytes;
        Ok(())
    }

    /// Assigns a role (1.3 §6.3.5): the last connection to request master is the only master.
    pub(super) fn role_request(
        &mut self,
        m: Role,
        xid: u32,
        shared: &mut Shared,
        outcome: &mut Outcome,
    ) -> Result<(), ErrorKind> {
        let elects = matches!(m.role, ControllerRole::Master | ControllerRole::Slave);
        if elects && m.format == Format::Standard {
            let id = m.generation_id;
            if shared.generation_id.is_some_and(|seen| (id.wrapping_sub(seen) as i64) < 0) {
                return Err(ErrorKind::RrfcStale);
            }
            shared.generation_id = Some(id);
        }
        if m.role != ControllerRole::NoChange {
            self.role = m.role;
            outcome.became_master = m.role == ControllerRole::Master;
            outcome.interest_changed = true;
        }
        let role = Role {
            format: m.format,
            role: self.role,
            generation_id: shared.generation_id.unwrap_or(u64::MAX),
        };
        self.reply(&Message::RoleReply(role), xid)
    }

    /// Reports its new role (OpenFlow 1.3 and later), whatever asynchronous messages it enabled, as in OVS.
    pub(super) fn send_role_status(&mut self, reason: RoleReason, generation_id: Option<u64>) {
        if self.version() < Version::V13 || self.is_over() {
            return;
        }
        let generation_id = generation_id.unwrap_or(u64::MAX);
        let status = RoleStatus { role: self.role, reason, generation_id };
        // Output that does not fit ends the session, as for a reply.
        let _encodes = self.reply(&Message::RoleStatus(status), 0);
    }

    /// As in OVS, a service connection thereby asks for asynchronous messages.
    pub(super) fn set_async(&mut self, m: AsyncConfig, outcome: &mut Outcome) -> Result<(), ErrorKind> {
        outcome.interest_changed = true;
        if self.kind == ConnKind::Service && self.miss_send_len_bytes == 0 {
            self.miss_send_len_bytes = DEFAULT_MISS_SEND_LEN_BYTES;
        }
        let known = known_reasons(self.version());
        let mut wanted = m;
        let parts = self.asyncs.masks().into_iter().zip(wanted.masks()).zip(known);
        for (kind, ((mine, theirs), known)) in parts.enumerate() {
            for (slave, (mine, theirs)) in mine.iter_mut().zip(theirs).enumerate() {
                if m.gives(kind, slave == 1) {
                    *mine = *theirs & known;
                }
            }
        }
        Ok(())
    }

    pub(super) fn set_packet_in_format(&mut self, n: u32) -> Result<(), ErrorKind> {
        self.packet_in_format = match n {
            0 => Format::Standard,
            1 => Format::Nxt,
            2 => Format::Nxt2,
            _ => return Err(ErrorKind::BrcEperm),
        };
        Ok(())
    }
}
