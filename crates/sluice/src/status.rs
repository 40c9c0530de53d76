//! `sluice status`: the state of the switch on one screen, from two readings of `sluice/status`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::appctl::{Answer, DEFAULT_TARGET, call};
use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print};
use crate::status_model::{Confinement, Connections, Counts, Datapath, LongestTurn, Port, StatusModel, Zone};

const PROGRAM: &str = "sluice status";
/// The control command of the daemon.
const COMMAND: &str = "sluice/status";
/// Advice if no daemon answers.
const UNREACHED: &str = "no daemon answers (start one with `sluiced --pidfile --detach`, or name its control socket with \
                         --target; OVS_RUNDIR says where they are)";
/// Longest time between the readings.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Arguments of `sluice status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print the daemon's answer as JSON instead: counters, no rates
    #[arg(long)]
    json: bool,
    /// Interval for rates, such as 500ms or 2s; 0 shows no rates
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// The daemon: its name, or the path of its control socket
    #[arg(short, long, default_value = DEFAULT_TARGET)]
    target: String,
    /// Timeout for a reply in seconds; 0 waits for ever
    #[arg(long, default_value_t = 10)]
    timeout: u32,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text}: not a time such as 500ms or 2s, at most an hour");
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let interval = Duration::try_from_secs_f64(number * unit_s).map_err(|_| bad())?;
    if interval > INTERVAL_MAX { Err(bad()) } else { Ok(interval) }
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok((text, effective)) => {
            print(&text);
            u8::from(!effective)
        }
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

/// Queries a daemon once, with a timeout in seconds; 0 is none.
pub(crate) fn read(target: &str, timeout_s: u32) -> Result<Value> {
    let answer = call(target, COMMAND, &[], Deadline::after_s(timeout_s));
    match answer.map_err(|error| if error.is::<TimedOut>() { error } else { error.context(UNREACHED) })? {
        Answer::Text(text) => serde_json::from_str(&text)
            .map_err(|error| anyhow!("{target}: the answer to {COMMAND} is not JSON: {error}")),
        Answer::Error(text) => {
            bail!(
                "{target} is another switch: it answers {COMMAND} with: {}; `sluice status` and `sluice top` need sluiced, \
                 `sluice appctl` and `sluice dpctl` work with this one",
                text.trim_end()
            )
        }
    }
}

/// The text, and whether all settings have their effect.
fn run(options: &Options) -> Result<(String, bool)> {
    let read = || read(&options.target, options.timeout);
    let first = read()?;
    let before = StatusModel::from_json(&first).map_err(anyhow::Error::msg)?;
    if options.json {
        return Ok((format!("{first:#}\n"), before.ineffective.is_empty()));
    }
    if options.interval.is_zero() {
        return Ok((screen(&before, None), before.ineffective.is_empty()));
    }
    let start = Instant::now();
    std::thread::sleep(options.interval);
    let now = StatusModel::from_json(&read()?).map_err(anyhow::Error::msg)?;
    Ok((screen(&now, Some((&before, start.elapsed()))), now.ineffective.is_empty()))
}

/// The earlier reading and how long ago it was.
type Before<'a> = Option<(&'a StatusModel, Duration)>;

fn confinement_line(Confinement { parts, refused }: &Confinement) -> String {
    match (parts.is_empty(), refused) {
        (true, _) => "Threads: not confined".to_string(),
        (false, 0) => format!("Threads: confined by {}", parts.join(", ")),
        (false, _) => {
            format!("Threads: confined by {}; {refused} calls refused, see the log", parts.join(", "))
        }
    }
}

