//! A report of the running switch as one object, for `sluice status`; the `sluice` crate's model documents its
//! structure.

use super::instances::Instance;
use super::loop_times::TurnTimes;
use super::switch::Switch;
use dpif::{CtCounts, CtStatistics, CtZoneCounts, PmdId, PmdStats, PortStats};
use flow::{DpPort, OfPort};
use l2proto::Protocol;
use l2proto::protocol::LinkState;
use ofproto::view::BridgeView;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use sync::Ordering;
use sys::confine::Means;
use vswitch::Notice;
use vswitch::config::UnknownKey;

/// Zones with most connections, as many with most created and with most refused ones.
const ZONES: usize = 20;

/// The report.
pub(crate) fn report(switch: &Switch, turns: &TurnTimes, uptime_ms: u64) -> Value {
    let instances: Vec<_> = switch.instances().iter().collect();
    let datapaths: Vec<Value> = instances.iter().map(|i| datapath(i)).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_ms": uptime_ms,
        "main_loop": main_loop(turns),
        "confinement": confinement(),
        "datapaths": datapaths,
        "bridges": bridges(switch),
        "sessions": sessions(switch),
        "ineffective": ineffective(switch),
        "unknown_keys": unknown_keys(switch),
    })
}

/// Turns of the main loop, and the longest one.
fn main_loop(times: &TurnTimes) -> Value {
    let longest = times.longest.map(|longest| {
        json!({"us": longest.us, "at_ms": longest.at_ms, "part": longest.part.name(), "part_us": longest.part_us})
    });
    json!({"turns": times.turns.buckets.iter().sum::<u64>(), "longest": longest})
}

/// Whether threads are confined, and refused system calls.
fn confinement() -> Value {
    let means = sys::confine::means();
    let has = |part: fn(&Means) -> &Result<(), String>| means.is_some_and(|means| part(means).is_ok());
    json!({
        "calls": has(|means| &means.calls),
        "files": has(|means| &means.files),
        "capabilities": means.is_some(),
        "refused": sys::confine::refused_calls(),
    })
}

/// Settings that are refused, have no effect or another one.
fn ineffective(switch: &Switch) -> Vec<Value> {
    let of_setting =
        |n: Notice| json!({"table": n.table, "row": n.name, "setting": n.setting, "message": n.message});
    switch.planner().ineffective().into_iter().map(of_setting).collect()
}

/// Sessions of link protocols, with their effect on their interface.
fn sessions(switch: &Switch) -> Vec<Value> {
    let of_session = |(interface, protocol, state): (&str, Protocol, LinkState)| {
        json!({
            "interface": interface,
            "protocol": protocol.name(),
            "live": state.is_live,
            "forwarding": state.may_forward,
        })
    };
    switch.facts().sessions().map(of_session).collect()
}

/// Keys that no setting has.
fn unknown_keys(switch: &Switch) -> Vec<Value> {
    let of_key = |UnknownKey { table, column, key, row, rows }: &UnknownKey| json!({"table": table, "row": row, "column": column, "key": key, "rows": rows});
    switch.planner().desired().unknown_keys.iter().map(of_key).collect()
}

fn datapath(instance: &Instance) -> Value {
    let stats = instance.pmd_stats();
    let sum = instance.totals_with(&stats);
    let threads: Vec<Value> = stats.iter().map(|(id, s)| thread(*id, s)).collect();
    json!({
        "name": instance.name(),
        "flows": sum.flows,
        "masks": sum.masks,
        "hits": sum.hits(),
        "misses": sum.upcalls + sum.lost(),
        "lost": sum.lost(),
        "drops": drops(sum.drops_by_name()),
        "threads": threads,
        "connections": instance.datapath.connections().and_then(|c| c.statistics(ZONES)).map(connections),
        "upcalls": {
            "misses": sum.upcalls,
            "refused": sum.lost(),
            "answers": sum.answers,
            "answers_us": sum.answers_us,
            "installed": instance.backer.ukeys.len(),
            "flow_limit": instance.backer.limits.flow_limit.load(Ordering::Relaxed),
            "dump_duration_ms": instance.revalidator_stats().dump_duration_ms,
        },
    })
}

fn connections(tracked: CtStatistics) -> Value {
    let zone =
        |zone: &CtZoneCounts| json!({"zone": zone.zone, "limit": zone.limit, "counts": counts(&zone.counts)});
    let zones: Vec<Value> = tracked.zones.iter().map(zone).collect();
    json!({
        "maximum": tracked.maximum,
        "all": counts(&tracked.all),
        "zones_used": tracked.zones_used,
        "zones": zones,
    })
}

