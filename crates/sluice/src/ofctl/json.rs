//! Answers of a switch as JSON, for programs (`--json`). Unknown counters are null.

use flow::OfPort;
use flow::text::{PortNames, format_match_with, format_port};
use ofp_actions::text::format_actions;
use openflow::GROUP_ANY;
use openflow::msg::flow_stats::FlowStats;
use openflow::msg::group::{Bucket, Group, GroupStats, GroupType};
use openflow::msg::meter::{Band, BandType, Meter, MeterStats, flags};
use openflow::msg::port::{Port, PortStats};
use openflow::msg::stats::{QueueStats, TableStats};
use serde_json::{Value, json};

/// Commands with a JSON form.
pub(super) const COMMANDS: [&str; 10] = [
    "dump-flows",
    "dump-tables",
    "dump-ports",
    "dump-ports-desc",
    "queue-stats",
    "dump-groups",
    "dump-group-stats",
    "dump-meters",
    "dump-meter",
    "meter-stats",
];

/// A counter, or null.
fn count(n: u64) -> Value {
    if n == u64::MAX { Value::Null } else { n.into() }
}

/// An age in seconds.
fn age(s: u32, ns: u32) -> Value {
    if s == u32::MAX { Value::Null } else { (f64::from(s) + f64::from(ns) / 1e9).into() }
}

fn line(values: Vec<Value>) -> String {
    format!("{}\n", Value::from(values))
}

/// An array of rules.
pub(super) fn rules(rules: &[FlowStats], counters: bool, names: &dyn PortNames) -> String {
    let one = |r: &FlowStats| {
        let mut value = json!({
            "table": r.table.0,
            "priority": r.priority,
            "cookie": format!("{:#x}", r.cookie),
            "match": format_match_with(&r.matching.unpack(), None, names),
            "actions": format_actions(&r.actions, names),
            "idle_timeout": r.idle_timeout_s,
            "hard_timeout": r.hard_timeout_s,
        });
        if counters {
            value["n_packets"] = r.packet_count.into();
            value["n_bytes"] = r.byte_count.into();
            value["duration"] = (f64::from(r.duration_s) + f64::from(r.duration_ns) / 1e9).into();
            value["idle_age"] = r.idle_age_s.into();
        }
        value
    };
    line(rules.iter().map(one).collect())
}

/// An array of ports.
pub(super) fn ports(ports: &[PortStats], names: &dyn PortNames) -> String {
    let one = |p: &PortStats| {
        json!({
            "port": format_port(p.port, names),
            "rx_packets": count(p.rx_packets),
            "rx_bytes": count(p.rx_bytes),
            "rx_dropped": count(p.rx_dropped),
            "rx_errors": count(p.rx_errors),
            "tx_packets": count(p.tx_packets),
            "tx_bytes": count(p.tx_bytes),
            "tx_dropped": count(p.tx_dropped),
            "tx_errors": count(p.tx_errors),
        })
    };
    line(ports.iter().map(one).collect())
}

/// An array of ports, with addresses and states.
pub(super) fn port_descs(ports: &[Port]) -> String {
    let one = |p: &Port| {
        json!({
            "port": p.port.0,
            "name": p.name,
            "hw_addr": p.hw_addr.to_string(),
            "config": p.config,
            "state": p.state,
            "speed_kbps": p.curr_speed_kbps,
        })
    };
    line(ports.iter().map(one).collect())
}

/// An array of tables.
pub(super) fn tables(tables: &[TableStats]) -> String {
    let one = |t: &TableStats| {
        json!({
            "table": t.table.0,
            "active": t.active_count,
            "lookup": count(t.lookup_count),
            "matched": count(t.matched_count),
        })
    };
    line(tables.iter().map(one).collect())
}

/// An array of queues.
pub(super) fn queues(queues: &[QueueStats], names: &dyn PortNames) -> String {
    let one = |q: &QueueStats| {
        json!({
            "port": format_port(q.port, names),
            "queue": q.queue,
            "tx_bytes": count(q.tx_bytes),
            "tx_packets": count(q.tx_packets),
            "tx_errors": count(q.tx_errors),
        })
    };
    line(queues.iter().map(one).collect())
}

/// An array of groups.
pub(super) fn groups(groups: &[Group], names: &dyn PortNames) -> String {
    let bucket = |b: &Bucket| {
        json!({
            "bucket_id": b.id,
            "weight": b.weight,
            "watch_port": (b.watch_port != OfPort::NONE).then(|| format_port(b.watch_port, names)),
            "watch_group": (b.watch_group != GROUP_ANY).then_some(b.watch_group),
            "actions": format_actions(&b.actions, names),
        })
    };
    let one = |g: &Group| {
        let ty = match g.ty {
            GroupType::All => "all",
            GroupType::Select => "select",
            GroupType::Indirect => "indirect",
            GroupType::FastFailover => "ff",
        };
        let buckets: Vec<Value> = g.buckets.iter().map(bucket).collect();
        json!({ "group_id": g.id, "type": ty, "buckets": buckets })
    };
    line(groups.iter().map(one).collect())
}

/// Packets and bytes.
fn pairs(pairs: &[(u64, u64)]) -> Vec<Value> {
    pairs
        .iter()
        .map(|(packets, bytes)| json!({ "packets": count(*packets), "bytes": count(*bytes) }))
        .collect()
}

/// An array of counters of groups.
pub(super) fn group_stats(groups: &[GroupStats]) -> String {
    let one = |g: &GroupStats| {
        json!({
            "group_id": g.id,
            "ref_count": g.ref_count,
            "packets": count(g.packet_count),
            "bytes": count(g.byte_count),
            "duration": age(g.duration_s, g.duration_ns),
            "buckets": pairs(&g.buckets),
        })
    };
    line(groups.iter().map(one).collect())
}

/// An array of meters.
pub(super) fn meters(meters: &[Meter]) -> String {
    let band = |b: &Band| {
        let (ty, level) = match b.ty {
            BandType::Drop => ("drop", None),
            BandType::DscpRemark(level) => ("dscp_remark", Some(level)),
        };
        json!({ "type": ty, "rate": b.rate, "burst_size": b.burst_size, "prec_level": level })
    };
    let one = |m: &Meter| {
        let unit = if m.flags & flags::PKTPS != 0 { "pktps" } else { "kbps" };
        let bands: Vec<Value> = m.bands.iter().map(band).collect();
        json!({
            "meter": m.id,
            "unit": unit,
            "burst": m.flags & flags::BURST != 0,
            "stats": m.flags & flags::STATS != 0,
            "bands": bands,
        })
    };
    line(meters.iter().map(one).collect())
}

/// An array of counters of meters.
pub(super) fn meter_stats(meters: &[MeterStats]) -> String {
    let one = |m: &MeterStats| {
        json!({
            "meter": m.id,
            "flow_count": m.flow_count,
            "packets": count(m.packet_in_count),
            "bytes": count(m.byte_in_count),
            "duration": age(m.duration_s, m.duration_ns),
            "bands": pairs(&m.bands),
        })
    };
    line(meters.iter().map(one).collect())
}