fn screen(now: &StatusModel, before: Before<'_>) -> String {
    let mut out = String::new();
    let version = if now.version.is_empty() { "of an unknown version" } else { &now.version };
    let up = now.uptime_ms.map(|ms| format!(", up {}", span(ms))).unwrap_or_default();
    // Writing to a string cannot fail.
    let _infallible = writeln!(out, "Sluice {version}{up}");
    if let Some(LongestTurn { us, part, part_us }) = &now.longest_turn {
        let ms = |us: u64| us as f64 / 1e3;
        let _infallible =
            writeln!(out, "Main loop: longest turn {:.1} ms, {:.1} ms of it {part}", ms(*us), ms(*part_us));
    }
    if let Some(confinement) = &now.confinement {
        let _infallible = writeln!(out, "{}", confinement_line(confinement));
    }
    for path in &now.datapaths {
        let old = before.and_then(|(before, elapsed)| {
            Some((before.datapaths.iter().find(|old| old.name == path.name)?, elapsed))
        });
        datapath(&mut out, path, old);
    }
    for bridge in &now.bridges {
        let id = if bridge.datapath_id.is_empty() { "none" } else { &bridge.datapath_id };
        let _infallible = writeln!(out, "\nBridge {} (datapath id {id})", bridge.name);
        let old = |name: &str| {
            let (before, elapsed) = before?;
            let bridge = before.bridges.iter().find(|old| old.name == bridge.name)?;
            Some((bridge.ports.iter().find(|port| port.name == name)?, elapsed))
        };
        let mut rows = vec![port_headings(before.is_some())];
        rows.extend(bridge.ports.iter().map(|port| port_row(port, old(&port.name), before.is_some())));
        columns(&mut out, &rows);
        for port in &bridge.ports {
            port_notes(&mut out, port);
        }
    }
    if !now.ineffective.is_empty() {
        out.push_str("\nSettings that are refused, have no effect or another one:\n");
        now.ineffective.iter().for_each(|setting| out.extend(["  ", &setting.line()]));
    }
    if !now.unknown_keys.is_empty() {
        out.push_str("\nKeys of other programs, or mistyped ones:\n");
        now.unknown_keys.iter().for_each(|key| out.extend(["  ", &key.line()]));
    }
    out
}

fn datapath(out: &mut String, path: &Datapath, before: Option<(&Datapath, Duration)>) {
    let seen = path.hits.saturating_add(path.misses);
    let _infallible = writeln!(
        out,
        "Datapath {}: {} flows, {} masks; {} packets hit ({}), {} missed, {} lost",
        path.name,
        path.flows,
        path.masks,
        path.hits,
        percent(path.hits, seen),
        path.misses,
        path.lost
    );
    let upcalls = &path.upcalls;
    let _infallible = writeln!(
        out,
        "Upcalls: {} misses, {} refused; {} flows installed, at most {} at once",
        upcalls.misses, upcalls.refused, upcalls.installed, upcalls.flow_limit
    );
    if let Some(tracked) = &path.connections {
        let old = before.and_then(|(before, elapsed)| Some((before.connections.as_ref()?, elapsed)));
        connections(out, tracked, old);
    }
    threads(out, path, before);
}

/// Maximum number of zones shown by connections, and as many by refusals.
const ZONES_SHOWN: usize = 10;

fn connections(out: &mut String, tracked: &Connections, before: Option<(&Connections, Duration)>) {
    let all = &tracked.all;
    let _infallible = writeln!(
        out,
        "Connections: {}, at most {}; {} created, {} ended, {} refused{}",
        all.connections,
        tracked.maximum,
        all.created,
        all.ended,
        all.refused(),
        reasons(&all.refused, " (", ")"),
    );
    let mut zones: Vec<&Zone> = tracked.zones.iter().collect();
    // Stable: of equal zones, those with lower numbers come first.
    zones.sort_by_key(|zone| Reverse(zone.counts.refused()));
    let refusing = zones.iter().take(ZONES_SHOWN).filter(|zone| zone.counts.refused() > 0);
    let refusing: Vec<u64> = refusing.map(|zone| zone.zone).collect();
    zones.sort_by_key(|zone| (Reverse(zone.counts.connections), zone.zone));
    let mut place = 0..;
    zones.retain(|zone| place.next() < Some(ZONES_SHOWN) || refusing.contains(&zone.zone));
    if zones.is_empty() {
        return;
    }
    let words = match before {
        Some(_) => ["Zone", "Connections", "Limit", "New/s", "Ended/s", "Refused/s", "Refused"].to_vec(),
        None => ["Zone", "Connections", "Limit", "Created", "Ended", "Refused"].to_vec(),
    };
    let mut rows = vec![words.into_iter().map(String::from).collect()];
    for zone in &zones {
        let old = before.map(|(before, elapsed)| {
            (before.zones.iter().find(|old| old.zone == zone.zone).map(|old| &old.counts), elapsed)
        });
        rows.push(zone_row(zone, old));
    }
    out.push('\n');
    columns(out, &rows);
    let others = tracked.zones_used.saturating_sub(zones.len() as u64);
    if others > 0 {
        let _infallible = writeln!(out, "  other zones: {others}");
    }
}

