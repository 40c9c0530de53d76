//! The results as a table: a line per value, a column per run, and ratios of this run to the others.

use std::fmt::Write as _;

use crate::model::{Measurement, PortRow, Run, lost, of_ports};

/// Width below which each comparison gets a separate table.
const NARROW_COLUMNS: usize = 34;
const CELL_COLUMNS: usize = 12;

/// A value of a run: its name, format and source.
struct Statistic {
    test: &'static str,
    name: &'static str,
    show: fn(f64) -> String,
    /// Whether a ratio of two runs is meaningful.
    ratio: bool,
    of: fn(&Run) -> Option<f64>,
}

fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    if us < 1000.0 { format!("{us:.2} µs") } else { format!("{:.2} ms", us / 1000.0) }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.01 { "<0.01 %".into() } else { format!("{percent:.2} %") }
}

fn count(number: f64) -> String {
    format!("{number:.0}")
}

fn per_s(rate: f64) -> String {
    if rate < 10_000.0 { format!("{rate:.0} /s") } else { format!("{:.1} k/s", rate / 1000.0) }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}")
}

macro_rules! of {
    ($($path:ident).+, $value:expr) => {
        |run| { let found = taken!(run, $($path).+)?; $value(found) }
    };
}
macro_rules! taken {
    ($run:ident, one) => {
        $run.one.as_ref()
    };
    ($run:ident, load) => {
        $run.load.as_ref()
    };
    ($run:ident, unloaded) => {
        $run.idle.as_ref().map(|idle| &idle.unloaded)
    };
    ($run:ident, loaded) => {
        $run.idle.as_ref().and_then(|idle| idle.loaded.as_ref())
    };
}
macro_rules! delays {
    ($test:literal, $path:ident) => {
        [
            statistic($test, "lost", percent, false, of!($path, |m: &Measurement| Some(m.loss()))),
            statistic($test, "min", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.min_ns))),
            statistic($test, "avg", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.avg_ns))),
            statistic($test, "max", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.max_ns))),
            statistic($test, "mdev", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.mdev_ns))),
            statistic($test, "p50", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.p50_ns))),
            statistic($test, "p99", us, true, of!($path, |m: &Measurement| delay_of(m, m.delays.p99_ns))),
        ]
    };
}

/// A delay, if any arrived.
fn delay_of(of: &Measurement, ns: f64) -> Option<f64> {
    (of.delays.count > 0).then_some(ns)
}

const fn statistic(
    test: &'static str,
    name: &'static str,
    show: fn(f64) -> String,
    ratio: bool,
    of: fn(&Run) -> Option<f64>,
) -> Statistic {
    Statistic { test, name, show, ratio, of }
}

const ONE: &str = "one port";
const ALL: &str = "all ports";
const LOAD: &str = "loaded port";
const UNLOADED: &str = "idle port, no load";
const LOADED: &str = "idle port, load";
const DAEMON: &str = "daemon";

const AVG: fn(&PortRow) -> f64 = |row| row.avg_ns;

/// The deviation of a statistic between ports, relative to its mean.
fn relative_deviation(rows: &[PortRow], statistic: fn(&PortRow) -> f64) -> Option<f64> {
    let (mean, deviation) = of_ports(rows, statistic);
    (mean > 0.0).then(|| deviation / mean)
}

fn all_ports() -> [Statistic; 6] {
    fn rows(run: &Run) -> Option<&[PortRow]> {
        run.all.as_deref().filter(|rows| !rows.is_empty())
    }
    [
        statistic(ALL, "ports", count, false, |run| Some(rows(run)?.len() as f64)),
        statistic(ALL, "lost", percent, false, |run| {
            let sum = |of: fn(&PortRow) -> u64| Some(rows(run)?.iter().map(of).sum::<u64>());
            Some(lost(sum(|row| row.sent)?, sum(|row| row.arrived)?))
        }),
        statistic(ALL, "avg of avgs", us, true, |run| Some(of_ports(rows(run)?, AVG).0)),
        statistic(ALL, "deviation", us, true, |run| Some(of_ports(rows(run)?, AVG).1)),
        statistic(ALL, "deviation/avg", times, false, |run| relative_deviation(rows(run)?, AVG)),
        statistic(ALL, "of p50: deviation/avg", times, false, |run| {
            relative_deviation(rows(run)?, |row| row.p50_ns)
        }),
    ]
}

