//! Lines of `ovs-ofctl add-flow`, `mod-flows`, `del-flows` and of the files of `add-flows`.

use super::arguments::table;
use super::check::usable_protocols;
use super::{actions, check_actions};
use crate::list::Action;
use flow::text::number::{u16_named, u32_argument, u64_argument};
use flow::text::token::{Attached, Token, Tokens, is_separator};
use flow::text::{Fail, MatchBuilder, ParseError, Parsed, PortNames, fail, parse_port, unknown_keyword};
use flow::{Match, OfPort, Protocols, TableId};

/// Command of a line (`OFPFC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowModCommand {
    /// Adds a rule.
    Add,
    /// Changes the actions of all rules within the match, or adds one.
    Modify,
    /// Changes the actions of the rule with this match and priority, or adds it.
    ModifyStrict,
    /// Deletes all rules within the match.
    Delete,
    /// Deletes the rule with this match and priority.
    DeleteStrict,
}

impl FlowModCommand {
    /// All commands.
    pub const ALL: [FlowModCommand; 5] = [
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ];

    /// The first word of a line in a file.
    pub fn word(self) -> &'static str {
        match self {
            FlowModCommand::Add => "add",
            FlowModCommand::Modify => "modify",
            FlowModCommand::ModifyStrict => "modify_strict",
            FlowModCommand::Delete => "delete",
            FlowModCommand::DeleteStrict => "delete_strict",
        }
    }

    fn deletes(self) -> bool {
        matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

/// Flags of a flow modification (`OFPFF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowModFlags {
    /// Send a flow-removed message.
    pub send_flow_rem: bool,
    /// Reject a rule that overlaps one of the same priority.
    pub check_overlap: bool,
    /// Reset counters.
    pub reset_counts: bool,
    /// Do not count packets.
    pub no_packet_counts: bool,
    /// Do not count bytes.
    pub no_byte_counts: bool,
}

/// A parsed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowModText {
    /// Command.
    pub command: FlowModCommand,
    /// Table; `None` leaves it to the switch (add) or means all (delete).
    pub table: Option<TableId>,
    /// Priority.
    pub priority: u16,
    /// Cookie for the rule; `None` keeps the one of a modified rule and is 0 for a new one.
    pub new_cookie: Option<u64>,
    /// Only rules whose cookie equals this one in the bits of `cookie_mask` (modify and delete).
    pub cookie: u64,
    /// Mask of `cookie`.
    pub cookie_mask: u64,
    /// Idle timeout, 0 for none.
    pub idle_timeout_s: u16,
    /// Hard timeout, 0 for none.
    pub hard_timeout_s: u16,
    /// Importance (OpenFlow 1.4).
    pub importance: u16,
    /// Flags.
    pub flags: FlowModFlags,
    /// Only rules that output to this port (delete); `NONE` for any.
    pub out_port: OfPort,
    /// Only rules that output to this group (delete); `None` for any.
    pub out_group: Option<u32>,
    /// Match.
    pub rule_match: Match,
    /// Actions; empty for delete.
    pub actions: Vec<Action>,
    /// The flow formats that carry it.
    pub protocols: Protocols,
}

/// Default priority.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// Parses one line. The command determines its keys; `actions=` comes last.
///
/// # Errors
/// For an unknown key, a bad value, missing actions, or actions that do not fit the match.
pub fn parse_flow_mod(
    text: &str,
    command: FlowModCommand,
    ports: &dyn PortNames,
) -> Result<FlowModText, ParseError> {
    line(text, command, ports).map_err(|f: Fail| f.locate(text))
}

/// An error in a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}: {error}")]
pub struct FileError {
    /// Line, from 1.
    pub line: usize,
    /// The fault; the offset is within the line.
    pub error: ParseError,
}

