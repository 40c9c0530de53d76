//! Sets of rules compared: `replace-flows` and `diff-flows`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use flow::Protocols;
use flow::TableId;
use flow::text::{PortNames, format_match_with};
use ofp_actions::Action;
use ofp_actions::text::{FlowModCommand, FlowModFlags, FlowModText, format_actions, parse_flow_file};
use openflow::text::flow_mod_of;
use openflow::{Format, Message, Version, encode_with};

use super::flows::{carry_out, read_file, rules};
use super::options::Options;
use super::{Different, Run};

/// Identity of a rule, in the order of the output: table, priority (highest first), text of the match.
type Key = (u8, std::cmp::Reverse<u16>, String);

/// Contents of a rule.
struct Rule {
    matching: flow::Match,
    cookie: u64,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    importance: u16,
    flags: FlowModFlags,
    actions: Vec<Action>,
    protocols: Protocols,
}

/// Version and flow format in which rules are compared.
type Wire = (Version, Format);

/// Whether two rules with a key are the same in the switch. A file may write an action in another way than the switch
/// reports it (`set_field` and `load`), so their messages are compared. Flags are not: OpenFlow 1.0 does not report them.
fn same(key: &Key, a: &Rule, b: &Rule, wire: Wire) -> bool {
    let message = |rule: &Rule| {
        let asked = FlowModText { flags: FlowModFlags::default(), ..change(key, rule, FlowModCommand::Add) };
        let message = Message::FlowMod(flow_mod_of(wire.1, asked));
        encode_with(&message, wire.0, 0, &openflow::Options::DEFAULT).ok()
    };
    match (message(a), message(b)) {
        (Some(a), Some(b)) => a == b,
        // Without a common form only equal texts are equal.
        _ => {
            let parts = |r: &Rule| (r.cookie, r.idle_timeout_s, r.hard_timeout_s, r.importance);
            parts(a) == parts(b) && a.actions == b.actions
        }
    }
}

type Rules = BTreeMap<Key, Rule>;

/// Rules by number of ports, whatever the user sees: names would differ between sources.
fn key(table: u8, priority: u16, matching: &flow::Match, names: &dyn PortNames) -> Key {
    (table, std::cmp::Reverse(priority), format_match_with(matching, None, names))
}

/// The rules of a file.
fn of_file(path: &str, names: &dyn PortNames) -> Result<Rules> {
    let text = read_file(path)?;
    let all = parse_flow_file(&text, None, names).map_err(|error| anyhow!("{path}:{error}"))?;
    let mut found = Rules::new();
    for m in all {
        let table = m.table.unwrap_or(TableId(0)).0;
        let key = key(table, m.priority, &m.rule_match, names);
        let rule = Rule {
            matching: m.rule_match,
            cookie: m.new_cookie.unwrap_or(0),
            idle_timeout_s: m.idle_timeout_s,
            hard_timeout_s: m.hard_timeout_s,
            importance: m.importance,
            flags: m.flags,
            actions: m.actions,
            protocols: m.protocols,
        };
        found.insert(key, rule);
    }
    Ok(found)
}

/// The rules of the switch.
fn of_switch(run: &mut Run<'_>) -> Result<Rules> {
    let (_, all) = rules(run, "")?;
    let mut found = Rules::new();
    for s in all {
        let matching = s.matching.unpack();
        let rule = Rule {
            matching,
            cookie: s.cookie,
            idle_timeout_s: s.idle_timeout_s,
            hard_timeout_s: s.hard_timeout_s,
            importance: s.importance,
            flags: FlowModFlags::default(),
            actions: s.actions.to_vec(),
            protocols: Protocols::ANY,
        };
        found.insert(key(s.table.0, s.priority, &matching, &run.names), rule);
    }
    Ok(found)
}

