//! The lines of a file of state: fields separated by tabs, the kind first.

use flow::text::{NoPortNames, format_match_with};
use flow::{MacAddr, TlvTable};
use ofp_actions::text::format_actions;
use ofproto::flow_mod::Past;
use ofproto::group::Group;
use ofproto::rule::Rule;
use openflow::msg::flow_mod::FlowModFlags;
use openflow::msg::meter::Meter;
use openflow::text::{format_group, format_meter};

pub(super) const BRIDGE: &str = "bridge";
pub(super) const BRIDGE_GONE: &str = "-bridge";
pub(super) const TLV: &str = "tlv";
pub(super) const TLV_GONE: &str = "-tlv";
pub(super) const METER: &str = "meter";
/// Creation of the last meter, a line of its own: earlier versions skip it.
pub(super) const METER_SINCE: &str = "meter-since";
pub(super) const METER_GONE: &str = "-meter";
pub(super) const GROUP: &str = "group";
/// Creation of the last group, as with meters.
pub(super) const GROUP_SINCE: &str = "group-since";
pub(super) const GROUP_COUNTS: &str = "group-counts";
pub(super) const GROUP_GONE: &str = "-group";
pub(super) const GROUPS_GONE: &str = "-groups";
pub(super) const RULE: &str = "rule";
pub(super) const RULE_GONE: &str = "-rule";
pub(super) const TABLE_GONE: &str = "-table";
pub(super) const MAC: &str = "mac";
pub(super) const MACS_GONE: &str = "-macs";
/// The whole state has been written.
pub(super) const WHOLE: &str = "whole";

/// Flags of a rule in the words of `ovs-ofctl add-flow`.
const FLAGS: [(FlowModFlags, &str); 5] = [
    (FlowModFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowModFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowModFlags::RESET_COUNTS, "reset_counts"),
    (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts"),
    (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts"),
];

/// Writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {
        {
            use std::fmt::Write as _;
            let _ = writeln!($out, $($part)*);
        }
    };
}
pub(super) use put;

/// Table, priority and match: the identity of a rule.
fn identity(rule: &Rule, tlv: &TlvTable) -> String {
    let matching = format_match_with(&rule.matching.unpack(), None, tlv);
    format!("{}\t{}\t{matching}", rule.table.0, rule.priority)
}

/// A rule: its identity, times and counters, properties, actions.
pub(super) fn rule(out: &mut String, rule: &Rule, tlv: &TlvTable) {
    let (packets, bytes) = rule.stats.counts();
    let mut properties = format!("cookie={:#x}", rule.cookie);
    let numbers = [
        ("idle_timeout", rule.timeouts.idle_s()),
        ("hard_timeout", rule.timeouts.hard_s()),
        ("importance", rule.importance),
    ];
    for (name, n) in numbers.into_iter().filter(|(_, n)| *n != 0) {
        properties += &format!(",{name}={n}");
    }
    for (_, name) in FLAGS.iter().filter(|(flag, _)| rule.flags.contains(*flag)) {
        properties += &format!(",{name}");
    }
    put!(
        out,
        "{RULE}\t{}\t{}\t{}\t{}\t{packets}\t{bytes}\t{properties}\t{}",
        identity(rule, tlv),
        rule.created_ms,
        rule.renewed_ms(),
        rule.stats.used_ms(),
        format_actions(&rule.actions, tlv),
    );
}

/// The end of a rule.
pub(super) fn rule_gone(out: &mut String, rule: &Rule, tlv: &TlvTable) {
    put!(out, "{RULE_GONE}\t{}", identity(rule, tlv));
}

/// Times and counters of a rule, from their fields.
pub(super) fn past(fields: &[&str]) -> Option<Past> {
    let number = |n: usize| fields.get(n)?.parse().ok();
    Some(Past {
        created_ms: number(0)?,
        renewed_ms: number(1)?,
        used_ms: number(2)?,
        packets: number(3)?,
        bytes: number(4)?,
    })
}

/// All mappings of tunnel metadata.
pub(super) fn tlv(out: &mut String, table: &TlvTable) {
    put!(out, "{TLV_GONE}");
    for (index, mapping) in table.iter() {
        put!(out, "{TLV}\t{index}\t{}\t{}\t{}", mapping.class, mapping.ty, mapping.len_bytes);
    }
}

/// A group.
pub(super) fn group(out: &mut String, group: &Group) {
    put!(out, "{GROUP}\t{}\t{}", group.id(), format_group(&group.desc(), true, &NoPortNames));
    put!(out, "{GROUP_SINCE}\t{}\t{}", group.id(), group.created_ms);
}

/// Counters of a group and of each of its buckets; nothing for a group without packets.
pub(super) fn group_counts(out: &mut String, group: &Group) {
    if group.counter.counts().0 > 0 {
        let all: String = group.counts().map(|(packets, bytes)| format!("\t{packets}\t{bytes}")).collect();
        put!(out, "{GROUP_COUNTS}\t{}{all}", group.id());
    }
}

/// A meter.
pub(super) fn meter(out: &mut String, meter: &Meter, created_ms: u64) {
    put!(out, "{METER}\t{}\t{}", meter.id, format_meter(meter));
    put!(out, "{METER_SINCE}\t{}\t{created_ms}", meter.id);
}

/// A learned address; without a time a static one.
pub(super) fn mac(out: &mut String, vlan: u16, mac: MacAddr, port: &str, seen_ms: Option<u64>) {
    match seen_ms {
        Some(seen_ms) => put!(out, "{MAC}\t{vlan}\t{mac}\t{seen_ms}\t{port}"),
        None => put!(out, "{MAC}\t{vlan}\t{mac}\tstatic\t{port}"),
    }
}
