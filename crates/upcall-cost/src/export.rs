//! The report for other programs: JSON, CSV, and the list of matched sets.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use upcall_events::Stage;

use crate::Analysed;
use crate::gather::NONE;
use crate::join::UpcallTrace;
use crate::metrics::{MAIN, Measured, Metric, STAGES, time};
use crate::packet::brief;
use crate::report::{Fairness, Outlier, Report, Share, packet_of, port_of, thread_of};
use crate::stats::{PERCENTILES, Summary};

/// Version of the JSON form: increased when a name changes its meaning or is removed.
const JSON_VERSION: u32 = 1;

/// The report as JSON: durations in nanoseconds.
pub fn json(report: &Report) -> Value {
    let events = report.events.iter().map(|events| {
        let counts = json!({"usable": events.usable, "total": events.total, "missed": events.lost});
        (events.stage.name().to_owned(), counts)
    });
    let upcalls = &report.upcalls;
    let turns = report.turns.iter().enumerate().filter(|(_, turns)| **turns > 0);
    json!({
        "version": JSON_VERSION,
        "name": report.name,
        "switch": report.origin.as_ref().map(|origin| json!({
            "pid": origin.pid,
            "program": origin.program,
            "source": origin.source,
            "wall_offset_ns": origin.wall_offset_ns,
        })),
        "span_ns": report.span_ns,
        "events": Value::Object(events.collect()),
        "upcalls": {
            "matched": upcalls.matched,
            "ambiguous": upcalls.ambiguous,
            "single": upcalls.single,
            "missed": upcalls.missed,
            "action": upcalls.action,
        },
        "batches": Value::Object(turns.map(|(size, turns)| (size.to_string(), json!(turns))).collect()),
        "figures": measured(&report.main),
        "stages": measured(&report.stages),
        "threads": report.threads.iter().map(share).collect::<Vec<_>>(),
        "ports": report.ports.iter().map(share).collect::<Vec<_>>(),
        "fairness": {"threads": fairness(report.thread_fairness), "ports": fairness(report.port_fairness)},
        "outliers": {
            "count": report.outliers_all,
            "beyond_ns": report.outlier_limit_ns,
            "list": report.outliers.iter().map(outlier).collect::<Vec<_>>(),
        },
        "telling": report.overhead.map(|(events, spent_ns)| json!({"events": events, "spent_ns": spent_ns})),
        "notes": report.notes,
    })
}

fn measured(metrics: &[Measured]) -> Value {
    Value::Object(metrics.iter().map(|m| (m.metric.key.to_owned(), summary(&m.summary))).collect())
}

fn summary(summary: &Summary) -> Value {
    if summary.count == 0 {
        return json!({"count": 0});
    }
    let mut object = Map::new();
    object.insert("count".into(), json!(summary.count));
    object.insert("min_ns".into(), json!(summary.min));
    object.insert("max_ns".into(), json!(summary.max));
    object.insert("mean_ns".into(), json!(summary.mean));
    object.insert("variance_ns2".into(), json!(summary.variance));
    object.insert("sd_ns".into(), json!(summary.sd));
    object.insert("median_ns".into(), json!(summary.median));
    object.insert("p25_ns".into(), json!(summary.quartiles.0));
    object.insert("p75_ns".into(), json!(summary.quartiles.1));
    for (percent, value) in PERCENTILES.iter().zip(&summary.percentiles) {
        object.insert(format!("p{percent}_ns"), json!(value));
    }
    Value::Object(object)
}

fn share(share: &Share) -> Value {
    json!({
        "name": share.name,
        "number": (share.number != NONE).then_some(share.number),
        "upcalls": share.upcalls,
        "refused": share.refused,
        "not_taken": share.not_received,
        "wait": summary(&share.wait),
        "way": summary(&share.packet_path),
    })
}

fn fairness(fairness: Fairness) -> Value {
    json!({"upcalls": fairness.counts, "mean_delays": fairness.delays})
}

fn outlier(outlier: &Outlier) -> Value {
    json!({
        "at_ns": outlier.at_ns,
        "way_ns": outlier.ns,
        "worst": {"from": outlier.worst.from.name(), "to": outlier.worst.to.name(), "ns": outlier.worst.ns},
        "port": outlier.port,
        "thread": outlier.thread,
        "batch": outlier.batch,
        "packet_bytes": outlier.packet_bytes,
        "packet": outlier.packet,
    })
}