fn load_figures() -> [Statistic; 8] {
    fn load(run: &Run) -> Option<&crate::model::LoadResults> {
        run.load.as_ref()?.load.as_ref()
    }
    fn beside(run: &Run) -> Option<&crate::model::LoadResults> {
        run.idle.as_ref()?.loaded.as_ref()?.load.as_ref()
    }
    fn rate(
        seen: Option<&crate::model::LoadResults>,
        number: fn(&crate::model::LoadResults) -> u64,
    ) -> Option<f64> {
        let seen = seen.filter(|seen| seen.seconds > 0.0)?;
        Some(number(seen) as f64 / seen.seconds)
    }
    fn load_lost(seen: Option<&crate::model::LoadResults>) -> Option<f64> {
        seen.map(|seen| lost(seen.offered, seen.delivered))
    }
    fn misses(measured: Option<&Measurement>) -> Option<f64> {
        Some(measured?.misses? as f64)
    }
    [
        statistic(LOAD, "port's load lost", percent, false, |run| {
            let load = load(run)?;
            Some(lost(load.port_offered, load.port_arrived))
        }),
        statistic(LOAD, "load sent", per_s, true, |run| rate(load(run), |l| l.offered)),
        statistic(LOAD, "load lost", percent, false, |run| load_lost(load(run))),
        statistic(LOAD, "misses counted", count, false, |run| misses(run.load.as_ref())),
        statistic(LOADED, "load sent", per_s, true, |run| rate(beside(run), |l| l.offered)),
        statistic(LOADED, "load lost", percent, false, |run| load_lost(beside(run))),
        statistic(LOADED, "misses counted", count, false, |run| misses(run.idle.as_ref()?.loaded.as_ref())),
        statistic(LOADED, "p99 to no load", times, false, |run| {
            let idle = run.idle.as_ref()?;
            let loaded = idle.loaded.as_ref()?;
            let before = idle.unloaded.delays.p99_ns;
            (before > 0.0 && loaded.delays.count > 0).then(|| loaded.delays.p99_ns / before)
        }),
    ]
}

fn daemon_figures() -> [Statistic; 4] {
    [
        statistic(DAEMON, "descriptors", count, true, |run| Some(run.daemon.as_ref()?.descriptors as f64)),
        statistic(DAEMON, "of these, sockets", count, true, |run| Some(run.daemon.as_ref()?.sockets as f64)),
        statistic(DAEMON, "more a port", times, true, |run| {
            let daemon = run.daemon.as_ref()?;
            let more = daemon.descriptors as f64 - daemon.descriptors_before as f64;
            (run.settings.ports > 0).then(|| more / run.settings.ports as f64)
        }),
        statistic(DAEMON, "threads", count, true, |run| Some(run.daemon.as_ref()?.threads as f64)),
    ]
}

fn figures() -> Vec<Statistic> {
    let mut all: Vec<Statistic> = Vec::new();
    all.extend(delays!("one port", one));
    all.extend(all_ports());
    let (load, loaded): (Vec<_>, Vec<_>) = load_figures().into_iter().partition(|f| f.test == LOAD);
    all.extend(delays!("loaded port", load));
    all.extend(load);
    all.extend(delays!("idle port, no load", unloaded));
    all.extend(delays!("idle port, load", loaded));
    all.extend(loaded);
    all.extend(daemon_figures());
    debug_assert!(all.iter().all(|f| [ONE, ALL, LOAD, UNLOADED, LOADED, DAEMON].contains(&f.test)));
    all
}

/// The table of `run` beside `others`, at most `width` columns wide if possible.
pub fn table(run: &Run, others: &[Run], width: usize) -> String {
    let cells = 1 + 2 * others.len();
    if others.len() > 1 && NARROW_COLUMNS + cells * CELL_COLUMNS > width {
        let each = others.iter().map(|other| one_table(run, std::slice::from_ref(other), width));
        return each.collect::<Vec<_>>().join("\n");
    }
    one_table(run, others, width)
}

