//! `bundle`: the lines of a file in one transaction.

use anyhow::{Result, anyhow, bail};
use ofp_actions::text::{FlowModCommand, FlowModText, parse_flow_mod};
use openflow::Message;
use openflow::msg::group::GroupMod;
use openflow::msg::packet::PacketOut;
use openflow::text::parse_group_mod;

use super::connection::Names;
use super::flows::{flow_mod, parse_packet_out, read_file};
use super::options::Options;
use super::{Run, groups};
use crate::hint::hint;

/// Kinds of lines.
const KINDS: [&str; 3] = ["flow", "group", "packet-out"];
/// Commands of rules, in front of a line; an addition needs none.
const FLOW_COMMANDS: [(&str, FlowModCommand); 6] = [
    ("add", FlowModCommand::Add),
    ("modify", FlowModCommand::Modify),
    ("modify_strict", FlowModCommand::ModifyStrict),
    ("delete", FlowModCommand::Delete),
    ("delete_strict", FlowModCommand::DeleteStrict),
    ("del", FlowModCommand::Delete),
];

/// A line, read.
pub(super) enum Line {
    Rule(Box<FlowModText>),
    Group(GroupMod),
    Packet(PacketOut),
}

/// Reads a line.
pub(super) fn parse(line: &str, options: &Options, names: &Names) -> Result<Line> {
    let (kind, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start();
    Ok(match kind {
        "flow" => {
            let (word, behind) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            let found = FLOW_COMMANDS.iter().find(|(name, _)| *name == word);
            let (command, text) =
                found.map_or((FlowModCommand::Add, rest), |(_, command)| (*command, behind));
            Line::Rule(Box::new(parse_flow_mod(text, command, names)?))
        }
        "group" => {
            let (command, text) = groups::command_of(rest, options);
            Line::Group(parse_group_mod(text, command, names)?)
        }
        "packet-out" => Line::Packet(parse_packet_out(rest, names)?),
        _ => bail!("Unsupported bundle message type: {kind}{}", hint(kind, KINDS)),
    })
}

/// The message of a line.
fn message(run: &Run<'_>, line: &str) -> Result<Message> {
    match parse(line, run.options, &run.names)? {
        Line::Rule(rule) => flow_mod(run, *rule),
        Line::Group(group) => groups::message(run, group),
        Line::Packet(out) => {
            run.needs_one_of(ofp_actions::protocols_of(&out.actions))?;
            Ok(Message::PacketOut(out))
        }
    }
}

pub(super) fn bundle(run: &mut Run<'_>, path: &str) -> Result<String> {
    let text = read_file(path)?;
    let mut messages = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            messages.push(message(run, line).map_err(|error| anyhow!("{path}:{}: {error:#}", n + 1))?);
        }
    }
    run.transact(messages)
}