/// A rule as a change.
fn change(key: &Key, rule: &Rule, command: FlowModCommand) -> FlowModText {
    let deletes = command == FlowModCommand::DeleteStrict;
    FlowModText {
        command,
        table: Some(TableId(key.0)),
        priority: key.1.0,
        cookie: 0,
        cookie_mask: 0,
        new_cookie: (!deletes).then_some(rule.cookie),
        idle_timeout_s: rule.idle_timeout_s,
        hard_timeout_s: rule.hard_timeout_s,
        importance: rule.importance,
        out_port: flow::OfPort::NONE,
        out_group: None,
        flags: rule.flags,
        rule_match: rule.matching,
        actions: if deletes { Vec::new() } else { rule.actions.clone() },
        protocols: if deletes { Protocols::ANY } else { rule.protocols },
    }
}

pub(super) fn replace_flows(run: &mut Run<'_>, path: &str) -> Result<String> {
    let wire = (run.connection.version(), run.format());
    let wanted = of_file(path, &run.names)?;
    let present = of_switch(run)?;
    let mut changes = Vec::new();
    for (key, rule) in &present {
        if !wanted.contains_key(key) {
            changes.push(change(key, rule, FlowModCommand::DeleteStrict));
        }
    }
    for (key, rule) in &wanted {
        let kept = present.get(key).is_some_and(|there| same(key, there, rule, wire));
        if !kept || run.options.readd {
            changes.push(change(key, rule, FlowModCommand::Add));
        }
    }
    carry_out(run, changes)
}

/// The switch of a comparison; the default is that of two files.
struct Switch {
    names: super::Names,
    wire: Wire,
}

impl Default for Switch {
    fn default() -> Self {
        Switch { names: super::Names::default(), wire: (Version::V15, Format::Standard) }
    }
}

/// A source: a file, or the bridge of an open connection.
fn source(options: &Options, name: &str, switch: &mut Option<Switch>) -> Result<Rules> {
    let is_file = name == "-" || !name.contains(':') && Path::new(name).is_file();
    // As ovs-ofctl, a path with a slash is a file unless it is a socket.
    if is_file || name.contains('/') && !name.contains(':') && !Path::new(name).exists() {
        return of_file(name, &switch.as_ref().unwrap_or(&Switch::default()).names);
    }
    let mut run = Run::open(options, name, "diff-flows")?;
    let found = of_switch(&mut run)?;
    *switch = Some(Switch { wire: (run.connection.version(), run.format()), names: run.names });
    Ok(found)
}

/// A line of the comparison.
fn line(sign: char, key: &Key, rule: &Rule, names: &dyn PortNames) -> String {
    let mut words = Vec::new();
    if key.0 != 0 {
        words.push(format!("table={}", key.0));
    }
    let matching = format_match_with(&rule.matching, Some(key.1.0.into()), names);
    words.extend((!matching.is_empty()).then_some(matching));
    if rule.cookie != 0 {
        words.push(format!("cookie={:#x}", rule.cookie));
    }
    let numbers = [
        ("idle_timeout", rule.idle_timeout_s),
        ("hard_timeout", rule.hard_timeout_s),
        ("importance", rule.importance),
    ];
    words.extend(numbers.iter().filter(|(_, n)| *n != 0).map(|(name, n)| format!("{name}={n}")));
    words.push(format!("actions={}", format_actions(&rule.actions, names)));
    format!("{sign}{}\n", words.join(" "))
}

pub(super) fn diff_flows(options: &Options, args: &[String]) -> Result<String> {
    let mut switch = None;
    // Bridges first: files may name their ports.
    let bridge_second = !Path::new(&args[1]).is_file();
    let (first, second) = if bridge_second {
        let second = source(options, &args[1], &mut switch)?;
        (source(options, &args[0], &mut switch)?, second)
    } else {
        let first = source(options, &args[0], &mut switch)?;
        (first, source(options, &args[1], &mut switch)?)
    };
    let Switch { names, wire } = switch.unwrap_or_default();
    let mut keys: Vec<&Key> = first.keys().chain(second.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut out = String::new();
    for key in keys {
        let (a, b) = (first.get(key), second.get(key));
        if a.zip(b).is_some_and(|(a, b)| same(key, a, b, wire)) {
            continue;
        }
        out.extend(a.map(|rule| line('-', key, rule, &names)));
        out.extend(b.map(|rule| line('+', key, rule, &names)));
    }
    if out.is_empty() { Ok(out) } else { Err(anyhow::Error::new(Different(out))) }
}
