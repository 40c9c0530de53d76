//! Changes of rules, their statistics, and removed rules.

use super::{Printer, Printing, duration, put};
use crate::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use crate::msg::flow_stats::{AggregateStats, FlowStats, FlowStatsRequest};
use crate::text::{extensible_match, format_match_bytes};
use crate::{Format, Multi, NO_BUFFER, Version};
use flow::text::number::hex;
use flow::text::{PortNames, format_match_with, format_port, format_table};
use flow::{Match, OfPort, TableId};
use ofp_actions::text::format_actions;
use std::fmt::Write as _;

/// Verbosity from which a change of rules in Nicira's form shows the entries of its match.
const ENTRIES_VERBOSITY: u8 = 3;
/// Priority of a rule without another one.
const DEFAULT_PRIORITY: u16 = 0x8000;

const FLAGS: [(FlowModFlags, &str); 5] = [
    (FlowModFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowModFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowModFlags::RESET_COUNTS, "reset_counts"),
    (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts"),
    (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts"),
];

/// A rule on a line of `dump-flows`; `ages` adds the times since its last packet and change. Without `counters`, only
/// the rule as added.
pub fn format_rule(stats: &FlowStats, counters: bool, ages: bool, names: &dyn PortNames) -> String {
    let mut out = String::from(" ");
    if counters || stats.cookie != 0 {
        put!(out, "cookie={:#x}, ", stats.cookie);
    }
    if counters {
        put!(out, "duration={}, ", duration(stats.duration_s, stats.duration_ns));
    }
    if counters || stats.table.0 != 0 {
        put!(out, "table={}, ", format_table(stats.table, names));
    }
    if counters {
        let count = |n: u64| if n == u64::MAX { "?".to_string() } else { n.to_string() };
        put!(out, "n_packets={}, n_bytes={}, ", count(stats.packet_count), count(stats.byte_count));
    }
    let timeouts = [("idle_timeout", stats.idle_timeout_s), ("hard_timeout", stats.hard_timeout_s)];
    for (name, seconds) in timeouts.iter().filter(|(_, seconds)| *seconds != 0) {
        put!(out, "{name}={seconds}, ");
    }
    put_flags(&mut out, stats.flags);
    if stats.importance != 0 {
        put!(out, "importance={}, ", stats.importance);
    }
    if counters && ages {
        if let Some(age) = stats.idle_age_s {
            put!(out, "idle_age={age}, ");
        }
        if let Some(age) = stats.hard_age_s.filter(|age| *age != stats.duration_s) {
            put!(out, "hard_age={age}, ");
        }
    }
    out.push_str(&format_match_with(&stats.matching.unpack(), Some(stats.priority.into()), names));
    if !out.ends_with(' ') {
        out.push(' ');
    }
    put!(out, "actions={}", format_actions(&stats.actions, names));
    out
}

fn put_flags(out: &mut String, flags: FlowModFlags) {
    for (_, name) in FLAGS.iter().filter(|(flag, _)| flags.contains(*flag)) {
        put!(out, "{name} ");
    }
}

/// Name of the reason of a removal.
pub(super) fn removed_reason(reason: FlowRemovedReason) -> &'static str {
    match reason {
        FlowRemovedReason::IdleTimeout => "idle",
        FlowRemovedReason::HardTimeout => "hard",
        FlowRemovedReason::Delete => "delete",
        FlowRemovedReason::GroupDelete => "group_delete",
        FlowRemovedReason::MeterDelete => "meter_delete",
        FlowRemovedReason::Eviction => "eviction",
    }
}

/// The entries of Nicira's extensible match, as written in OpenFlow 1.0.
fn entries(m: &Match) -> String {
    let text = format_match_bytes(&extensible_match(m, Version::V10)).unwrap_or_default();
    if text.is_empty() { "<any>".to_string() } else { text }
}

/// A change of rules, without the title of its message.
/// Commands of OpenFlow 1.0 have a table if `options` say so.
fn flow_mod(m: &FlowMod, version: Version, how: Printing<'_>) -> String {
    let names = how.names;
    let command = match m.command {
        FlowModCommand::Add => "ADD",
        FlowModCommand::Modify => "MOD",
        FlowModCommand::ModifyStrict => "MOD_STRICT",
        FlowModCommand::Delete => "DEL",
        FlowModCommand::DeleteStrict => "DEL_STRICT",
    };
    let mut words = vec![command.to_string()];
    let unknown = version == Version::V10 && m.table == TableId::ALL && !how.options.table_id_in_command;
    if m.table != TableId(0) && !unknown {
        words.push(format!("table:{}", m.table.0));
    }
    let matching = m.matching.unpack();
    let as_entries = version == Version::V10 && m.format == Format::Nxt && how.verbosity >= ENTRIES_VERBOSITY;
    match as_entries {
        true => words.push(entries(&matching)),
        false => words.push(format_match_with(&matching, Some(m.priority.into()), names)),
    }
    if m.new_cookie != 0 && m.new_cookie != u64::MAX {
        words.push(format!("cookie:{:#x}", m.new_cookie));
    }
    if m.cookie_mask != 0 {
        words.push(format!("cookie:{:#x}/{:#x}", m.cookie, m.cookie_mask));
    }
    let timeouts = [("idle", m.idle_timeout_s), ("hard", m.hard_timeout_s)];
    words.extend(timeouts.iter().filter(|(_, s)| *s != 0).map(|(kind, s)| format!("{kind}:{s}")));
    if m.importance != 0 && !m.command.deletes() {
        words.push(format!("importance:{}", m.importance));
    }
    if as_entries && m.priority != DEFAULT_PRIORITY {
        words.push(format!("pri:{}", m.priority));
    }
    if m.buffer_id != NO_BUFFER {
        words.push(format!("buf:{}", hex(m.buffer_id.into())));
    }
    if m.out_port != OfPort::NONE {
        words.push(format!("out_port:{}", format_port(m.out_port, names)));
    }
    words.extend(FLAGS.iter().filter(|(flag, _)| m.flags.contains(*flag)).map(|(_, name)| name.to_string()));
    words.push(format!("actions={}", format_actions(&m.actions, names)));
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(" {word}")).collect()
}

