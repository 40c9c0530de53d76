//! Groups, their counters and features.

use super::{Printer, duration, put};
use crate::msg::group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, GROUP_ALL, Group, GroupFeatures, GroupMod, GroupModCommand,
    GroupStats,
};
use crate::text::format_group;
use crate::{Format, Multi, Version};
use std::fmt::Write as _;

/// `OFPAT_*` of OpenFlow 1.0: bits and names, in the order of ovs-ofctl.
const ACTIONS_10: &[(u32, &str)] = &[
    (0, "output"),
    (11, "enqueue"),
    (1, "set_vlan_vid"),
    (2, "set_vlan_pcp"),
    (3, "strip_vlan"),
    (4, "mod_dl_src"),
    (5, "mod_dl_dst"),
    (6, "mod_nw_src"),
    (7, "mod_nw_dst"),
    (8, "mod_nw_tos"),
    (9, "mod_tp_src"),
    (10, "mod_tp_dst"),
];
/// Actions of later versions.
const ACTIONS_11: &[(u32, &str)] = &[
    (0, "output"),
    (22, "group"),
    (1, "set_vlan_vid"),
    (2, "set_vlan_pcp"),
    (25, "set_field"),
    (18, "strip_vlan"),
    (17, "push_vlan"),
    (3, "mod_dl_src"),
    (4, "mod_dl_dst"),
    (5, "mod_nw_src"),
    (6, "mod_nw_dst"),
    (7, "mod_nw_tos"),
    (8, "mod_nw_ecn"),
    (23, "mod_nw_ttl"),
    (9, "mod_tp_src"),
    (10, "mod_tp_dst"),
    (24, "dec_ttl"),
    (13, "set_mpls_label"),
    (14, "set_mpls_tc"),
    (15, "set_mpls_ttl"),
    (16, "dec_mpls_ttl"),
    (19, "push_mpls"),
    (20, "pop_mpls"),
    (21, "set_queue"),
];

/// Since OpenFlow 1.2 `set_field` replaces these.
const SET_11: std::ops::RangeInclusive<u32> = 1..=14;

/// Names of the actions whose `OFPAT_*` bits are set.
pub(super) fn action_names(bits: u32, version: Version) -> String {
    let names = if version == Version::V10 { ACTIONS_10 } else { ACTIONS_11 };
    let exists = |bit: u32| match version {
        Version::V10 => true,
        Version::V11 => bit != 25,
        _ => !SET_11.contains(&bit),
    };
    let has = |(bit, _): &&(u32, &'static str)| bits >> bit & 1 != 0 && exists(*bit);
    let known: Vec<&str> = names.iter().filter(has).map(|(_, name)| *name).collect();
    if known.is_empty() { "(none)".to_string() } else { known.join(" ") }
}

/// A group's number in a request.
fn asked(id: u32) -> String {
    if id == GROUP_ALL { "ALL".to_string() } else { id.to_string() }
}

impl Printer<'_> {
    /// Whether buckets have ids: OpenFlow 1.1 to 1.4 lack them, but for Nicira's form.
    fn bucket_ids(&self, format: Format) -> bool {
        self.version == Version::V10 || self.version >= Version::V15 || format != Format::Standard
    }

    fn group(&mut self, group: &Group, format: Format) {
        self.out += &format_group(group, self.bucket_ids(format), self.how.names);
    }

    pub(super) fn group_mod(&mut self, m: &GroupMod) {
        let command = match m.command {
            GroupModCommand::Add => "ADD",
            GroupModCommand::Modify => "MOD",
            GroupModCommand::AddOrModify => "ADD_OR_MOD",
            GroupModCommand::Delete => "DEL",
            GroupModCommand::InsertBucket => "INSERT_BUCKET",
            GroupModCommand::RemoveBucket => "REMOVE_BUCKET",
        };
        put!(self.out, "\n {command} ");
        let place = match m.command {
            GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket => Some(m.command_bucket_id),
            GroupModCommand::Add
            | GroupModCommand::Modify
            | GroupModCommand::AddOrModify
            | GroupModCommand::Delete => None,
        };
        let Some(place) = place else { return self.group(&m.group, m.format) };
        let place = match place {
            BUCKET_FIRST => "first".to_string(),
            BUCKET_LAST => "last".to_string(),
            BUCKET_ALL => "all".to_string(),
            id => id.to_string(),
        };
        put!(self.out, "command_bucket_id:{place},group_id={}", m.group.id);
        // The type of the group stays as it is, and has no text.
        let whole = format_group(&m.group, self.bucket_ids(m.format), self.how.names);
        if let Some(at) = whole.find(",bucket=") {
            self.out += &whole[at..];
        }
    }

    pub(super) fn group_request(&mut self, group: u32) {
        put!(self.out, " group_id={}", asked(group));
    }

    pub(super) fn group_desc(&mut self, m: &Multi<Group>) {
        for group in &m.entries {
            self.out.push_str("\n ");
            self.group(group, Format::Standard);
        }
        self.out.push('\n');
    }

    pub(super) fn group_stats(&mut self, m: &Multi<GroupStats>) {
        for group in &m.entries {
            put!(self.out, "\n group_id={},", group.id);
            if self.version == Version::V10 || self.version >= Version::V13 {
                put!(self.out, "duration={},", duration(group.duration_s, group.duration_ns));
            }
            put!(
                self.out,
                "ref_count={},packet_count={},byte_count={}",
                group.ref_count,
                group.packet_count,
                group.byte_count
            );
            for (n, (packets, bytes)) in group.buckets.iter().enumerate() {
                put!(self.out, ",bucket{n}:packet_count={packets},byte_count={bytes}");
            }
        }
        self.out.push('\n');
    }

    pub(super) fn group_features(&mut self, f: &GroupFeatures) {
        put!(
            self.out,
            "\n Group table:\n    Types:  {:#x}\n    Capabilities:  {:#x}\n",
            f.types,
            f.capabilities
        );
        for (n, name) in ["all", "select", "indirect", "fast failover"].iter().enumerate() {
            if f.types >> n & 1 != 0 {
                let actions = action_names(f.actions[n], self.version);
                put!(
                    self.out,
                    "    {name} group:\n       max_groups={:#x}\n       actions: {actions}\n",
                    f.max_groups[n]
                );
            }
        }
    }
}
