//! Commands about groups.

use super::flows::read_file;
use super::options::Options;
use super::{Run, entries, json};
use anyhow::{Result, anyhow, bail};
use flow::Protocols;
use flow::text::PortNames;
use flow::text::number::parse_u128;
use ofp_actions::protocols_of;
use openflow::msg::group::{GROUP_ALL, GroupMod, GroupModCommand, GroupRequest};
use openflow::text::{format_group, parse_group_mod};
use openflow::{Message, Version};

/// The flow formats that carry a group.
pub(super) fn protocols(m: &GroupMod) -> Protocols {
    m.group.buckets.iter().fold(Protocols::ANY, |all, bucket| all & protocols_of(&bucket.actions))
}

/// The message for a parsed group.
///
/// # Errors
/// The connection has no flow format that carries it.
pub(super) fn message(run: &Run<'_>, mut m: GroupMod) -> Result<Message> {
    run.needs_one_of(protocols(&m))?;
    m.format = run.format();
    Ok(Message::GroupMod(m))
}

fn send(run: &mut Run<'_>, text: &str, command: GroupModCommand) -> Result<String> {
    let message = message(run, parse_group_mod(text, command, &run.names)?)?;
    run.change(vec![message])
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
        let m = parse_group_mod(rest, command, &run.names)
            .map_err(|error| anyhow!("{path}:{}: {error}", n + 1))?;
        messages.push(message(run, m)?);
    }
    run.change(messages)
}

/// The command in front of a line of a file, and the rest.
pub(super) fn command_of<'a>(line: &'a str, options: &Options) -> (GroupModCommand, &'a str) {
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
pub(super) fn asked(text: &str) -> Result<GroupRequest> {
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
        run.connection.gather(&Message::GroupDescRequest(request), entries!(GroupDescReply))?;
    // Only OpenFlow 1.5 asks for one group.
    groups.retain(|group| request.group == GROUP_ALL || group.id == request.group);
    if run.options.json {
        return Ok(json::groups(&groups, &run.names));
    }
    let version = run.connection.version();
    let with_ids = version == Version::V10 || version >= Version::V15;
    let title = format!("{} (xid={xid:#x}):\n", run.title("GROUP_DESC", true));
    let line = |group| format!(" {}\n", format_group(group, with_ids, &run.names as &dyn PortNames));
    Ok(groups.iter().fold(title, |out, group| out + &line(group)))
}

pub(super) fn dump_group_stats(run: &mut Run<'_>, text: &str) -> Result<String> {
    let request = Message::GroupStatsRequest(asked(text)?);
    run.dump_or(&request, entries!(GroupStatsReply), |all, _| json::group_stats(all))
}

pub(super) fn dump_group_features(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.dump(&Message::GroupFeaturesRequest)
}