impl Printer<'_> {
    pub(super) fn flow_mod(&mut self, m: &FlowMod) {
        self.out += &flow_mod(m, self.version, self.how);
    }

    pub(super) fn flow_stats_request(&mut self, m: &FlowStatsRequest) {
        if m.table != TableId::ALL {
            put!(self.out, " table={}", m.table.0);
        }
        if m.out_port != OfPort::NONE {
            put!(self.out, " out_port={}", self.port(m.out_port));
        }
        let matching = format_match_with(&m.matching, None, self.how.names);
        if !matching.is_empty() {
            put!(self.out, " {matching}");
        }
    }

    pub(super) fn flow_stats(&mut self, m: &Multi<FlowStats>) {
        for rule in &m.entries {
            put!(self.out, "\n{}", format_rule(rule, true, true, self.how.names));
        }
        self.out.push('\n');
    }

    pub(super) fn aggregate(&mut self, m: &AggregateStats) {
        put!(
            self.out,
            " packet_count={} byte_count={} flow_count={}",
            m.packet_count,
            m.byte_count,
            m.flow_count
        );
    }

    pub(super) fn flow_removed(&mut self, m: &FlowRemoved) {
        let matching = format_match_with(&m.matching, Some(m.priority.into()), self.how.names);
        put!(self.out, " {matching} reason={}", removed_reason(m.reason));
        if m.table != TableId::ALL {
            put!(self.out, " table_id={}", m.table.0);
        }
        if m.cookie != 0 {
            put!(self.out, " cookie:{:#x}", m.cookie);
        }
        put!(self.out, " duration{} idle{}", duration(m.duration_s, m.duration_ns), m.idle_timeout_s);
        if m.hard_timeout_s != 0 {
            put!(self.out, " hard{}", m.hard_timeout_s);
        }
        put!(self.out, " pkts{} bytes{}\n", m.packet_count, m.byte_count);
    }
}
