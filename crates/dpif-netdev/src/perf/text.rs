//! Iteration statistics as text, in the layout of stock switches.

use super::histogram::{self, BINS, Histogram};
use super::{Metrics, Pass, PerfShown};
use dpif::PmdStats;
use std::fmt::Write as _;

fn ratio(part: f64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}

fn percent(part: u64, whole: u64) -> f64 {
    ratio(part as f64 * 100.0, whole)
}

/// Statistics of a thread: start, its name as `head`, totals, and with metrics its histories and histograms.
pub(crate) fn show(p: &PerfShown, time: &str, head: &str, histograms: bool) -> String {
    let mut out =
        format!("\nTime: {time}\nMeasurement duration: {:.3} s\n\n{head}\n", p.duration_us as f64 / 1e6);
    totals(&mut out, p);
    packets(&mut out, p);
    if let Some(m) = &p.metrics {
        if histograms {
            out += "\nHistograms\n";
            histograms_of(&mut out, m, p);
        }
        if !m.iterations.is_empty() {
            out.push('\n');
            out += &iterations(m.iterations.iter().rev());
        }
        if !m.milliseconds.is_empty() {
            out.push('\n');
            milliseconds(&mut out, m);
        }
    }
    out
}

fn totals(out: &mut String, p: &PerfShown) {
    let us = |cycles: u64| if p.cycles_per_us > 0.0 { cycles as f64 / p.cycles_per_us } else { 0.0 };
    let s = &p.stats;
    // Sleep time is idle time elsewhere.
    let idle = s.idle_cycles.saturating_sub(p.slept_cycles);
    let used = s.busy_cycles + idle;
    let idle_iterations = p.iterations.saturating_sub(p.busy_iterations);
    let rows = [
        ("Iterations:", p.iterations, format!("{:.2} us/it", ratio(us(used + p.slept_cycles), p.iterations))),
        (
            "- Used TSC cycles:",
            used,
            format!("{:5.1} % of total cycles", ratio(us(used) * 100.0, p.duration_us)),
        ),
        ("- idle iterations:", idle_iterations, format!("{:5.1} % of used cycles", percent(idle, used))),
        (
            "- busy iterations:",
            p.busy_iterations,
            format!("{:5.1} % of used cycles", percent(s.busy_cycles, used)),
        ),
        ("- sleep iterations:", p.sleeps, format!("{:5.1} % of iterations", percent(p.sleeps, p.iterations))),
        (
            "Sleep time (us):",
            us(p.slept_cycles) as u64,
            format!("{:3.0} us/iteration avg.", ratio(us(p.slept_cycles), p.sleeps)),
        ),
    ];
    rows.iter().for_each(|(name, n, more)| row(out, name, *n, more));
}

fn row(out: &mut String, name: &str, n: u64, more: &str) {
    let _ = writeln!(out, "  {name:<20}{n:>12}  ({more})");
}

fn packets(out: &mut String, p: &PerfShown) {
    let s = &p.stats;
    // Packets per millisecond are thousands per second.
    let kpps = |packets: u64| ratio(packets as f64 * 1000.0, p.duration_us);
    if s.received > 0 {
        let each = s.busy_cycles_per_packet();
        row(out, "Rx packets:", s.received, &format!("{:.0} Kpps, {each:.0} cycles/pkt", kpps(s.received)));
        passes(out, s);
    } else {
        let _ = writeln!(out, "  {:<20}{:>12}", "Rx packets:", 0);
    }
    if s.sent_packets > 0 {
        row(out, "Tx packets:", s.sent_packets, &format!("{:.0} Kpps", kpps(s.sent_packets)));
        row(out, "Tx batches:", s.sent_batches, &format!("{:.2} pkts/batch", s.packets_per_batch()));
    } else {
        let _ = writeln!(out, "  {:<20}{:>12}\n", "Tx packets:", 0);
    }
}

