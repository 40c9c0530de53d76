//! Requests about groups: descriptions, statistics, features.
//!
//! The groups of a reply are those of one moment, sent piece by piece as the reader reads.

use super::BridgeCtx;
use super::conn::Conn;
use super::stats::Dump;
use ofp_actions::Reference;
use ofproto::flow_mod::Mod;
use ofproto::group::{Group, MAX_GROUPS};
use openflow::msg::group::{GROUP_ALL, GroupFeatures, GroupMod, GroupRequest, GroupStats};
use openflow::{ErrorKind, Message, Multi, Version};
use std::sync::Arc;

/// Buckets described in one piece.
const PIECE_BUCKETS: usize = 1024;
/// `OFPGFC_SELECT_WEIGHT`, `OFPGFC_SELECT_LIVENESS`, `OFPGFC_CHAINING`.
const CAPABILITIES: u32 = 0x7;
/// `OFPAT_*` of OpenFlow 1.0, as bits: 0 to 11.
const ACTIONS_10: u32 = 0xfff;
/// `OFPAT_*` of all later versions, as bits: output, VLAN tags, MPLS labels, queue, group, TTL.
const ACTIONS: u32 = 1 | 0x3 << 15 | 0xff << 17;
/// Actions of OpenFlow 1.1 alone, which set fields.
const SETS_11: u32 = 0x7fe | 0x3 << 13;
/// `OFPAT_SET_FIELD`, since OpenFlow 1.2.
const SET_FIELD: u32 = 1 << 25;

/// A reply in progress.
pub(super) struct GroupDump {
    /// Groups left, the next one last.
    left: Vec<Arc<Group>>,
    xid: u32,
    content: Content,
}

#[derive(Clone, Copy)]
enum Content {
    Desc,
    Stats,
}

impl GroupDump {
    /// Whether groups are left.
    pub(super) fn has_more(&self) -> bool {
        !self.left.is_empty()
    }

    /// The next message, and its work in buckets.
    pub(super) fn next_piece(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) -> (Message, usize) {
        let (mut groups, mut work) = (Vec::new(), 0);
        while work < PIECE_BUCKETS
            && let Some(group) = self.left.pop()
        {
            work += 1 + group.buckets.len();
            groups.push(group);
        }
        let more = self.has_more();
        let message = match self.content {
            Content::Desc => {
                let entries = groups.iter().map(|g| g.desc()).collect();
                Message::GroupDescReply(Multi { more, ..Multi::all(entries) })
            }
            Content::Stats => {
                let entries = groups.iter().map(|g| stats_of(g, ctx, now_ms)).collect();
                Message::GroupStatsReply(Multi { more, ..Multi::all(entries) })
            }
        };
        (message, work)
    }

    /// The xid of the request.
    pub(super) fn xid(&self) -> u32 {
        self.xid
    }
}

fn stats_of(group: &Group, ctx: &BridgeCtx<'_>, now_ms: u64) -> GroupStats {
    let users = |b: Arc<ofproto::view::BridgeView>| b.tables.len_of_users(Reference::Group(group.id()));
    let age_ms = now_ms.saturating_sub(group.created_ms);
    let (packet_count, byte_count) = group.counter.counts();
    GroupStats {
        id: group.id(),
        ref_count: ctx.bridge_view().map_or(0, users) as u32,
        packet_count,
        byte_count,
        duration_s: (age_ms / 1000) as u32,
        duration_ns: (age_ms % 1000) as u32 * 1_000_000,
        buckets: group.buckets.iter().map(|b| b.counter.counts()).collect(),
    }
}

impl Conn {
    /// Group-mods are executed in order with flow-mods.
    pub(super) fn queue_group_mod(&mut self, gm: GroupMod, frame: &[u8]) -> Result<(), ErrorKind> {
        self.mods_bytes += frame.len();
        self.mods.push(Mod::Group(gm), frame);
        Ok(())
    }

    pub(super) fn group_desc(
        &mut self,
        m: GroupRequest,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        self.begin_group_dump(m, xid, ctx, Content::Desc)
    }

    pub(super) fn group_stats(
        &mut self,
        m: GroupRequest,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        self.begin_group_dump(m, xid, ctx, Content::Stats)
    }

    /// Begins a reply about a group, or all; nothing about an unknown one.
    fn begin_group_dump(
        &mut self,
        m: GroupRequest,
        xid: u32,
        ctx: &BridgeCtx<'_>,
        content: Content,
    ) -> Result<(), ErrorKind> {
        let mut left = ctx.bridge_view().map_or_else(Vec::new, |b| match m.group {
            GROUP_ALL => b.tables.groups().all(),
            id => b.tables.groups().get(id).cloned().into_iter().collect(),
        });
        left.reverse();
        self.dump = Some(Dump::Groups(GroupDump { left, xid, content }));
        Ok(())
    }

    pub(super) fn group_features(&mut self, xid: u32) -> Result<(), ErrorKind> {
        let actions = match self.version() {
            Version::V10 => ACTIONS_10,
            Version::V11 => ACTIONS | SETS_11,
            _ => ACTIONS | SET_FIELD,
        };
        let features = GroupFeatures {
            types: 0xf,
            capabilities: CAPABILITIES,
            max_groups: [MAX_GROUPS as u32; 4],
            actions: [actions; 4],
        };
        self.reply(&Message::GroupFeaturesReply(features), xid)
    }
}