/// A CSV field (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn metrics() -> impl Iterator<Item = Metric> {
    MAIN.into_iter().chain(STAGES)
}

/// Writes the matched sets of recordings as CSV, one per row: port and thread, time of each stage
/// (`CLOCK_MONOTONIC`), and all durations, in nanoseconds.
///
/// # Errors
///
/// Errors of `out`.
pub fn csv(recordings: &[Analysed], out: &mut impl Write) -> io::Result<()> {
    let mut names: Vec<String> = [
        "recording",
        "upcall",
        "why",
        "port",
        "port_name",
        "thread",
        "thread_name",
        "batch",
        "packet_bytes",
        "error",
    ]
    .map(String::from)
    .to_vec();
    names.extend(Stage::ALL.iter().map(|stage| format!("at_{}_ns", stage.name().replace('-', "_"))));
    names.extend(metrics().map(|metric| format!("{}_ns", metric.key)));
    write!(out, "{}\r\n", names.join(","))?;
    for recording in recordings {
        for trace in recording.joined.traces.iter().filter(|trace| trace.matched()) {
            write!(out, "{}\r\n", csv_row(recording, trace).join(","))?;
        }
    }
    Ok(())
}

fn csv_row(recording: &Analysed, trace: &UpcallTrace) -> Vec<String> {
    let gathered = &recording.gathered;
    let events = &gathered.events;
    let seen: Vec<_> =
        Stage::ALL.iter().filter_map(|stage| trace.event(*stage)).map(|event| &events[event]).collect();
    let first = |of: &dyn Fn(&crate::gather::Kept) -> u64| {
        seen.iter().map(|event| of(event)).find(|value| *value != 0)
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let port = port_of(gathered, trace);
    let thread = thread_of(gathered, trace);
    let why = seen.iter().map(|event| event.why).find(|why| *why != upcall_events::Why::Unknown);
    let mut row = vec![
        field(&recording.report.name),
        first(&|event| event.upcall).map(|id| format!("{id:016x}")).unwrap_or_default(),
        why.map_or("", |why| why.name()).to_owned(),
        number(gathered.ports.get(port as usize).map(|port| u64::from(port.number))),
        field(&gathered.ports.get(port as usize).map(|port| port.label()).unwrap_or_default()),
        number(thread.map(u64::from)),
        field(&thread.map(|thread| gathered.thread_name(thread)).unwrap_or_default()),
        number(first(&|event| u64::from(event.batch))),
        packet_of(gathered, trace).1.to_string(),
        number(first(&|event| u64::from(event.error))),
    ];
    row.extend(Stage::ALL.iter().map(|stage| number(time(events, trace, *stage))));
    row.extend(metrics().map(|metric| number(metric.value(events, trace))));
    row
}

/// Writes the matched sets, one per line: port, thread, packet, and the nanoseconds of each stage.
///
/// # Errors
///
/// Errors of `out`.
pub fn sets(recording: &Analysed, out: &mut impl Write) -> io::Result<()> {
    let gathered = &recording.gathered;
    let start = gathered.events.first().map_or(0, |event| event.time_ns);
    writeln!(out, "Matched sets (nanoseconds since each began)")?;
    for trace in recording.joined.traces.iter().filter(|trace| trace.matched()) {
        let mut stages: Vec<(u64, Stage)> = Vec::new();
        stages.extend(
            Stage::ALL.iter().filter_map(|stage| Some((time(&gathered.events, trace, *stage)?, *stage))),
        );
        stages.sort();
        let first = stages.first().map_or(0, |(at, _)| *at);
        let (packet, bytes) = packet_of(gathered, trace);
        let seen = if packet == NONE { &[][..] } else { gathered.bytes.get(packet) };
        let shown: Vec<String> =
            stages.iter().map(|(at, stage)| format!("{} +{}", stage.name(), at - first)).collect();
        writeln!(
            out,
            "  {:.9} {} {} {bytes} bytes, {}: {}",
            (first - start) as f64 / 1e9,
            gathered.port_name(port_of(gathered, trace)),
            thread_of(gathered, trace).map_or("-".into(), |thread| gathered.thread_name(thread)),
            brief(seen),
            shown.join(", ")
        )?;
    }
    Ok(())
}
