//! The view as tables, plain text and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::model::{Cell, DatapathView, Orders, PortView, Reasons, Stat, Table, ThreadView, View, ZoneView};
use crate::status::{scaled, span};
use crate::status_model::Session;

fn word(text: &str) -> Cell {
    Cell { text: if text.is_empty() { "-".to_string() } else { text.to_string() }, value: None }
}

fn figure(value: Stat, text: impl Fn(f64) -> String) -> Cell {
    Cell { text: value.map_or("-".to_string(), text), value }
}

fn rate(value: Stat) -> Cell {
    figure(value, scaled)
}

fn percent(value: Stat) -> Cell {
    figure(value, |share| format!("{:.1}%", share * 100.0))
}

fn average(value: Stat) -> Cell {
    figure(value, |x| format!("{x:.2}"))
}

/// The name of a part of a datapath; with several datapaths, after the datapath's name.
fn part(view: &View, datapath: &str, name: &str) -> Cell {
    if view.datapaths.len() > 1 { word(&format!("{datapath} {name}")) } else { word(name) }
}

/// The forwarding threads.
pub(crate) fn threads(view: &View) -> Table {
    let row = |t: &ThreadView| {
        vec![
            part(view, &t.datapath, &t.id),
            rate(t.packets),
            figure(t.cycles_per_packet, |x| format!("{x:.0}")),
            percent(t.busy),
            percent(t.cache),
            percent(t.megaflow),
            percent(t.miss),
            average(t.lookups_per_hit),
            average(t.packets_per_batch),
            rate(t.recirculated),
            rate(t.upcalls),
            rate(t.lost),
        ]
    };
    let headings = vec![
        "Thread",
        "Pkt/s",
        "Cyc/pkt",
        "Busy",
        "Cache",
        "Megaflow",
        "Miss",
        "Lookups/hit",
        "Pkt/batch",
        "Recirc/s",
        "Upcall/s",
        "Lost/s",
    ];
    Table { headings, words_last: false, rows: view.threads.iter().map(row).collect() }
}

/// The zones of connections, with their reasons for refusals in the last column.
pub(crate) fn zones(view: &View) -> Table {
    let row = |z: &ZoneView| {
        vec![
            Cell { value: Some(z.zone as f64), ..part(view, &z.datapath, &z.zone.to_string()) },
            figure(Some(z.connections as f64), |x| format!("{x:.0}")),
            figure(z.limit.map(|limit| limit as f64), |x| format!("{x:.0}")),
            rate(z.created),
            rate(z.ended),
            rate(z.refused),
            word(&reasons(&z.reasons)),
        ]
    };
    let headings = vec!["Zone", "Connections", "Limit", "New/s", "Ended/s", "Refused/s", "Refused by reason"];
    Table { headings, words_last: true, rows: view.zones.iter().map(row).collect() }
}

/// The ports, with their drop reasons in the last column.
pub(crate) fn ports(view: &View) -> Table {
    let row = |p: &PortView| {
        vec![
            word(&p.name),
            word(&p.bridge),
            word(&p.link),
            rate(p.rx_packets),
            rate(p.rx_bits),
            rate(p.tx_packets),
            rate(p.tx_bits),
            rate(p.dropped),
            figure(Some(p.waiting as f64), |x| format!("{x:.0}")),
            word(&p.error.as_ref().map_or_else(|| reasons(&p.drops), |error| format!("error: {error}"))),
        ]
    };
    let headings = vec![
        "Port",
        "Bridge",
        "Link",
        "Rx pkt/s",
        "Rx bit/s",
        "Tx pkt/s",
        "Tx bit/s",
        "Drop/s",
        "Queued",
        "Drops by reason",
    ];
    Table { headings, words_last: true, rows: view.ports.iter().map(row).collect() }
}

/// Current reasons by rate, highest first; else all reasons by count.
fn reasons(by: &Reasons) -> String {
    let by_rate = by.rates.iter().map(|(why, n)| (why, *n, format!("{why} {}/s", scaled(*n))));
    let in_all = by.totals.iter().map(|(why, n)| (why, *n as f64, format!("{why} {n}")));
    let mut all: Vec<_> = if by.rates.is_empty() { in_all.collect() } else { by_rate.collect() };
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    all.into_iter().map(|(.., text)| text).collect::<Vec<_>>().join(", ")
}

/// The first line.
pub(crate) fn head(view: &View) -> String {
    let version = if view.version.is_empty() { "of an unknown version" } else { &view.version };
    let up = view.uptime_ms.map(|ms| format!(", up {}", span(ms))).unwrap_or_default();
    let over = view.elapsed.map(|e| format!(", over {:.1} s", e.as_secs_f64())).unwrap_or_default();
    format!("Sluice {version}{up}{over}")
}