/// `before`: with rates, or without them if the zone was not listed.
fn zone_row(zone: &Zone, before: Option<(Option<&Counts>, Duration)>) -> Vec<String> {
    let now = &zone.counts;
    let limit = zone.limit.map_or("-".to_string(), |limit| limit.to_string());
    let mut row = vec![zone.zone.to_string(), now.connections.to_string(), limit];
    match before {
        Some((Some(old), elapsed)) => {
            let of = |counter: fn(&Counts) -> u64| scaled(rate(counter(old), counter(now), elapsed));
            row.extend([of(|c| c.created), of(|c| c.ended), of(Counts::refused), now.refused().to_string()]);
        }
        Some((None, _)) => row.extend(["-".into(), "-".into(), "-".into(), now.refused().to_string()]),
        None => row.extend([now.created, now.ended, now.refused()].map(|n| n.to_string())),
    }
    row
}

/// Non-zero counts by reason between two texts; nothing if there are none.
fn reasons(counts: &BTreeMap<String, u64>, before: &str, after: &str) -> String {
    let counted: Vec<String> =
        counts.iter().filter(|(_, n)| **n > 0).map(|(why, n)| format!("{why} {n}")).collect();
    if counted.is_empty() { String::new() } else { format!("{before}{}{after}", counted.join(", ")) }
}

fn threads(out: &mut String, path: &Datapath, before: Option<(&Datapath, Duration)>) {
    if path.threads.is_empty() {
        return;
    }
    let words =
        ["Thread", "Received", "Rx/s", "Cache", "Megaflow", "Subtables/hit", "Upcalls", "Lost", "Busy"];
    let mut rows = vec![words.map(String::from).to_vec()];
    for thread in &path.threads {
        let old = before.and_then(|(before, elapsed)| {
            Some((before.threads.iter().find(|old| old.id == thread.id)?, elapsed))
        });
        let rate =
            old.map_or("-".into(), |(old, elapsed)| scaled(rate(old.received, thread.received, elapsed)));
        // Counts passes: a recirculated packet is looked up again.
        let lookups = thread.cache_hits.saturating_add(thread.megaflow_hits).saturating_add(thread.upcalls);
        let cycles = thread.busy_cycles.saturating_add(thread.idle_cycles);
        rows.push(vec![
            thread.id.clone(),
            thread.received.to_string(),
            rate,
            percent(thread.cache_hits, lookups),
            percent(thread.megaflow_hits, lookups),
            ratio(thread.subtable_lookups, thread.megaflow_hits),
            thread.upcalls.to_string(),
            thread.upcalls_lost.to_string(),
            percent(thread.busy_cycles, cycles),
        ]);
    }
    out.push('\n');
    columns(out, &rows);
}

fn port_headings(rates: bool) -> Vec<String> {
    let words = match rates {
        true => ["Port", "OfPort", "Type", "Link", "Rx pkt/s", "Rx bit/s", "Tx pkt/s", "Tx bit/s", "Dropped"],
        false => {
            ["Port", "OfPort", "Type", "Link", "Rx packets", "Rx bytes", "Tx packets", "Tx bytes", "Dropped"]
        }
    };
    words.map(String::from).to_vec()
}

/// All packets that were dropped at a port.
fn dropped(port: &Port) -> u64 {
    port.drops.values().fold(0, |sum: u64, n| sum.saturating_add(*n))
}

fn port_row(port: &Port, old: Option<(&Port, Duration)>, rates: bool) -> Vec<String> {
    let or_dash = |text: &str| if text.is_empty() { "-".to_string() } else { text.to_string() };
    let mut row = vec![
        port.name.clone(),
        port.ofport.map_or("-".into(), |n| n.to_string()),
        or_dash(&port.kind),
        or_dash(&port.link),
    ];
    match old {
        Some((old, elapsed)) => {
            let of = |a: u64, b: u64| rate(a, b, elapsed);
            row.push(scaled(of(old.rx_packets, port.rx_packets)));
            row.push(scaled(of(old.rx_bytes, port.rx_bytes) * 8.0));
            row.push(scaled(of(old.tx_packets, port.tx_packets)));
            row.push(scaled(of(old.tx_bytes, port.tx_bytes) * 8.0));
        }
        // The port is new since the first reading.
        None if rates => row.extend(["-"; 4].map(String::from)),
        None => {
            let counters = [port.rx_packets, port.rx_bytes, port.tx_packets, port.tx_bytes];
            row.extend(counters.map(|n| n.to_string()));
        }
    }
    row.push(dropped(port).to_string());
    row
}