/// Parses a file of flows: one per line, `#` begins a comment, empty lines are skipped. All lines are for `command`;
/// without one a line may begin with `add`, `modify`, `modify_strict`, `delete` or `delete_strict`, and the default is
/// `add`.
///
/// # Errors
/// The first faulty line.
pub fn parse_flow_file(
    text: &str,
    command: Option<FlowModCommand>,
    ports: &dyn PortNames,
) -> Result<Vec<FlowModText>, FileError> {
    let mut mods = Vec::new();
    for (i, whole) in text.lines().enumerate() {
        let kept = without_comment(whole).trim();
        if kept.is_empty() {
            continue;
        }
        let (command, rest) = command.map_or_else(|| split_command(kept), |command| (command, kept));
        let parsed = line(rest, command, ports);
        mods.push(parsed.map_err(|f| FileError { line: i + 1, error: f.locate(whole) })?);
    }
    Ok(mods)
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn split_command(line: &str) -> (FlowModCommand, &str) {
    let end = line.find(is_separator).unwrap_or(line.len());
    match FlowModCommand::ALL.into_iter().find(|c| c.word() == &line[..end]) {
        Some(command) => (command, &line[end..]),
        None => (FlowModCommand::Add, line),
    }
}

fn line(text: &str, command: FlowModCommand, ports: &dyn PortNames) -> Parsed<FlowModText> {
    let mut flow_mod = FlowModText {
        command,
        table: None,
        priority: DEFAULT_PRIORITY,
        new_cookie: None,
        cookie: 0,
        cookie_mask: 0,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        importance: 0,
        flags: FlowModFlags::default(),
        out_port: OfPort::NONE,
        out_group: None,
        rule_match: Match::catchall(),
        actions: Vec::new(),
        protocols: Protocols::ANY,
    };
    let (before, action_text) = if command.deletes() { (text, None) } else { split_actions(text) };
    let mut builder = MatchBuilder::default();
    let mut tokens = Tokens::new(before);
    while let Some(token) = tokens.next_token()? {
        let taken = flow_mod.take_flag(&token)
            || flow_mod.take_common(&token, ports)?
            || flow_mod.take_of_command(&token, ports)?
            || builder.add(&token, ports)?;
        if !taken {
            return unknown_keyword(&token);
        }
    }
    flow_mod.rule_match = builder.checked()?;
    flow_mod.protocols &= builder.protocols();
    if !command.deletes() {
        let Some(action_text) = action_text else {
            return fail(&text[text.len()..], "must specify an action");
        };
        flow_mod.actions = actions(action_text, ports)?;
        if let Err(why) = check_actions(&flow_mod.rule_match, flow_mod.table, &flow_mod.actions) {
            return fail(action_text, why);
        }
        flow_mod.protocols &= usable_protocols(&flow_mod.rule_match, flow_mod.table, &flow_mod.actions);
        if flow_mod.protocols.is_empty() {
            let why = "actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)";
            return fail(action_text, why);
        }
    }
    Ok(flow_mod)
}

/// The text before `actions=`, and after it.
fn split_actions(text: &str) -> (&str, Option<&str>) {
    let mut from = 0;
    while let Some(found) = text[from..].find("action") {
        let at = from + found;
        let behind = &text[at + "action".len()..];
        let behind = behind.strip_prefix('s').unwrap_or(behind).trim_start_matches([' ', '\t']);
        let starts_word = text[..at].chars().next_back().is_none_or(is_separator);
        if let (true, Some(list)) = (starts_word, behind.strip_prefix('=')) {
            return (&text[..at], Some(list));
        }
        from = at + "action".len();
    }
    (text, None)
}

impl FlowModText {
    /// Bare keywords; those of rules are not permitted in deletions.
    fn take_flag(&mut self, token: &Token<'_>) -> bool {
        if token.has_value() || self.command.deletes() {
            return false;
        }
        let (flag, protocols) = match token.key {
            "send_flow_rem" => (&mut self.flags.send_flow_rem, Protocols::ANY),
            "check_overlap" => (&mut self.flags.check_overlap, Protocols::ANY),
            "reset_counts" => (&mut self.flags.reset_counts, Protocols::OXM),
            "no_packet_counts" => (&mut self.flags.no_packet_counts, Protocols::OF13_UP),
            "no_byte_counts" => (&mut self.flags.no_byte_counts, Protocols::OF13_UP),
            "allow_hidden_fields" => return true,
            _ => return false,
        };
        *flag = true;
        self.protocols &= protocols;
        true
    }

    /// Keys of all commands, and keys of `dump-flows` output to ignore.
    fn take_common(&mut self, token: &Token<'_>, ports: &dyn PortNames) -> Parsed<bool> {
        if token.attached != Attached::Equals {
            return Ok(false);
        }
        let value = token.value;
        match token.key {
            "table" => {
                let table = table(value, ports, || format!("unknown table \"{value}\""))?;
                self.table = Some(table).filter(|t| *t != TableId::ALL);
                if self.table.is_some() {
                    self.protocols &= Protocols::TABLE_ID;
                }
            }
            "cookie" => self.take_cookie(value)?,
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_cookie(&mut self, value: &str) -> Parsed<()> {
        match value.split_once('/') {
            Some(_) if self.command == FlowModCommand::Add => {
                return fail(value, "flow additions cannot use a cookie mask");
            }
            Some((cookie, mask)) => {
                (self.cookie, self.cookie_mask) = (u64_argument(cookie)?, u64_argument(mask)?);
            }
            None if self.command.deletes() => {
                let hint = format!(
                    "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie={value}/-1)"
                );
                return fail(value, hint);
            }
            None => self.new_cookie = Some(u64_argument(value)?).filter(|c| *c != u64::MAX),
        }
        Ok(())
    }

    /// Keys of only some commands.
    fn take_of_command(&mut self, token: &Token<'_>, ports: &dyn PortNames) -> Parsed<bool> {
        let (key, value, command) = (token.key, token.value, self.command);
        let rule = !command.deletes();
        match key {
            "priority" if command != FlowModCommand::Delete => {
                let text = required(token)?;
                self.priority = u16_named(text, "priority")?;
            }
            "idle_timeout" if rule => self.idle_timeout_s = u16_named(required(token)?, "idle_timeout")?,
            "hard_timeout" if rule => self.hard_timeout_s = u16_named(required(token)?, "hard_timeout")?,
            "importance" if command == FlowModCommand::Add => {
                self.importance = u16_named(required(token)?, "importance")?;
            }
            "out_port" if command.deletes() => match parse_port(value, ports) {
                Some(port) => self.out_port = port,
                None => return fail(value, format!("{value} is not a valid OpenFlow port")),
            },
            "out_group" if command.deletes() => {
                self.out_group = Some(u32_argument(value)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn required<'a>(token: &Token<'a>) -> Parsed<&'a str> {
    if token.value.is_empty() {
        return fail(token.key, format!("field {} missing value", token.key));
    }
    Ok(token.value)
}