/// A line each for a datapath's flows, its upcalls, and its connections if they are known.
pub(crate) fn datapath(d: &DatapathView) -> Vec<String> {
    let a_second = |value: Stat| format!("{}/s", rate(value).text);
    let connections = d.connections.as_ref().map(|c| {
        format!(
            "Connections: {}, at most {}; {} created, {} ended, {} refused",
            c.connections,
            c.maximum,
            a_second(c.created),
            a_second(c.ended),
            a_second(c.refused)
        )
    });
    let lines = [
        format!(
            "Flows of {}: {} in {} masks, {} of at most {} kept, dumped in {} ms; hit {}, missed {}",
            d.name,
            d.flows,
            d.masks,
            d.installed,
            d.flow_limit,
            d.dump_duration_ms,
            a_second(d.hits),
            a_second(d.misses)
        ),
        format!(
            "Upcalls: {} answered after {}, {} lost",
            a_second(d.answers),
            figure(d.answer_us, |us| format!("{us:.0} us")).text,
            a_second(d.lost)
        ),
    ];
    lines.into_iter().chain(connections).collect()
}

/// All of it, for terminals that do not move.
pub(crate) fn plain(view: &View, by: Orders) -> String {
    // Writing to a string cannot fail.
    let mut out = head(view) + "\n";
    for line in view.datapaths.iter().flat_map(datapath) {
        out += &line;
        out.push('\n');
    }
    let zones = Some(zones(view)).filter(|zones| !zones.rows.is_empty());
    let tables = [(Some(threads(view)), by.threads), (zones, by.zones), (Some(ports(view)), by.ports)];
    for (mut table, by) in tables.into_iter().filter_map(|(table, by)| Some((table?, by))) {
        table.sort(by);
        out.push('\n');
        for row in table.aligned() {
            let _infallible = writeln!(out, "  {}", row.join("  ").trim_end());
        }
    }
    out
}

/// All of it as JSON; unknown values are null.
pub(crate) fn json(view: &View) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = writeln!(out, "{:#}", value(view));
    out
}

/// The value of [`json`].
pub(crate) fn value(view: &View) -> Value {
    let thread = |t: &ThreadView| {
        json!({
            "datapath": t.datapath, "id": t.id, "packets_per_s": t.packets, "cycles_per_packet": t.cycles_per_packet,
            "busy": t.busy, "cache_hits": t.cache, "megaflow_hits": t.megaflow, "misses": t.miss,
            "lookups_per_hit": t.lookups_per_hit, "packets_per_batch": t.packets_per_batch,
            "recirculated_per_s": t.recirculated, "upcalls_per_s": t.upcalls, "lost_per_s": t.lost,
        })
    };
    let port = |p: &PortView| {
        json!({
            "name": p.name, "bridge": p.bridge, "link": p.link, "rx_packets_per_s": p.rx_packets,
            "rx_bits_per_s": p.rx_bits, "tx_packets_per_s": p.tx_packets, "tx_bits_per_s": p.tx_bits,
            "drops_per_s": p.drops.rates, "drops": p.drops.totals, "upcalls_waiting": p.waiting, "error": p.error,
        })
    };
    let path = |d: &DatapathView| {
        json!({
            "name": d.name, "flows": d.flows, "masks": d.masks, "flows_kept": d.installed, "flow_limit": d.flow_limit,
            "hits_per_s": d.hits, "misses_per_s": d.misses, "lost_per_s": d.lost, "answers_per_s": d.answers,
            "answer_us": d.answer_us, "dump_duration_ms": d.dump_duration_ms,
            "connections": d.connections.as_ref().map(|c| json!({
                "connections": c.connections, "maximum": c.maximum, "created_per_s": c.created,
                "ended_per_s": c.ended, "refused_per_s": c.refused,
            })),
        })
    };
    let zone = |z: &ZoneView| {
        json!({
            "datapath": z.datapath, "zone": z.zone, "connections": z.connections, "limit": z.limit,
            "created_per_s": z.created, "ended_per_s": z.ended, "refused_per_s": z.refused,
            "refusals_per_s": z.reasons.rates, "refusals": z.reasons.totals,
        })
    };
    let list = |values: Vec<Value>| Value::Array(values);
    let session = |s: &Session| {
        json!({
            "interface": s.interface, "protocol": s.protocol, "live": s.live, "forwarding": s.forwarding,
        })
    };
    json!({
        "version": view.version,
        "uptime_ms": view.uptime_ms,
        "interval_s": view.elapsed.map(|e| e.as_secs_f64()),
        "datapaths": list(view.datapaths.iter().map(path).collect()),
        "threads": list(view.threads.iter().map(thread).collect()),
        "zones": list(view.zones.iter().map(zone).collect()),
        "ports": list(view.ports.iter().map(port).collect()),
        "sessions": list(view.sessions.iter().map(session).collect()),
    })
}