fn one_table(run: &Run, others: &[Run], width: usize) -> String {
    let mut heads = vec![String::new(), run.name.clone()];
    for other in others {
        heads.extend([other.name.clone(), format!("{}/{}", run.name, other.name)]);
    }
    let mut out = String::new();
    let mut rows: Vec<Vec<String>> = vec![heads];
    let mut test = "";
    for statistic in figures() {
        let values: Vec<Option<f64>> = std::iter::once(run).chain(others).map(statistic.of).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        if test != statistic.test {
            test = statistic.test;
            rows.push(vec![test.to_string()]);
        }
        let show = |value: Option<f64>| value.map_or("-".into(), statistic.show);
        let mut row = vec![format!("  {}", statistic.name), show(values[0])];
        for value in &values[1..] {
            let ratio = values[0].zip(*value).filter(|(_, b)| statistic.ratio && *b > 0.0);
            row.extend([show(*value), ratio.map_or(String::new(), |(a, b)| times(a / b))]);
        }
        rows.push(row);
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &[String], at: usize| row.get(at).map_or(0, |c| c.chars().count());
    let mut widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0)).collect();
    // Names of runs come from the user: truncated to keep the lines intact.
    let room = width.saturating_sub(widths.first().copied().unwrap_or(0)) / columns.saturating_sub(1).max(1);
    widths.iter_mut().skip(1).for_each(|w| *w = (*w).min(room.saturating_sub(2).max(CELL_COLUMNS - 2)));
    for row in &rows {
        let mut line = String::new();
        for (at, width) in widths.iter().enumerate().take(row.len()) {
            let text: String =
                row[at].chars().take((*width).max(cell(row, 0) * usize::from(at == 0))).collect();
            let _infallible =
                if at == 0 { write!(line, "{text:<width$}") } else { write!(line, "  {text:>width$}") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Notes below the table.
pub fn remarks(run: &Run) -> Vec<String> {
    let mut out = Vec::new();
    let idle = run.idle.as_ref();
    let measured = [
        (ONE, run.one.as_ref()),
        (LOAD, run.load.as_ref()),
        (UNLOADED, idle.map(|idle| &idle.unloaded)),
        (LOADED, idle.and_then(|idle| idle.loaded.as_ref())),
    ];
    for (test, of) in measured.into_iter().filter_map(|(test, of)| Some((test, of?))) {
        let mut say = |number: u64, what: &str| {
            if number > 0 {
                out.push(format!("{test}: {number} {what}"));
            }
        };
        say(of.duplicates, "packets came more than once (counted once)");
        say(of.reordered, "packets came after a later one");
        say(of.foreign, "foreign frames arrived (not counted)");
        say(of.unstamped, "packets without a usable time stamp (the clock was set?); they count as arrived");
        say(of.unsent, "packets that the kernel would not send (not counted as lost)");
        say(of.dropped_before_switch, "packets of the measured port were dropped before the switch");
        say(of.dropped_by_tool, "packets did not fit this tool's own socket: losses are its own in part");
    }
    out.extend(run.notes.iter().cloned());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::sample;

    #[test]
    fn a_run_beside_another_with_ratios() {
        let text = table(&sample("new", 1.0), &[sample("old", 2.0)], 120);
        let line = |begin: &str, skip: usize| {
            text.lines().filter(|l| l.trim_start().starts_with(begin)).nth(skip).unwrap_or("").to_string()
        };
        let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line("new", 0)), ["new", "old", "new/old"]);
        assert_eq!(words(line("avg ", 0)), ["avg", "10.00", "µs", "20.00", "µs", "0.50"]);
        assert_eq!(words(line("lost", 0)), ["lost", "1.00", "%", "1.00", "%"]);
        assert_eq!(words(line("deviation/avg", 0)), ["deviation/avg", "0.10", "0.10"]);
        assert_eq!(
            words(line("port's load lost", 0)),
            ["port's", "load", "lost", "40.00", "%", "40.00", "%"]
        );
        assert_eq!(words(line("load sent", 0)), ["load", "sent", "50.0", "k/s", "50.0", "k/s", "1.00"]);
        assert_eq!(words(line("p99 to no load", 0)), ["p99", "to", "no", "load", "2.00", "2.00"]);
        assert_eq!(words(line("more a port", 0)), ["more", "a", "port", "1.10", "1.10", "1.00"]);
    }

    #[test]
    fn unmeasured_values_are_omitted() {
        let mut run = sample("a", 1.0);
        (run.all, run.load, run.idle, run.daemon) = (None, None, None, None);
        let text = table(&run, &[], 80);
        assert!(text.contains("one port") && !text.contains("all ports") && !text.contains("daemon"));
        let beside = table(&run, &[sample("b", 1.0)], 100);
        assert!(beside.lines().any(|l| l.contains("avg of avgs") && l.contains(" - ")));
    }

    #[test]
    fn narrow_terminals_get_a_table_for_each_comparison() {
        let (run, others) = (sample("run", 1.0), [sample("first", 2.0), sample("second", 3.0)]);
        let wide = table(&run, &others, 200);
        assert_eq!(wide.matches("one port").count(), 1);
        let narrow = table(&run, &others, 80);
        assert_eq!(narrow.matches("one port").count(), 2);
        assert!(narrow.lines().all(|l| l.chars().count() <= 80), "{narrow}");
        let long = sample(&"long name ".repeat(30), 1.0);
        assert!(table(&long, std::slice::from_ref(&long), 80).lines().all(|l| l.chars().count() <= 80));
    }

    #[test]
    fn remarks_name_missing_counters() {
        let mut run = sample("a", 1.0);
        run.one.as_mut().unwrap().foreign = 3;
        let text = remarks(&run).join("\n");
        assert!(text.contains("one port: 3 foreign frames") && text.contains("a note"), "{text}");
    }
}
