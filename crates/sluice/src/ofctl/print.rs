//! Answers of a switch as text, as `ovs-ofctl` prints them.

use std::fmt::Write as _;

use flow::OfPort;
use flow::text::{PortNames, format_match_with, format_port};
use ofp_actions::text::format_actions;
use openflow::Version;
use openflow::msg::control::{SwitchConfig, SwitchFeatures};
use openflow::msg::flow_mod::FlowModFlags;
use openflow::msg::flow_stats::FlowStats;
use openflow::msg::port::{Port, PortStats};
use openflow::msg::stats::TableStats;

/// Names of the bits of `capabilities`: common ones, then those of each version (OpenFlow 1.0 §5.3.1, 1.3
/// §7.3.1).
const CAPABILITIES_10: [(u32, &str); 8] = [
    (1, "FLOW_STATS"),
    (1 << 1, "TABLE_STATS"),
    (1 << 2, "PORT_STATS"),
    (1 << 3, "STP"),
    (1 << 4, "RESERVED"),
    (1 << 5, "IP_REASM"),
    (1 << 6, "QUEUE_STATS"),
    (1 << 7, "ARP_MATCH_IP"),
];
const CAPABILITIES_13: [(u32, &str); 9] = [
    (1, "FLOW_STATS"),
    (1 << 1, "TABLE_STATS"),
    (1 << 2, "PORT_STATS"),
    (1 << 3, "GROUP_STATS"),
    (1 << 5, "IP_REASM"),
    (1 << 6, "QUEUE_STATS"),
    (1 << 7, "ARP_MATCH_IP"),
    (1 << 8, "PORT_BLOCKED"),
    (1 << 9, "BUNDLES"),
];
/// `OFPAT10_*` by bit.
const ACTIONS_10: [&str; 12] = [
    "output",
    "set_vlan_vid",
    "set_vlan_pcp",
    "strip_vlan",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_tp_src",
    "mod_tp_dst",
    "enqueue",
];
/// All of `OFPFW10_*`, and their fields.
const WILDCARDS_ALL: u64 = (1 << 22) - 1;
const FIELDS_10: &str = "in_port eth_{src,dst,type} vlan_{vid,pcp} ip_{src,dst} nw_{proto,tos} tcp_{src,dst}";
/// `OFPPC_*` by bit.
const CONFIG: [&str; 7] =
    ["PORT_DOWN", "NO_STP", "NO_RECV", "NO_RECV_STP", "NO_FLOOD", "NO_FWD", "NO_PACKET_IN"];
/// `OFPPF_*` by bit, with the speed in Mbit/s (OpenFlow 1.3 §7.2.1).
const FEATURES: [(&str, u32); 16] = [
    ("10MB-HD", 10),
    ("10MB-FD", 10),
    ("100MB-HD", 100),
    ("100MB-FD", 100),
    ("1GB-HD", 1000),
    ("1GB-FD", 1000),
    ("10GB-FD", 10_000),
    ("40GB-FD", 40_000),
    ("100GB-FD", 100_000),
    ("1TB-FD", 1_000_000),
    ("OTHER", 0),
    ("COPPER", 0),
    ("FIBER", 0),
    ("AUTO_NEG", 0),
    ("AUTO_PAUSE", 0),
    ("AUTO_PAUSE_ASYM", 0),
];

fn or_zero(names: &[&str]) -> String {
    if names.is_empty() { "0".into() } else { names.join(" ") }
}

/// Lines of `show` about the switch itself.
pub(crate) fn features(reply: &SwitchFeatures, version: Version) -> String {
    let mut out = format!("dpid:{:016x}\n", reply.datapath_id);
    // Writing to a string cannot fail.
    let _infallible = writeln!(out, "n_tables:{}, n_buffers:{}", reply.n_tables, reply.n_buffers);
    let table: &[(u32, &str)] = if version == Version::V10 { &CAPABILITIES_10 } else { &CAPABILITIES_13 };
    let has: Vec<&str> =
        table.iter().filter(|(bit, _)| reply.capabilities & bit != 0).map(|(_, name)| *name).collect();
    let _infallible = writeln!(out, "capabilities: {}", or_zero(&has));
    if version == Version::V10 {
        // Enqueue is printed next to output.
        let order = [0, 11].into_iter().chain(1..11);
        let can: Vec<&str> =
            order.filter(|bit| reply.actions & 1 << bit != 0).map(|bit: usize| ACTIONS_10[bit]).collect();
        let _infallible = writeln!(out, "actions: {}", or_zero(&can));
    }
    out
}