fn port_notes(out: &mut String, port: &Port) {
    out.push_str(&reasons(&port.drops, &format!("  {} dropped: ", port.name), "\n"));
    if let Some(error) = &port.error {
        let _infallible = writeln!(out, "  {} error: {error}", port.name);
    }
}

/// Aligned columns: the first to the left, numbers to the right.
fn columns(out: &mut String, rows: &[Vec<String>]) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _infallible = match number {
                0 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Per second; 0 if the counter decreased (the daemon restarted).
fn rate(before: u64, now: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

/// With k, M, G or T, three to four digits.
pub(crate) fn scaled(x: f64) -> String {
    let mut x = x;
    for unit in ["", "k", "M", "G"] {
        if x < 999.5 {
            let decimals = if unit.is_empty() || x >= 99.95 { 0 } else { 1 };
            return format!("{x:.decimals$}{unit}");
        }
        x /= 1000.0;
    }
    format!("{x:.1}T")
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.2}", part as f64 / whole as f64) }
}

/// A time span in its two largest units.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m {s}s"),
        (0, h, m, _) => format!("{h}h {m}m"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn model(packets: u64) -> StatusModel {
        let port = json!({"name": "p0", "ofport": 1, "type": "system", "link": "up", "rx_packets": packets,
            "rx_bytes": packets * 1000, "tx_packets": 0, "tx_bytes": 0,
            "drops": {"rules": 3, "tx_down": 2, "meter": 0}, "error": null});
        let broken = json!({"name": "p1", "error": "no such device"});
        let thread = json!({"id": "pmd-c00", "received": packets, "cache_hits": 90, "megaflow_hits": 8,
            "subtable_lookups": 12, "upcalls": 2, "upcalls_lost": 0, "busy_cycles": 1, "idle_cycles": 3});
        StatusModel::from_json(&json!({"version": "0.1.0", "uptime_ms": 61_000,
            "main_loop": {"turns": 9, "longest": {"us": 12_340, "at_ms": 5, "part": "routes", "part_us": 11_000}},
            "confinement": {"calls": true, "files": false, "capabilities": true, "refused": 0},
            "datapaths": [{"name": "netdev@ovs-netdev", "flows": 5, "masks": 2, "hits": 98, "misses": 2, "lost": 0,
                "threads": [thread], "upcalls": {"misses": 2, "refused": 1, "installed": 2, "flow_limit": 200_000}}],
            "bridges": [{"name": "br0", "datapath_id": "00000000000000aa", "ports": [port, broken]}]}))
        .unwrap()
    }

    #[test]
    fn the_screen() {
        let (before, now) = (model(100), model(12_600));
        let expected = "\
Sluice 0.1.0, up 1m 1s
Main loop: longest turn 12.3 ms, 11.0 ms of it routes
Threads: confined by system calls, capabilities
Datapath netdev@ovs-netdev: 5 flows, 2 masks; 98 packets hit (98.0%), 2 missed, 0 lost
Upcalls: 2 misses, 1 refused; 2 flows installed, at most 200000 at once

  Thread   Received  Rx/s  Cache  Megaflow  Subtables/hit  Upcalls  Lost   Busy
  pmd-c00     12600  6.2k  90.0%      8.0%           1.50        2     0  25.0%

Bridge br0 (datapath id 00000000000000aa)
  Port  OfPort    Type  Link  Rx pkt/s  Rx bit/s  Tx pkt/s  Tx bit/s  Dropped
  p0         1  system    up      6.2k     50.0M         0         0        5
  p1         -       -     -         0         0         0         0        0
  p0 dropped: rules 3, tx_down 2
  p1 error: no such device
";
        assert_eq!(screen(&now, Some((&before, Duration::from_secs(2)))), expected);
        let totals = screen(&now, None);
        assert!(totals.contains("Rx packets") && totals.contains("12600000"), "{totals}");
    }

    #[test]
    fn the_confinement_of_threads() {
        let line = |parts: &[&'static str], refused| {
            confinement_line(&Confinement { parts: parts.to_vec(), refused })
        };
        assert_eq!(line(&[], 0), "Threads: not confined");
        assert_eq!(line(&["files"], 0), "Threads: confined by files");
        assert_eq!(line(&["files"], 2), "Threads: confined by files; 2 calls refused, see the log");
    }

    fn counts(connections: u64, created: u64, refused: u64) -> Value {
        json!({"connections": connections, "created": created, "ended": created - connections,
            "refused": {"full": 0, "zone_limit": refused, "port_share": 1}})
    }

    fn tracking(created: u64, zones: &[(u64, u64)]) -> StatusModel {
        let zone =
            |(zone, n): &(u64, u64)| json!({"zone": zone, "limit": 9, "counts": counts(*n, created, *zone)});
        let zones: Vec<Value> = zones.iter().map(zone).collect();
        let connections = json!({"maximum": 100, "zones_used": zones.len() + 40, "zones": zones,
            "all": counts(3, created, 7)});
        let unknown = json!({"name": "system@ovs-system", "connections": null});
        let own = json!({"name": "netdev@ovs-netdev", "connections": connections});
        StatusModel::from_json(&json!({"datapaths": [unknown, own]})).unwrap()
    }

    #[test]
    fn connections_by_zone() {
        let before = tracking(10, &[(1, 3)]);
        let mut now = tracking(20, &[(1, 3), (2, 5)]);
        if let Some(tracked) = &mut now.datapaths[1].connections {
            tracked.zones[1].limit = None;
        }
        let shown = screen(&now, Some((&before, Duration::from_secs(2))));
        let expected = "
Connections: 3, at most 100; 20 created, 17 ended, 8 refused (port_share 1, zone_limit 7)

  Zone  Connections  Limit  New/s  Ended/s  Refused/s  Refused
  2               5      -      -        -          -        3
  1               3      9      5        5          0        2
  other zones: 40
";
        assert!(shown.ends_with(expected), "{shown}");
        // The other datapath does not count.
        assert_eq!(shown.matches("Connections: ").count(), 1);
        let totals = screen(&now, None);
        assert!(totals.contains("  Zone  Connections  Limit  Created  Ended  Refused\n"), "{totals}");
        assert!(totals.contains("  1               3      9       20     17        2\n"), "{totals}");
    }

    #[test]
    fn the_list_of_zones_is_bounded() {
        // Higher numbers have more refusals and fewer connections.
        let zones: Vec<(u64, u64)> = (1..=60).map(|n| (n, 100 - n)).collect();
        let shown = screen(&tracking(1000, &zones), None);
        let numbers = shown.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        assert_eq!(numbers.collect::<Vec<_>>(), (1..=10).chain(51..=60).collect::<Vec<_>>());
        assert!(shown.ends_with("  other zones: 80\n"), "{shown}");
        let none = screen(&tracking(10, &[]), None);
        assert!(none.contains("Connections: 3") && !none.contains("Zone"), "{none}");
    }

    #[test]
    fn settings_without_effect_come_last() {
        let of = |table: &str, row: &str, setting: &str| json!({"table": table, "row": row, "setting": setting, "message": "no"});
        let all = [of("Open_vSwitch", "", "other_config:dpdk-init"), of("Bridge", "br0", "sflow")];
        let key = |row: &str, key: &str, rows: u64| json!({"table": "Port", "row": row, "column": "other_config", "key": key, "rows": rows});
        let keys = [key("p1", "net_uuid", 3), key("p2", "bond-primry", 1)];
        let model = json!({"version": "1", "ineffective": all, "unknown_keys": keys});
        let model = StatusModel::from_json(&model).unwrap();
        let expected = "\
Sluice 1

Settings that are refused, have no effect or another one:
  Open_vSwitch . other_config:dpdk-init: no
  Bridge br0 sflow: no

Keys of other programs, or mistyped ones:
  Port p1 other_config:net_uuid: no setting has this key, also in 2 other rows
  Port p2 other_config:bond-primry: no setting has this key (did you mean 'bond-primary'?)
";
        assert_eq!(screen(&model, None), expected);
    }

    #[test]
    fn a_reply_of_another_version_is_shown_partially() {
        let model =
            StatusModel::from_json(&json!({"bridges": [{}, {"ports": "x"}], "datapaths": 7})).unwrap();
        assert!(screen(&model, None).starts_with("Sluice of an unknown version\n"));
        assert!(StatusModel::from_json(&json!([])).is_err());
    }

    #[test]
    fn numbers_for_people() {
        for (x, text) in
            [(0.0, "0"), (999.0, "999"), (999.6, "1.0k"), (1e6, "1.0M"), (123e9, "123G"), (5e15, "5000.0T")]
        {
            assert_eq!(scaled(x), text);
        }
        for (ms, text) in [(0, "0s"), (59_999, "59s"), (3_600_000, "1h 0m"), (90_000_000, "1d 1h")] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn intervals() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_interval("0"), Ok(Duration::ZERO));
        for bad in ["", "s", "-1s", "1h", "nan", "inf", "1e9s", "4000"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