fn counts(counts: &CtCounts) -> Value {
    let refused: Map<String, Value> =
        counts.refused_by_name().map(|(why, n)| (why.to_string(), json!(n))).collect();
    json!({
        "connections": counts.connections,
        "created": counts.created,
        "ended": counts.ended,
        "refused": refused,
    })
}

/// Drops by reason.
fn drops(by_name: Vec<(&'static str, u64)>) -> Map<String, Value> {
    by_name.into_iter().map(|(name, n)| (name.to_string(), json!(n))).collect()
}

fn thread(id: PmdId, s: &PmdStats) -> Value {
    let id = match id {
        PmdId::Main => "main".to_string(),
        PmdId::Core(n) => n.to_string(),
        PmdId::None => "none".to_string(),
    };
    json!({
        "id": id,
        "received": s.received,
        "template_hits": s.template_hits,
        "cache_hits": s.cache_hits,
        "megaflow_hits": s.megaflow_hits,
        "subtable_lookups": s.subtable_lookups,
        "upcalls": s.upcalls,
        "upcalls_lost": s.lost(),
        "recirculated": s.recirculated,
        "sent_packets": s.sent_packets,
        "sent_batches": s.sent_batches,
        "flows": s.flows,
        "masks": s.masks,
        "busy_cycles": s.busy_cycles,
        "idle_cycles": s.idle_cycles,
    })
}

fn bridges(switch: &Switch) -> Vec<Value> {
    let facts = switch.planner().facts();
    let config = switch.planner().desired();
    let counted =
        switch.instances().iter().map(|i| (i.name(), i.datapath.all_port_stats().into_iter().collect()));
    let counted: HashMap<&str, HashMap<DpPort, PortStats>> = counted.collect();
    let of_bridge = |(instance, b): &(&Instance, Arc<BridgeView>)| {
        let stats = |n: &DpPort| counted.get(instance.name())?.get(n).copied();
        let known = config.bridges.get(&*b.name).and_then(|c| facts.bridges.get(&c.row));
        let mut ports: Vec<Value> =
            b.ports.ports.values().map(|p| port(instance, p, p.dp_port.as_ref().and_then(stats))).collect();
        ports.extend(switch.planner().failed_interfaces().filter_map(|(name, error)| {
            let mine = config
                .bridges
                .get(&*b.name)?
                .ports
                .values()
                .any(|p| p.interfaces.iter().any(|i| i.name == name));
            mine.then(|| json!({"name": name, "ofport": -1, "error": error}))
        }));
        json!({
            "name": &*b.name,
            "datapath_id": known.and_then(|k| k.datapath_id.clone()),
            "ports": ports,
        })
    };
    switch.instances().bridges().iter().map(of_bridge).collect()
}

/// `counted`: counters of the datapath.
fn port(instance: &Instance, p: &ofproto::ports::Port, counted: Option<PortStats>) -> Value {
    let s = counted.filter(|_| !p.is_counted_here()).unwrap_or_else(|| translated(p));
    let drops = drops(s.drops_by_name());
    json!({
        "name": p.name,
        "ofport": if p.of_port == OfPort::LOCAL { 65534 } else { p.of_port.0 },
        "type": p.type_name,
        "link": if p.link_down { "down" } else { "up" },
        "rx_packets": s.rx_packets,
        "rx_bytes": s.rx_bytes,
        "tx_packets": s.tx_packets,
        "tx_bytes": s.tx_bytes,
        "rx_dropped": known(s.rx_dropped),
        "tx_dropped": known(s.tx_dropped),
        "drops": drops,
        "upcalls_waiting": p.dp_port.map_or(0, |n| instance.datapath.upcalls_waiting(n)),
        "error": Value::Null,
    })
}

/// A counter, unless its port does not have it.
fn known(n: u64) -> Option<u64> {
    (n != u64::MAX).then_some(n)
}

fn translated(p: &ofproto::ports::Port) -> PortStats {
    let c = &p.counters;
    PortStats {
        rx_packets: c.rx[0].load(Ordering::Relaxed),
        rx_bytes: c.rx[1].load(Ordering::Relaxed),
        tx_packets: c.tx[0].load(Ordering::Relaxed),
        tx_bytes: c.tx[1].load(Ordering::Relaxed),
        ..PortStats::default()
    }
}