/// The line of `show` about fragments.
pub(crate) fn config(reply: &SwitchConfig) -> String {
    let frags = match reply.flags & 3 {
        0 => "normal",
        1 => "drop",
        2 => "reassemble",
        _ => "nx-match",
    };
    let ttl = if reply.flags & 4 != 0 { " invalid_ttl_to_controller" } else { "" };
    format!("frags={frags}{ttl} miss_send_len={}\n", reply.miss_send_len_bytes)
}

/// A port's number without its name.
fn port_number(port: OfPort) -> String {
    format_port(port, &flow::text::NoPortNames)
}

fn speed_mbps(features: u32) -> u32 {
    let fits = FEATURES.iter().enumerate().filter(|(bit, _)| features & 1 << bit != 0);
    fits.map(|(_, (_, speed))| *speed).max().unwrap_or(0)
}

/// The lines of one port.
pub(crate) fn port(port: &Port, version: Version) -> String {
    let bits = |value: u32, names: &[&'static str]| {
        let named: Vec<&str> = names
            .iter()
            .enumerate()
            .filter(|(bit, _)| value & 1 << bit != 0)
            .map(|(_, name)| *name)
            .collect();
        or_zero(&named)
    };
    let mut out = format!(" {}({}): addr:{}\n", port_number(port.port), port.name, port.hw_addr);
    let _infallible = writeln!(out, "     config:     {}", bits(port.config, &CONFIG));
    let _infallible =
        writeln!(out, "     state:      {}", bits(port.state, &["LINK_DOWN", "BLOCKED", "LIVE"]));
    let names: Vec<&str> = FEATURES.iter().map(|(name, _)| *name).collect();
    let lists = [
        ("current:    ", port.curr),
        ("advertised: ", port.advertised),
        ("supported:  ", port.supported),
        ("peer:       ", port.peer),
    ];
    for (title, value) in lists.iter().filter(|(_, value)| *value != 0) {
        let _infallible = writeln!(out, "     {title}{}", bits(*value, &names));
    }
    let (now, max) = match version {
        Version::V10 => (speed_mbps(port.curr), speed_mbps(port.supported)),
        _ => (port.curr_speed_kbps / 1000, port.max_speed_kbps / 1000),
    };
    let _infallible = writeln!(out, "     speed: {now} Mbps now, {max} Mbps max");
    out
}

/// Seconds with as many decimals as are not zero.
fn duration(s: u32, ns: u32) -> String {
    if ns == 0 {
        return format!("{s}s");
    }
    format!("{}s", format!("{s}.{ns:09}").trim_end_matches('0'))
}

/// The lines of one port's counters.
pub(crate) fn port_stats(stats: &PortStats, version: Version, names: &dyn PortNames) -> String {
    let n = |value: u64| if value == u64::MAX { "?".to_string() } else { value.to_string() };
    let mut out = format!(
        "  port {:>2}: rx pkts={}, bytes={}, drop={}, errs={}, frame={}, over={}, crc={}\n",
        format_port(stats.port, names),
        n(stats.rx_packets),
        n(stats.rx_bytes),
        n(stats.rx_dropped),
        n(stats.rx_errors),
        n(stats.rx_frame_errors),
        n(stats.rx_over_errors),
        n(stats.rx_crc_errors)
    );
    let _infallible = writeln!(
        out,
        "           tx pkts={}, bytes={}, drop={}, errs={}, coll={}",
        n(stats.tx_packets),
        n(stats.tx_bytes),
        n(stats.tx_dropped),
        n(stats.tx_errors),
        n(stats.collisions)
    );
    if version != Version::V10 && stats.duration_s != u32::MAX {
        let _infallible =
            writeln!(out, "           duration={}", duration(stats.duration_s, stats.duration_ns));
    }
    out
}