fn passes(out: &mut String, s: &PmdStats) {
    let passes = s.received + s.recirculated;
    let share = |n: u64| format!("{:5.1} %", percent(n, passes));
    let upcall_us = ratio(s.answers_us as f64, s.answers);
    let each = ratio(passes as f64, s.received);
    row(out, "Datapath passes:", passes, &format!("{each:.2} passes/pkt"));
    row(out, "- PHWOL hits:", s.mark_hits, &share(s.mark_hits));
    row(out, "- MFEX Opt hits:", 0, &share(0));
    row(out, "- Simple Match hits:", 0, &share(0));
    row(out, "- EMC hits:", 0, &share(0));
    row(out, "- SMC hits:", s.cache_hits, &share(s.cache_hits));
    let hits = format!("{}, {:.2} subtbl lookups/hit", share(s.megaflow_hits), s.lookups_per_hit());
    row(out, "- Megaflow hits:", s.megaflow_hits, &hits);
    row(out, "- Upcalls:", s.upcalls, &format!("{}, {upcall_us:.1} us/upcall", share(s.upcalls)));
    row(out, "- Lost upcalls:", s.lost(), &share(s.lost()));
}

fn histograms_of(out: &mut String, m: &Metrics, p: &PerfShown) {
    let vhost = Histogram::of_zeros(&histogram::VHOST_FRAMES, m.sum.iterations);
    let all = [
        ("cycles/it", &m.iteration_cycles),
        ("packets/it", &m.iteration_packets),
        ("cycles/pkt", &m.packet_cycles),
        ("pkts/batch", &m.batch_packets),
        ("max vhost qlen", &vhost),
        ("upcalls/it", &m.iteration_upcalls),
        ("cycles/upcall", &m.upcall_cycles),
    ];
    line(out, all.map(|(name, _)| name.to_string()));
    for n in 0..BINS {
        line(
            out,
            all.map(|(_, histogram)| {
                let (wall, samples) = histogram.bin(n);
                format!("{:<8}  {samples:<11}", wall.map_or(">".to_string(), |w| w.to_string()))
            }),
        );
    }
    let _ = writeln!(out, "{}", "-".repeat(154));
    line(out, all.map(|(name, _)| name.trim_start_matches("max ").to_string()));
    let sum = &m.sum;
    let part = |part: u64, whole: u64| format!("{:.5}", ratio(part as f64, whole));
    let whole = |part: u64, whole: u64| part.checked_div(whole).unwrap_or(0).to_string();
    let upcall_cycles = ratio(p.stats.answers_us as f64 * p.cycles_per_us, p.stats.answers);
    line(
        out,
        [
            whole(sum.cycles, sum.iterations),
            part(sum.packets, sum.iterations),
            whole(m.packets_cycles, sum.packets),
            part(sum.packets, sum.bursts),
            part(0, sum.iterations),
            part(sum.upcalls, sum.iterations),
            format!("{upcall_cycles:.0}"),
        ],
    );
}

fn line(out: &mut String, cells: [String; 7]) {
    let cells = cells.map(|cell| format!("{cell:<21}"));
    let _ = writeln!(out, "   {}", cells.join("  "));
}

/// A table of iterations.
pub(super) fn iterations<'a>(passes: impl Iterator<Item = &'a Pass>) -> String {
    let mut out = format!("   {:<17}   {:<11}  {:<11}  {PASS_HEADINGS}\n", "iter", "cycles", "packets");
    for p in passes {
        let _ = writeln!(out, "   {:<17}   {:<11}  {:<11}  {}", p.number, p.cycles, p.packets, pass(p));
    }
    out
}

fn milliseconds(out: &mut String, m: &Metrics) {
    let _ = writeln!(
        out,
        "   {:<12}   {:<11}  {:<11}  {:<11}  {PASS_HEADINGS}",
        "ms", "iterations", "cycles/it", "Kpps"
    );
    for p in m.milliseconds.iter().rev() {
        let cycles = p.cycles.checked_div(p.iterations).unwrap_or(0);
        let (ms, iterations, kpps) = (p.number, p.iterations, p.packets);
        let _ = writeln!(out, "   {ms:<12}   {iterations:<11}  {cycles:<11}  {kpps:<11}  {}", pass(p));
    }
}

const PASS_HEADINGS: &str = "cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall";

/// The final columns of both tables.
fn pass(p: &Pass) -> String {
    let each = |part: u64, whole: u64| part.checked_div(whole).unwrap_or(0);
    let cells = [
        each(p.cycles, p.packets),
        each(p.packets, p.bursts),
        0,
        p.upcalls,
        each(p.answers_cycles, p.answers),
    ];
    cells.map(|n| format!("{n:<11}")).join("  ")
}
