//! Rules and port counters as JSON, for programs (`--json`). Unknown counters are null.

use flow::text::{PortNames, format_match_with, format_port};
use ofp_actions::text::format_actions;
use openflow::msg::flow_stats::FlowStats;
use openflow::msg::port::PortStats;
use serde_json::{Value, json};

/// Commands with a JSON form.
pub(super) const COMMANDS: [&str; 2] = ["dump-flows", "dump-ports"];

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
    let count = |n: u64| if n == u64::MAX { Value::Null } else { n.into() };
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