/// The line of one rule; `ages` adds the times since its last packet and change. Without `counters`, only the
/// rule as added.
pub(crate) fn rule(stats: &FlowStats, counters: bool, ages: bool, names: &dyn PortNames) -> String {
    let mut out = String::from(" ");
    if counters || stats.cookie != 0 {
        let _infallible = write!(out, "cookie={:#x}, ", stats.cookie);
    }
    if counters {
        let _infallible = write!(out, "duration={}, ", duration(stats.duration_s, stats.duration_ns));
    }
    if counters || stats.table.0 != 0 {
        let _infallible = write!(out, "table={}, ", stats.table.0);
    }
    if counters {
        let _infallible = write!(out, "n_packets={}, n_bytes={}, ", stats.packet_count, stats.byte_count);
    }
    let timeouts = [("idle_timeout", stats.idle_timeout_s), ("hard_timeout", stats.hard_timeout_s)];
    for (name, seconds) in timeouts.iter().filter(|(_, seconds)| *seconds != 0) {
        let _infallible = write!(out, "{name}={seconds}, ");
    }
    if counters
        && ages
        && let Some(age) = stats.idle_age_s
    {
        let _infallible = write!(out, "idle_age={age}, ");
    }
    if counters
        && ages
        && let Some(age) = stats.hard_age_s.filter(|age| *age != stats.duration_s)
    {
        let _infallible = write!(out, "hard_age={age}, ");
    }
    let flags = [
        (FlowModFlags::SEND_FLOW_REM, "send_flow_rem "),
        (FlowModFlags::CHECK_OVERLAP, "check_overlap "),
        (FlowModFlags::RESET_COUNTS, "reset_counts "),
        (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts "),
        (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts "),
    ];
    for (_, name) in flags.iter().filter(|(flag, _)| stats.flags.contains(*flag)) {
        out.push_str(name);
    }
    out.push_str(&format_match_with(&stats.matching.unpack(), Some(i32::from(stats.priority)), names));
    if !out.ends_with(' ') {
        out.push(' ');
    }
    let _infallible = writeln!(out, "actions={}", format_actions(&stats.actions, names));
    out
}

/// The lines of all tables; consecutive tables with equal counters are merged.
pub(crate) fn tables(all: &[TableStats]) -> String {
    let counters = |t: &TableStats| {
        (t.active_count, t.lookup_count, t.matched_count, t.max_entries, t.abilities.wildcards)
    };
    let mut out = String::new();
    let mut rest = all;
    while let Some(first) = rest.first() {
        let number = rest.iter().take_while(|t| counters(t) == counters(first)).count();
        let title = if first.name.is_empty() || first.name == format!("table{}", first.table.0) {
            String::new()
        } else {
            format!(" (\"{}\")", first.name)
        };
        let _infallible = writeln!(out, "  table {}{title}:", first.table.0);
        let _infallible = writeln!(
            out,
            "    active={}, lookup={}, matched={}",
            first.active_count, first.lookup_count, first.matched_count
        );
        let same = |t: &TableStats| {
            t.max_entries == first.max_entries && t.abilities.wildcards == first.abilities.wildcards
        };
        if first.max_entries != 0 && rest.len() < all.len() && all.first().is_some_and(same) {
            out.push_str("    (same features)\n");
        } else if first.max_entries != 0 {
            let _infallible = writeln!(out, "    max_entries={}", first.max_entries);
            if first.abilities.wildcards & WILDCARDS_ALL == WILDCARDS_ALL {
                let _infallible = writeln!(out, "    matching:\n      exact match or wildcard: {FIELDS_10}");
            }
        }
        match &rest[1..number] {
            [] => {}
            [only] => {
                let _infallible = writeln!(out, "\n  table {}: ditto", only.table.0);
            }
            [one, .., last] => {
                let _infallible = writeln!(out, "\n  tables {}...{}: ditto", one.table.0, last.table.0);
            }
        }
        rest = &rest[number..];
        if !rest.is_empty() {
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration(5, 0), "5s");
        assert_eq!(duration(0, 88_000_000), "0.088s");
        assert_eq!(duration(1, 1), "1.000000001s");
    }

    #[test]
    fn equal_tables_are_merged() {
        let table =
            |n, active_count| TableStats { table: flow::TableId(n), active_count, ..TableStats::default() };
        let text = tables(&[table(0, 1), table(1, 1), table(2, 0), table(3, 0), table(4, 0)]);
        let expected = "  table 0:\n    active=1, lookup=0, matched=0\n\n  table 1: ditto\n\n  table 2:\n    \
                        active=0, lookup=0, matched=0\n\n  tables 3...4: ditto\n";
        assert_eq!(text, expected);
        assert_eq!(tables(&[]), "");
    }
}
