//! Metrics that only Sluice has.

use super::Kind::{Counter, Gauge, Histogram};
use super::{Metric, Sink, number, row};
use crate::loop_times::Part;
use crate::metrics::facts::SessionFacts;
use crate::metrics::snapshot::{DatapathFacts, Snapshot};
use crate::upcall_times::{BOUNDS_US, Stage, Times};
use dpif::{CtStatistics, CtZoneCounts};

const DATAPATH: &[&str] = &["datapath"];
const SESSION: &[&str] = &["interface", "protocol"];
const ZONE: &[&str] = &["datapath", "zone"];

#[rustfmt::skip]
pub(super) const ROWS: &[Metric] = &[
    row("sluice_info", Gauge, &["version"], "Always 1, with the version.", |_, out| out.add(&[env!("CARGO_PKG_VERSION")], 1.0)),
    row("sluice_uptime_seconds", Gauge, &[], "Time since the start of the daemon.", |s, out| {
        out.add(&[], s.main.uptime_ms as f64 / 1e3);
    }),
    row("sluice_drops_total", Counter, &["datapath", "reason"], "Packets dropped by a datapath; reasons that occurred.", |s, out| {
        for datapath in &s.datapaths {
            let drops = datapath.sum.drops_by_name();
            drops.iter().for_each(|(reason, n)| out.add(&[&datapath.full_name, reason], *n as f64));
        }
    }),
    row("sluice_port_drops_total", Counter, &["bridge", "interface", "reason"],
        "Packets dropped that an interface received or should send; reasons that occurred.", |s, out| {
            for port in &s.ports {
                let bridge = &s.main.bridges[port.interface.bridge].name;
                port.drops.iter().for_each(|(reason, n)| out.add(&[bridge, &port.interface.name, reason], *n as f64));
            }
        }),
    row("sluice_port_upcalls_waiting", Gauge, &["bridge", "interface"],
        "Packets from an interface that wait for the slow path; only interfaces with some.", |s, out| {
            for port in s.ports.iter().filter(|port| port.waiting > 0) {
                let bridge = &s.main.bridges[port.interface.bridge].name;
                out.add(&[bridge, &port.interface.name], port.waiting as f64);
            }
        }),
    row("sluice_upcall_seconds", Histogram, &["stage"],
        "Time of first packets in the slow path by stage, since metrics are served: wait until a handler takes one, translate until \
         its actions are known, install until the datapath has the flow. Dummies have translate only.", |s, out| {
            for (stage, times) in Stage::ALL.into_iter().zip(s.times) {
                histogram(out, &[stage.name()], &times);
            }
        }),
    row("sluice_upcalls_answered_total", Counter, DATAPATH, "First packets that the slow path answered.", |s, out| {
        datapaths(s, out, |d| d.sum.answers as f64);
    }),
    row("sluice_upcall_answer_seconds_total", Counter, DATAPATH, "Time from their reception to the answer.", |s, out| {
        datapaths(s, out, |d| d.sum.answers_us as f64 / 1e6);
    }),
    row("sluice_flow_limit", Gauge, DATAPATH, "Most flows that the slow path keeps now.", |s, out| {
        datapaths(s, out, |d| d.flow_limit as f64);
    }),
    row("sluice_flow_dump_seconds", Gauge, DATAPATH, "Time of the last dump of all flows.", |s, out| {
        datapaths(s, out, |d| d.dump_ms as f64 / 1e3);
    }),
    row("sluice_masks_refused_total", Counter, DATAPATH, "Flows refused for the limit of masks of a port.", |s, out| {
        datapaths(s, out, |d| d.sum.masks_refused as f64);
    }),
    row("sluice_connections", Gauge, DATAPATH, "Tracked connections now.", |s, out| {
        tracked(s, |name, all| out.add(&[name], all.all.connections.into()));
    }),
    row("sluice_connections_limit", Gauge, DATAPATH, "Most tracked connections.", |s, out| {
        tracked(s, |name, all| out.add(&[name], all.maximum as f64));
    }),
    row("sluice_connections_created_total", Counter, DATAPATH, "Connections created.", |s, out| {
        tracked(s, |name, all| out.add(&[name], all.all.created as f64));
    }),
    row("sluice_connections_ended_total", Counter, DATAPATH, "Connections ended.", |s, out| {
        tracked(s, |name, all| out.add(&[name], all.all.ended as f64));
    }),
    row("sluice_connections_refused_total", Counter, &["datapath", "reason"], "Connections refused.", |s, out| {
        tracked(s, |name, all| all.all.refused_by_name().for_each(|(why, n)| out.add(&[name, why], n as f64)));
    }),
    row("sluice_zone_connections", Gauge, ZONE, "Connections of the zones with most; at most 60 zones.", |s, out| {
        zones(s, |name, number, zone| out.add(&[name, number], zone.counts.connections.into()));
    }),
    row("sluice_zone_connections_limit", Gauge, ZONE, "Most connections of these zones, where there is a limit.", |s, out| {
        zones(s, |name, number, zone| if let Some(limit) = zone.limit { out.add(&[name, number], limit.into()) });
    }),
    row("sluice_zone_connections_refused_total", Counter, ZONE, "Connections of these zones that were refused.", |s, out| {
        zones(s, |name, number, zone| out.add(&[name, number], zone.counts.refused.iter().sum::<u64>() as f64));
    }),
    row("sluice_link_session_live", Gauge, SESSION,
        "Whether a session of a link protocol holds its interface for live; protocols by their log modules.", |s, out| {
            sessions(s, out, |session| session.state.is_live);
        }),
    row("sluice_link_session_forwarding", Gauge, SESSION, "Whether such a session lets its interface forward.", |s, out| {
        sessions(s, out, |session| session.state.may_forward);
    }),
    row("sluice_link_packets_lost_total", Counter, &["protocol"], "Packets of link protocols dropped for a full queue.", |s, out| {
        s.main.lost.iter().for_each(|(protocol, n)| out.add(&[protocol.name()], *n as f64));
    }),
    row("sluice_openflow_connections", Gauge, &[], "OpenFlow connections.", |s, out| out.add(&[], s.main.connections as f64)),
    row("sluice_ineffective_settings", Gauge, &[],
        "Settings that are refused, have no effect or another one: `sluice status` lists them.", |s, out| {
            out.add(&[], s.main.ineffective as f64);
        }),
    row("sluice_main_loop_seconds", Histogram, &[],
        "Turns of the main loop, from the end of a wait to the next one; `sluice/loop-clear` clears this and the next two.", |s, out| {
            histogram(out, &[], &s.main.turns.turns);
        }),
    row("sluice_main_loop_longest_seconds", Gauge, &["part"], "The longest turn, with the part that took most of it.", |s, out| {
        if let Some(longest) = s.main.turns.longest {
            out.add(&[longest.part.name()], longest.us as f64 / 1e6);
        }
    }),
    row("sluice_main_loop_part_seconds_total", Counter, &["part"], "Time of the parts of all turns.", |s, out| {
        Part::ALL.iter().for_each(|part| out.add(&[part.name()], s.main.turns.parts[*part as usize].sum_us as f64 / 1e6));
    }),
    row("sluice_metrics_scrapes_total", Counter, &[], "Texts made before this one.", |s, out| out.add(&[], s.scrapes as f64)),
    row("sluice_metrics_seconds", Gauge, &[], "Time of the text before this one, on the thread of the metrics.", |s, out| {
        out.add(&[], s.last_us as f64 / 1e6);
    }),
    row("sluice_metrics_main_loop_seconds", Gauge, &[], "Time that this text cost the main loop.", |s, out| {
        out.add(&[], s.main.took_us as f64 / 1e6);
    }),
    row("sluice_metrics_clients_total", Counter, &["end"],
        "Connections that were evicted for others or timed out, and requests refused for unread replies.", |s, out| {
            s.server.iter().for_each(|(end, n)| out.add(&[end], *n as f64));
        }),
];

