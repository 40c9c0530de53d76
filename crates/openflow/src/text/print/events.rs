//! Monitors of rules: requests and notifications.

use super::rules::removed_reason;
use super::{Printer, put};
use crate::msg::flow_monitor::{
    FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitorFlags, RuleUpdate,
};
use crate::{GROUP_ANY, Multi};
use flow::text::format_match_with;
use flow::text::number::hex;
use flow::{OfPort, TableId};
use ofp_actions::text::format_actions;
use std::fmt::Write as _;

const FLAGS: [(MonitorFlags, &str); 6] = [
    (MonitorFlags::INITIAL, "initial"),
    (MonitorFlags::ADD, "add"),
    (MonitorFlags::DELETE, "delete"),
    (MonitorFlags::MODIFY, "modify"),
    (MonitorFlags::ACTIONS, "actions"),
    (MonitorFlags::OWN, "own"),
];

impl Printer<'_> {
    pub(super) fn monitor_requests(&mut self, m: &Multi<FlowMonitorRequest>) {
        m.entries.iter().for_each(|request| self.monitor_request(request));
    }

    fn monitor_request(&mut self, m: &FlowMonitorRequest) {
        put!(self.out, "\n id={}", m.id);
        match m.command {
            MonitorCommand::Add | MonitorCommand::Modify => {}
            MonitorCommand::Delete => return self.out.push_str(" command=delete"),
        }
        let flags: Vec<&str> =
            FLAGS.iter().filter(|(flag, _)| m.flags.contains(*flag)).map(|(_, name)| *name).collect();
        put!(self.out, " flags={}", if flags.is_empty() { "0".to_string() } else { flags.join(",") });
        if m.out_port != OfPort::NONE {
            put!(self.out, " out_port={}", self.port(m.out_port));
        }
        if m.out_group != GROUP_ANY {
            // As OVS does, with a sign.
            put!(self.out, " out_group={}", m.out_group as i32);
        }
        if m.table != TableId::ALL {
            put!(self.out, " table={}", m.table.0);
        }
        let matching = format_match_with(&m.matching, None, self.how.names);
        if !matching.is_empty() {
            put!(self.out, " {matching}");
        }
    }

    pub(super) fn flow_updates(&mut self, m: &Multi<FlowUpdate>) {
        for update in &m.entries {
            self.out.push_str("\n event=");
            match update {
                FlowUpdate::Abbreviated(xid) => put!(self.out, "ABBREV xid={}", hex((*xid).into())),
                FlowUpdate::Paused => self.out.push_str("PAUSED"),
                FlowUpdate::Resumed => self.out.push_str("RESUMED"),
                FlowUpdate::Rule(rule) => self.rule_update(rule),
            }
        }
    }

    fn rule_update(&mut self, u: &RuleUpdate) {
        match u.event {
            FlowEvent::Initial => self.out.push_str("INITIAL"),
            FlowEvent::Added => self.out.push_str("ADDED"),
            FlowEvent::Modified => self.out.push_str("MODIFIED"),
            FlowEvent::Deleted(reason) => put!(self.out, "DELETED reason={}", removed_reason(reason)),
        }
        put!(self.out, " table={}", u.table.0);
        for (name, seconds) in [("idle_timeout", u.idle_timeout_s), ("hard_timeout", u.hard_timeout_s)] {
            if seconds != 0 {
                put!(self.out, " {name}={seconds}");
            }
        }
        let matching = format_match_with(&u.matching.unpack(), None, self.how.names);
        put!(self.out, " cookie={} {matching}", hex(u.cookie.into()));
        if !u.actions.is_empty() {
            let space = if self.out.ends_with(' ') { "" } else { " " };
            put!(self.out, "{space}actions={}", format_actions(&u.actions, self.how.names));
        }
    }
}
