//! The report as text: tables, histograms, lists.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::metrics::{Measured, PathSegment};
use crate::report::{Fairness, Report, Share};
use crate::stats::{Bucket, PERCENTILES, Summary, histogram};

/// Longest bar of a histogram.
const BAR: usize = 40;
/// Maximum listed ports; the others are in JSON and CSV.
const PORTS_MAX: usize = 20;
/// Turns larger than this share a row.
const BATCH_MAX: usize = 64;

/// Microseconds with three digits.
pub(crate) fn us(ns: f64) -> String {
    format!("{:.3}", ns / 1e3)
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun.
fn many(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A table without lines: the first `left` columns left-aligned, numbers right-aligned.
pub(crate) fn table(
    left: &[usize],
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let side = if left.contains(&index) { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    let lines: Vec<String> = table.lines().map(|line| format!("  {}", line.trim_end())).collect();
    lines.join("\n") + "\n"
}

/// The whole report. `buckets`: of each histogram; `outliers`: number listed.
pub fn full(report: &Report, buckets: usize, outliers: usize) -> String {
    let mut out = heading(report);
    notes(&mut out, report);
    events(&mut out, report);
    if report.upcalls.matched == 0 {
        line(&mut out, "\nNo upcall has two events that belong together: there is nothing to measure.");
        return out;
    }
    shares(&mut out, "Upcalls handled per thread", &report.threads, report.thread_fairness);
    batches(&mut out, &report.turns);
    measured(&mut out, "Cost of upcalls (µs; variance in µs²)", &report.main);
    measured(&mut out, "Stage by stage (µs; variance in µs²)", &report.stages);
    whereto(&mut out, report);
    for metric in report.main.iter().filter(|measured| measured.summary.count > 0) {
        let _infallible = writeln!(out, "\nHistogram: {} (µs)", metric.metric.title);
        out += &bars(&histogram(&metric.values, buckets));
    }
    shares(&mut out, "Ports", &report.ports, report.port_fairness);
    slowest(&mut out, report, outliers);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn heading(report: &Report) -> String {
    let origin = report.origin.as_ref().map_or("an unknown switch".to_owned(), |origin| {
        format!("{} (process {}), reported by {}", origin.program, origin.pid, source_name(&origin.source))
    });
    let events: u64 = report.events.iter().map(|events| events.total).sum();
    let mut out = format!(
        "{}: {origin}: {} events in {:.3} s\n",
        report.name,
        grouped(events),
        report.span_ns as f64 / 1e9
    );
    if let Some((events, spent_ns)) = report.overhead.filter(|(events, _)| *events > 0) {
        let share = if report.span_ns == 0 { 0.0 } else { spent_ns as f64 / report.span_ns as f64 * 100.0 };
        let _infallible = writeln!(
            out,
            "Tracing cost {:.0} ns an event: {} ms in all, {share:.3} % of one processor",
            spent_ns as f64 / events as f64,
            us(spent_ns as f64 / 1e3)
        );
    }
    out
}

/// Name of a source.
fn source_name(source: &str) -> &str {
    match source {
        "ring" => "the daemon's event ring",
        "bpf" => "probes (eBPF)",
        other => other,
    }
}

fn notes(out: &mut String, report: &Report) {
    for note in &report.notes {
        let _infallible = writeln!(out, "NOTE: {note}");
    }
}

fn events(out: &mut String, report: &Report) {
    line(out, "\nEvents (usable/total) [missed]");
    for events in &report.events {
        let _infallible = writeln!(
            out,
            "  {:<14} {:>12}/{:>12} [{:>10}]",
            events.stage.name(),
            events.usable,
            events.total,
            events.lost
        );
    }
    let upcalls = &report.upcalls;
    let _infallible = writeln!(
        out,
        "Upcalls: {} matched ({} missed, {} by action), {} ambiguous, {} with one event only",
        grouped(upcalls.matched),
        grouped(upcalls.missed),
        grouped(upcalls.action),
        grouped(upcalls.ambiguous),
        grouped(upcalls.single)
    );
}

fn shares(out: &mut String, title: &str, shares: &[Share], fairness: Fairness) {
    let _infallible = writeln!(out, "\n{title} (wait: miss to handler, way: total; µs)");
    if shares.is_empty() {
        line(out, "  not reported");
        return;
    }
    let all: u64 = shares.iter().map(|share| share.upcalls).sum();
    let rows = shares.iter().take(PORTS_MAX).map(|share| {
        let percent = share.upcalls as f64 / all.max(1) as f64 * 100.0;
        vec![
            share.name.clone(),
            grouped(share.upcalls),
            format!("{percent:.1} %"),
            grouped(share.refused),
            grouped(share.not_received),
            known(&share.wait, share.wait.mean),
            known(&share.wait, share.wait.p99() as f64),
            known(&share.packet_path, share.packet_path.mean),
            known(&share.packet_path, share.packet_path.p99() as f64),
        ]
    });
    let heads = ["name", "upcalls", "share", "refused", "not taken", "wait mean", "p99", "way mean", "p99"];
    *out += &table(&[0], &heads, rows);
    if shares.len() > PORTS_MAX {
        let _infallible = writeln!(out, "  … and {} more (all in --json)", shares.len() - PORTS_MAX);
    }
    let _infallible = writeln!(
        out,
        "  Jain's index (1 is even): upcalls {}, mean delays {}",
        index(fairness.counts),
        index(fairness.delays)
    );
}

/// A value of a summary in microseconds; empty without values.
fn known(summary: &Summary, ns: f64) -> String {
    if summary.count == 0 { "-".into() } else { us(ns) }
}

pub(crate) fn index(index: Option<f64>) -> String {
    index.map_or("-".into(), |index| format!("{index:.3}"))
}

fn batches(out: &mut String, turns: &[u64]) {
    let all: u64 = turns.iter().sum();
    let upcalls: u64 = turns.iter().enumerate().map(|(size, turns)| size as u64 * turns).sum();
    if all == 0 {
        return;
    }
    let mean = upcalls as f64 / all as f64;
    let _infallible = writeln!(out, "\nUpcalls per batch ({} batches, {mean:.2} on average)", grouped(all));
    let most = turns.iter().copied().max().unwrap_or_default();
    let larger: u64 = turns.iter().skip(BATCH_MAX + 1).sum();
    let rows = turns.iter().copied().enumerate().take(BATCH_MAX + 1).filter(|(_, turns)| *turns > 0);
    for (size, turns) in rows {
        let _infallible = writeln!(out, "  {size:>4} {turns:>10} {}", bar(turns, most));
    }
    if larger > 0 {
        let _infallible = writeln!(out, "  >{BATCH_MAX:>3} {larger:>10} {}", bar(larger, most));
    }
}

fn bar(count: u64, most: u64) -> String {
    let length = (u128::from(count) * BAR as u128).div_ceil(u128::from(most.max(1))) as usize;
    "█".repeat(length.min(BAR))
}

fn bars(buckets: &[Bucket]) -> String {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or_default() as u64;
    let rows = buckets.iter().map(|bucket| {
        let (from, to) = (us(bucket.from as f64), us(bucket.to as f64));
        format!("  {from:>12} - {to:>12} {:>10} {}\n", bucket.count, bar(bucket.count as u64, most))
    });
    rows.collect()
}

/// The cells of a summary, in the order of [`SUMMARY_HEADINGS`].
fn summary_cells(summary: &Summary) -> Vec<String> {
    let mut cells = vec![
        grouped(summary.count as u64),
        us(summary.min as f64),
        us(summary.max as f64),
        us(summary.mean),
        format!("{:.3}", summary.variance / 1e6),
        us(summary.sd),
        us(summary.median),
    ];
    cells.extend(summary.percentiles.iter().map(|value| us(*value as f64)));
    cells
}

const SUMMARY_HEADINGS: [&str; 7] = ["count", "min", "max", "mean", "variance", "SD", "median"];

fn measured(out: &mut String, title: &str, metrics: &[Measured]) {
    let _infallible = writeln!(out, "\n{title}");
    let percentiles = PERCENTILES.map(|percent| format!("p{percent}"));
    let mut headings = vec![""];
    headings.extend(SUMMARY_HEADINGS);
    headings.extend(percentiles.iter().map(String::as_str));
    let rows = metrics.iter().map(|measured| {
        let mut row = vec![measured.metric.title.to_owned()];
        match measured.summary.count {
            0 => {
                row.push("0".into());
                row.resize(headings.len(), "-".into());
            }
            _ => row.extend(summary_cells(&measured.summary)),
        }
        row
    });
    *out += &table(&[0], &headings, rows);
}

/// Share of each stage in the total time, the largest first.
fn parts(report: &Report) -> Vec<(&'static str, f64)> {
    // Put sent and put done are beside the packet's path.
    let all = report.packet_path.mean * report.packet_path.count as f64;
    let beside = ["translated_to_put_sent", "put_sent_to_put_done", "miss_to_on_wire"];
    let stages = report.stages.iter().filter(|measured| !beside.contains(&measured.metric.key));
    let mut parts: Vec<_> = stages
        .map(|m| (m.metric.title, m.summary.mean * m.summary.count as f64 / all.max(1.0)))
        .filter(|(_, share)| *share > 0.0)
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts
}

fn whereto(out: &mut String, report: &Report) {
    let parts = parts(report);
    if !parts.is_empty() {
        let shown: Vec<String> =
            parts.iter().map(|(title, share)| format!("{title} {:.1} %", share * 100.0)).collect();
        let _infallible = writeln!(out, "  Share of the stages: {}", shown.join(", "));
    }
}

/// Name of a part of the path, as in the metrics.
fn part(part: &PathSegment) -> String {
    format!("{} → {}", part.from.name(), part.to.name()).replace('-', " ")
}

fn slowest(out: &mut String, report: &Report, most: usize) {
    if report.outliers_all == 0 {
        line(out, "\nOutliers: none");
        return;
    }
    let _infallible = writeln!(
        out,
        "\nOutliers: {} upcalls took more than {} µs (three times the distance of the quartiles above the upper one)",
        grouped(report.outliers_all),
        us(report.outlier_limit_ns as f64)
    );
    let rows = report.outliers.iter().take(most).map(|outlier| {
        vec![
            format!("{:.6}", outlier.at_ns as f64 / 1e9),
            us(outlier.ns as f64),
            part(&outlier.worst),
            us(outlier.worst.ns as f64),
            outlier.port.clone(),
            outlier.thread.clone(),
            if outlier.batch == 0 { "-".into() } else { outlier.batch.to_string() },
            outlier.packet_bytes.to_string(),
            outlier.packet.clone(),
        ]
    });
    let heads = ["at s", "way µs", "worst stage", "µs", "port", "thread", "batch", "bytes", "packet"];
    *out += &table(&[2, 4, 5, 8], &heads, rows);
    if report.outliers.len() > most {
        let _infallible = writeln!(out, "  … (--outliers NUMBER lists more)");
    }
}

/// The report in at most twelve lines.
pub fn summary(report: &Report) -> String {
    let upcalls = &report.upcalls;
    let lost: u64 = report.events.iter().map(|events| events.lost).sum();
    let refused: u64 = report.ports.iter().map(|port| port.refused).sum();
    let mut out = format!(
        "{} of {}, taken by {} in {:.1} s; {} refused, {} ambiguous, {} events lost\n",
        many(upcalls.matched + upcalls.ambiguous, "upcall"),
        many(report.ports.len() as u64, "port"),
        many(report.threads.len() as u64, "thread"),
        report.span_ns as f64 / 1e9,
        grouped(refused),
        grouped(upcalls.ambiguous),
        grouped(lost)
    );
    let rows = report.main.iter().chain(report.stages.last()).filter(|m| m.summary.count > 0).map(|m| {
        let s = &m.summary;
        vec![
            m.metric.title.to_owned(),
            grouped(s.count as u64),
            us(s.median),
            us(s.mean),
            us(s.p99() as f64),
            us(s.max as f64),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        line(&mut out, "  nothing to measure: no upcall has two events that belong together");
        return out;
    }
    out += &table(&[0], &["µs", "count", "median", "mean", "p99", "max"], rows);
    whereto(&mut out, report);
    let (ports, threads) = (report.port_fairness, report.thread_fairness);
    let _infallible = writeln!(
        out,
        "  Evenness (Jain's index, 1 is even) of waits per port {}, of upcalls per thread {}",
        index(ports.delays),
        index(threads.counts)
    );
    if let Some(slow) = report.outliers.first() {
        let _infallible = writeln!(
            out,
            "  Slowest: {} µs, of that {} µs {} ({}, port {}, {})",
            us(slow.ns as f64),
            us(slow.worst.ns as f64),
            part(&slow.worst),
            slow.packet,
            slow.port,
            slow.thread
        );
    }
    if let Some(note) = report.notes.first() {
        let _infallible = writeln!(out, "  NOTE: {note}");
    }
    out
}

/// Recordings side by side; ratios are to the first.
pub fn comparison(reports: &[Report]) -> String {
    let Some(base) = reports.first() else { return String::new() };
    let mut out = format!("Comparison (µs; ratios to {})\n", base.name);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let metrics =
        |report: &Report| -> Vec<Measured> { report.main.iter().chain(&report.stages).cloned().collect() };
    let base_figures = metrics(base);
    let of: Vec<Vec<Measured>> = reports.iter().map(metrics).collect();
    for (index, metric) in base_figures.iter().enumerate() {
        if of.iter().all(|metrics| metrics[index].summary.count == 0) {
            continue;
        }
        for (report, metrics) in reports.iter().zip(&of) {
            let (now, then) = (&metrics[index].summary, &metric.summary);
            let first = std::ptr::eq(report, base);
            let ratio = |now: f64, then: f64| {
                if first || then == 0.0 || now == 0.0 { "-".into() } else { format!("{:.3}", now / then) }
            };
            let shown = |ns: f64| if now.count == 0 { "-".into() } else { us(ns) };
            rows.push(vec![
                if first { metric.metric.title.to_owned() } else { String::new() },
                report.name.clone(),
                grouped(now.count as u64),
                shown(now.mean),
                shown(now.sd),
                shown(now.median),
                shown(now.p99() as f64),
                shown(now.max as f64),
                ratio(now.mean, then.mean),
                ratio(now.median, then.median),
                ratio(now.p99() as f64, then.p99() as f64),
            ]);
        }
    }
    let heads =
        ["", "recording", "count", "mean", "SD", "median", "p99", "max", "mean ×", "median ×", "p99 ×"];
    out += &table(&[0, 1], &heads, rows);
    let rows = reports.iter().map(|report| {
        let sum = |of: fn(&Share) -> u64| grouped(report.ports.iter().map(of).sum());
        vec![
            report.name.clone(),
            grouped(report.upcalls.matched),
            grouped(report.upcalls.ambiguous),
            sum(|port| port.refused),
            sum(|port| port.not_received),
            self::index(report.port_fairness.delays),
            self::index(report.thread_fairness.counts),
            grouped(report.outliers_all),
        ]
    });
    let heads =
        ["recording", "upcalls", "ambiguous", "refused", "not taken", "port Jain", "thread Jain", "outliers"];
    out.push('\n');
    out += &table(&[0], &heads, rows);
    for report in reports {
        for note in &report.notes {
            let _infallible = writeln!(out, "NOTE: {}: {note}", report.name);
        }
    }
    out
}