fn histogram(out: &mut dyn Sink, labels: &[&str], times: &Times) {
    let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let mut below = 0;
    let sums = times.buckets.iter().map(|n| {
        below += n;
        below
    });
    let buckets: Vec<_> = bounds.zip(sums).collect();
    out.add_histogram(labels, &buckets, times.sum_us as f64 / 1e6);
}

fn datapaths(s: &Snapshot, out: &mut dyn Sink, value: fn(&DatapathFacts) -> f64) {
    s.datapaths.iter().for_each(|datapath| out.add(&[&datapath.full_name], value(datapath)));
}

fn tracked(s: &Snapshot, mut each: impl FnMut(&str, &CtStatistics)) {
    let all = s.datapaths.iter().filter_map(|d| Some((&d.full_name, d.connections.as_ref()?)));
    all.for_each(|(name, connections)| each(name, connections));
}

fn zones(s: &Snapshot, mut each: impl FnMut(&str, &str, &CtZoneCounts)) {
    tracked(s, |name, all| all.zones.iter().for_each(|zone| each(name, &zone.zone.to_string(), zone)));
}

fn sessions(s: &Snapshot, out: &mut dyn Sink, is: fn(&SessionFacts) -> bool) {
    for session in &s.main.sessions {
        out.add(&[&session.interface, session.protocol.name()], number(is(session)));
    }
}
