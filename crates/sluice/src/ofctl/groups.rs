//! Commands about groups.

use super::{Options, Run, read_file};
use anyhow::{Result, anyhow, bail};
use flow::text::PortNames;
use flow::text::number::parse_u128;
use openflow::msg::group::{GROUP_ALL, GroupFeatures, GroupModCommand, GroupRequest, GroupStats};
use openflow::text::{format_group, parse_group_mod};
use openflow::{Message, Version};
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
/// Those of later versions.
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

fn send(run: &mut Run<'_>, text: &str, command: GroupModCommand) -> Result<String> {
    let mut m = parse_group_mod(text, command, &run.names)?;
    m.format = run.format();
    run.connection.carry_out(&[Message::GroupMod(m)])?;
    Ok(String::new())
}

pub(super) fn add_group(run: &mut Run<'_>, text: &str) -> Result<String> {
    if text == "-" { add_groups(run, text) } else { send(run, text, GroupModCommand::Add) }
}

/// One group a line, with its command in front if it is not an addition.
pub(super) fn add_groups(run: &mut Run<'_>, path: &str) -> Result<String> {
    let text = read_file(path)?;
    let mut messages = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (command, rest) = command_of(line, run.options);
        let mut m = parse_group_mod(rest, command, &run.names)
            .map_err(|error| anyhow!("{path}:{}: {error}", n + 1))?;
        m.format = run.format();
        messages.push(Message::GroupMod(m));
    }
    run.connection.carry_out(&messages)?;
    Ok(String::new())
}

/// The command in front of a line of a file, and the rest.
fn command_of<'a>(line: &'a str, options: &Options) -> (GroupModCommand, &'a str) {
    let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let command = match word {
        "add" => GroupModCommand::Add,
        "modify" => modification(options),
        "add_or_mod" => GroupModCommand::AddOrModify,
        "delete" => GroupModCommand::Delete,
        "insert_bucket" => GroupModCommand::InsertBucket,
        "remove_bucket" => GroupModCommand::RemoveBucket,
        _ => return (GroupModCommand::Add, line),
    };
    (command, rest)
}

fn modification(options: &Options) -> GroupModCommand {
    if options.may_create { GroupModCommand::AddOrModify } else { GroupModCommand::Modify }
}

pub(super) fn mod_group(run: &mut Run<'_>, text: &str) -> Result<String> {
    let command = modification(run.options);
    send(run, text, command)
}

pub(super) fn del_groups(run: &mut Run<'_>, text: &str) -> Result<String> {
    send(run, text, GroupModCommand::Delete)
}

pub(super) fn insert_buckets(run: &mut Run<'_>, text: &str) -> Result<String> {
    send(run, text, GroupModCommand::InsertBucket)
}

pub(super) fn remove_buckets(run: &mut Run<'_>, text: &str) -> Result<String> {
    send(run, text, GroupModCommand::RemoveBucket)
}

/// A group's number, after `group_id=` or alone; all without one.
fn asked(text: &str) -> Result<GroupRequest> {
    let number = text.strip_prefix("group_id=").unwrap_or(text);
    let group = match number {
        "" | "all" => GROUP_ALL,
        _ => match parse_u128(number) {
            Ok(id) if id <= 0xffff_ff00 => id as u32,
            _ => bail!("{text}: invalid group id"),
        },
    };
    Ok(GroupRequest { group })
}

pub(super) fn dump_groups(run: &mut Run<'_>, text: &str) -> Result<String> {
    let request = asked(text)?;
    let (xid, mut groups) =
        run.connection.gather(&Message::GroupDescRequest(request), |message| match message {
            Message::GroupDescReply(multi) => Some((multi.entries, multi.more)),
            _ => None,
        })?;
    // Only OpenFlow 1.5 asks for one group.
    groups.retain(|group| request.group == GROUP_ALL || group.id == request.group);
    let version = run.connection.version();
    let with_ids = version == Version::V10 || version >= Version::V15;
    let title = format!("{} (xid={xid:#x}):\n", run.title("GROUP_DESC", true));
    let line = |group| format!(" {}\n", format_group(group, with_ids, &run.names as &dyn PortNames));
    Ok(groups.iter().fold(title, |out, group| out + &line(group)))
}

pub(super) fn dump_group_stats(run: &mut Run<'_>, text: &str) -> Result<String> {
    let (xid, groups) =
        run.connection.gather(&Message::GroupStatsRequest(asked(text)?), |message| match message {
            Message::GroupStatsReply(multi) => Some((multi.entries, multi.more)),
            _ => None,
        })?;
    let version = run.connection.version();
    let title = format!("{} (xid={xid:#x}):\n", run.title("GROUP", true));
    Ok(groups.iter().fold(title, |out, group| out + &stats(group, version)))
}

fn stats(group: &GroupStats, version: Version) -> String {
    let mut out = format!(" group_id={},", group.id);
    if version == Version::V10 || version >= Version::V13 {
        let ms = group.duration_ns / 1_000_000;
        let fraction =
            if ms == 0 { String::new() } else { format!(".{ms:03}").trim_end_matches('0').to_string() };
        let _ = write!(out, "duration={}{fraction}s,", group.duration_s);
    }
    let _ = write!(
        out,
        "ref_count={},packet_count={},byte_count={}",
        group.ref_count, group.packet_count, group.byte_count
    );
    for (n, (packets, bytes)) in group.buckets.iter().enumerate() {
        let _ = write!(out, ",bucket{n}:packet_count={packets},byte_count={bytes}");
    }
    out + "\n"
}

pub(super) fn dump_group_features(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (xid, Message::GroupFeaturesReply(features)) = run.connection.ask(&Message::GroupFeaturesRequest)?
    else {
        bail!("the switch gave an answer of another kind");
    };
    let version = run.connection.version();
    let prefix = if version < Version::V12 { "NXST" } else { "OFPST" };
    Ok(format!(
        "{prefix}_GROUP_FEATURES reply{} (xid={xid:#x}):\n{}",
        run.connection.version_text(),
        features_text(&features, version)
    ))
}

fn features_text(f: &GroupFeatures, version: Version) -> String {
    let names = if version == Version::V10 { ACTIONS_10 } else { ACTIONS_11 };
    let mut out =
        format!(" Group table:\n    Types:  {:#x}\n    Capabilities:  {:#x}\n", f.types, f.capabilities);
    for (n, name) in ["all", "select", "indirect", "fast failover"].iter().enumerate() {
        if f.types >> n & 1 == 0 {
            continue;
        }
        let has = |(bit, _): &&(u32, &'static str)| f.actions[n] >> bit & 1 != 0;
        let actions: Vec<&str> = names.iter().filter(has).map(|(_, name)| *name).collect();
        let _ = writeln!(
            out,
            "    {name} group:\n       max_groups={:#x}\n       actions: {}",
            f.max_groups[n],
            actions.join(" ")
        );
    }
    out
}
