//! The view of `sluice top`, computed from two readings of `sluice/status`: rates from differences, shares of
//! them. Pure.
//!
//! A counter that decreased was cleared, or belongs to another run: its rate is unknown, never negative.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::status_model::{Connections, Counts, Datapath, Port, Session, StatusModel, Thread, Zone};

/// Per second, or a share; `None` when it is not known.
pub(crate) type Stat = Option<f64>;

/// The switch over one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// Version of the daemon.
    pub(crate) version: String,
    /// Since its start.
    pub(crate) uptime_ms: Option<u64>,
    /// Length of the interval; `None` after only one reading.
    pub(crate) elapsed: Option<Duration>,
    /// In the daemon's order.
    pub(crate) datapaths: Vec<DatapathView>,
    /// In the daemon's order.
    pub(crate) threads: Vec<ThreadView>,
    /// The busiest zones of all connection trackers, those with most connections first.
    pub(crate) zones: Vec<ZoneView>,
    /// Ports of all bridges.
    pub(crate) ports: Vec<PortView>,
    /// Sessions of link protocols.
    pub(crate) sessions: Vec<Session>,
}

/// Flows and upcalls of a datapath.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DatapathView {
    pub(crate) name: String,
    pub(crate) flows: u64,
    pub(crate) masks: u64,
    /// Flows that the slow path keeps, and may keep.
    pub(crate) installed: u64,
    pub(crate) flow_limit: u64,
    pub(crate) hits: Stat,
    pub(crate) misses: Stat,
    pub(crate) lost: Stat,
    /// Upcalls answered, and how long each waited.
    pub(crate) answers: Stat,
    pub(crate) answer_us: Stat,
    pub(crate) dump_duration_ms: u64,
    /// `None` when they are not known.
    pub(crate) connections: Option<ConnectionsView>,
}

/// Tracked connections of a datapath.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConnectionsView {
    pub(crate) connections: u64,
    pub(crate) maximum: u64,
    pub(crate) created: Stat,
    pub(crate) ended: Stat,
    pub(crate) refused: Stat,
}

/// A zone of connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ZoneView {
    pub(crate) datapath: String,
    pub(crate) zone: u64,
    pub(crate) connections: u64,
    /// `None` is no limit.
    pub(crate) limit: Option<u64>,
    pub(crate) created: Stat,
    pub(crate) ended: Stat,
    /// Refused connections, for all reasons; `None` when it is not known.
    pub(crate) refused: Stat,
    pub(crate) reasons: Reasons,
}

/// Events by reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reasons {
    /// Non-zero rates over the interval.
    pub(crate) rates: BTreeMap<String, f64>,
    /// Non-zero counts since the start.
    pub(crate) totals: BTreeMap<String, u64>,
}

/// A forwarding thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadView {
    pub(crate) datapath: String,
    pub(crate) id: String,
    pub(crate) packets: Stat,
    pub(crate) cycles_per_packet: Stat,
    /// Shares from 0 to 1: of its time, then of its lookups.
    pub(crate) busy: Stat,
    pub(crate) cache: Stat,
    pub(crate) megaflow: Stat,
    pub(crate) miss: Stat,
    pub(crate) lookups_per_hit: Stat,
    pub(crate) packets_per_batch: Stat,
    pub(crate) recirculated: Stat,
    pub(crate) upcalls: Stat,
    pub(crate) lost: Stat,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortView {
    pub(crate) bridge: String,
    pub(crate) name: String,
    pub(crate) link: String,
    pub(crate) rx_packets: Stat,
    pub(crate) rx_bits: Stat,
    pub(crate) tx_packets: Stat,
    pub(crate) tx_bits: Stat,
    /// Dropped packets for all reasons; `None` when it is not known.
    pub(crate) dropped: Stat,
    /// Drops since the port's creation.
    pub(crate) drops: Reasons,
    /// Upcalls in its queue.
    pub(crate) waiting: u64,
    pub(crate) error: Option<String>,
}

/// Differences of counters.
#[derive(Clone, Copy)]
struct Span(f64);

impl Span {
    /// Per second.
    fn rate(self, before: u64, now: u64) -> Stat {
        let more = now.checked_sub(before)?;
        (self.0 > 0.0).then(|| more as f64 / self.0)
    }
}

/// The sum of the rates, and all by reason; without rates if one is not known.
fn by_reason(before: Option<(&BTreeMap<String, u64>, Span)>, now: &BTreeMap<String, u64>) -> (Stat, Reasons) {
    let rates: Option<BTreeMap<String, f64>> = before.and_then(|(before, span)| {
        let of = |(why, n): (&String, &u64)| {
            let old = before.get(why).copied().unwrap_or(0);
            Some((why.clone(), span.rate(old, *n)?))
        };
        now.iter().map(of).collect()
    });
    let sum = rates.as_ref().map(|rates| rates.values().fold(0.0, |sum, n| sum + n));
    let rates = rates.unwrap_or_default().into_iter().filter(|(_, n)| *n > 0.0).collect();
    let totals = now.iter().filter(|(_, n)| **n > 0).map(|(why, n)| (why.clone(), *n)).collect();
    (sum, Reasons { rates, totals })
}

/// The part of a whole that grew, both by differences.
fn share(part: Option<u64>, whole: Option<u64>) -> Stat {
    let (part, whole) = (part?, whole?);
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl View {
    /// One reading: totals, no rates.
    pub(crate) fn first(now: &StatusModel) -> View {
        View::of(now, None)
    }

    /// Two readings of the same run of a daemon.
    pub(crate) fn between(before: &StatusModel, now: &StatusModel, elapsed: Duration) -> View {
        View { elapsed: Some(elapsed), ..View::of(now, Some((before, Span(elapsed.as_secs_f64())))) }
    }

    fn of(now: &StatusModel, before: Option<(&StatusModel, Span)>) -> View {
        let mut view = View {
            version: now.version.clone(),
            uptime_ms: now.uptime_ms,
            sessions: now.sessions.clone(),
            ..View::default()
        };
        for path in &now.datapaths {
            let old = before.and_then(|(before, span)| {
                Some((before.datapaths.iter().find(|old| old.name == path.name)?, span))
            });
            view.datapaths.push(datapath(path, old));
            for t in &path.threads {
                let old =
                    old.and_then(|(old, span)| Some((old.threads.iter().find(|old| old.id == t.id)?, span)));
                view.threads.push(ThreadView { datapath: path.name.clone(), ..thread(t, old) });
            }
            let old = old.and_then(|(old, span)| Some((old.connections.as_ref()?, span)));
            for z in path.connections.iter().flat_map(|tracked| &tracked.zones) {
                let old = old
                    .and_then(|(old, span)| Some((old.zones.iter().find(|old| old.zone == z.zone)?, span)));
                view.zones.push(ZoneView { datapath: path.name.clone(), ..zone(z, old) });
            }
        }
        // Stable: datapaths and zones of equal counts keep the daemon's order.
        view.zones.sort_by_key(|zone| std::cmp::Reverse(zone.connections));
        for bridge in &now.bridges {
            for p in &bridge.ports {
                let old = before.and_then(|(before, span)| {
                    let bridge = before.bridges.iter().find(|old| old.name == bridge.name)?;
                    Some((bridge.ports.iter().find(|old| old.name == p.name)?, span))
                });
                view.ports.push(PortView { bridge: bridge.name.clone(), ..port(p, old) });
            }
        }
        view
    }
}

fn datapath(now: &Datapath, before: Option<(&Datapath, Span)>) -> DatapathView {
    let rate = |counter: fn(&Datapath) -> u64| {
        before.and_then(|(before, span)| span.rate(counter(before), counter(now)))
    };
    let more = |counter: fn(&Datapath) -> u64| counter(now).checked_sub(counter(before?.0));
    DatapathView {
        name: now.name.clone(),
        flows: now.flows,
        masks: now.masks,
        installed: now.upcalls.installed,
        flow_limit: now.upcalls.flow_limit,
        hits: rate(|d| d.hits),
        misses: rate(|d| d.misses),
        lost: rate(|d| d.lost),
        answers: rate(|d| d.upcalls.answers),
        answer_us: share(more(|d| d.upcalls.answers_us), more(|d| d.upcalls.answers)),
        dump_duration_ms: now.upcalls.dump_duration_ms,
        connections: now.connections.as_ref().map(|now| {
            connections(now, before.and_then(|(before, span)| Some((before.connections.as_ref()?, span))))
        }),
    }
}

fn connections(now: &Connections, before: Option<(&Connections, Span)>) -> ConnectionsView {
    let rate = |counter: fn(&Counts) -> u64| {
        before.and_then(|(before, span)| span.rate(counter(&before.all), counter(&now.all)))
    };
    ConnectionsView {
        connections: now.all.connections,
        maximum: now.maximum,
        created: rate(|c| c.created),
        ended: rate(|c| c.ended),
        refused: rate(Counts::refused),
    }
}

fn zone(now: &Zone, before: Option<(&Zone, Span)>) -> ZoneView {
    let rate = |counter: fn(&Counts) -> u64| {
        before.and_then(|(before, span)| span.rate(counter(&before.counts), counter(&now.counts)))
    };
    let old = before.map(|(before, span)| (&before.counts.refused, span));
    let (refused, reasons) = by_reason(old, &now.counts.refused);
    ZoneView {
        datapath: String::new(),
        zone: now.zone,
        connections: now.counts.connections,
        limit: now.limit,
        created: rate(|c| c.created),
        ended: rate(|c| c.ended),
        refused,
        reasons,
    }
}

fn thread(now: &Thread, before: Option<(&Thread, Span)>) -> ThreadView {
    let rate = |counter: fn(&Thread) -> u64| {
        before.and_then(|(before, span)| span.rate(counter(before), counter(now)))
    };
    let more = |counter: fn(&Thread) -> u64| counter(now).checked_sub(counter(before?.0));
    let [received, cache, hits, upcalls, lost] = [
        more(|t| t.received),
        more(|t| t.cache_hits),
        more(|t| t.megaflow_hits),
        more(|t| t.upcalls),
        more(|t| t.upcalls_lost),
    ];
    let misses = upcalls.zip(lost).map(|(a, b)| a + b);
    let lookups = cache.zip(hits).zip(misses).map(|((a, b), c)| a + b + c);
    let busy = more(|t| t.busy_cycles);
    ThreadView {
        datapath: String::new(),
        id: now.id.clone(),
        packets: rate(|t| t.received),
        cycles_per_packet: share(busy, received),
        busy: share(busy, busy.zip(more(|t| t.idle_cycles)).map(|(a, b)| a + b)),
        cache: share(cache, lookups),
        megaflow: share(hits, lookups),
        miss: share(misses, lookups),
        lookups_per_hit: share(more(|t| t.subtable_lookups), hits),
        packets_per_batch: share(more(|t| t.sent_packets), more(|t| t.sent_batches)),
        recirculated: rate(|t| t.recirculated),
        upcalls: rate(|t| t.upcalls),
        lost: rate(|t| t.upcalls_lost),
    }
}

fn port(now: &Port, before: Option<(&Port, Span)>) -> PortView {
    let rate = |counter: fn(&Port) -> u64| {
        before.and_then(|(before, span)| span.rate(counter(before), counter(now)))
    };
    let bits = |counter: fn(&Port) -> u64| rate(counter).map(|bytes| bytes * 8.0);
    let (dropped, drops) = by_reason(before.map(|(before, span)| (&before.drops, span)), &now.drops);
    PortView {
        bridge: String::new(),
        name: now.name.clone(),
        link: now.link.clone(),
        rx_packets: rate(|p| p.rx_packets),
        rx_bits: bits(|p| p.rx_bytes),
        tx_packets: rate(|p| p.tx_packets),
        tx_bits: bits(|p| p.tx_bytes),
        dropped,
        drops,
        waiting: now.upcalls_waiting,
        error: now.error.clone(),
    }
}

/// Follows a daemon across readings and restarts.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    before: Option<(StatusModel, Duration)>,
    /// The view to show; empty before the first reading.
    pub(crate) view: View,
    /// A message about the readings.
    pub(crate) notice: Option<String>,
    /// Time of the first reply of another run of the daemon.
    restarted: Option<Duration>,
}

/// How long a restart is shown.
const RESTART_SHOWN: Duration = Duration::from_secs(5);

impl Follower {
    /// Adds a reading, or the error instead, made at `at` of any monotonic clock.
    pub(crate) fn take(&mut self, at: Duration, reading: Result<StatusModel, String>) {
        let now = match reading {
            Ok(now) => now,
            Err(why) => {
                self.notice = Some(format!("no answer, asking again: {why}"));
                return;
            }
        };
        self.view = match self.before.take() {
            None => View::first(&now),
            Some((before, _)) if is_restarted(&before, &now) => {
                self.restarted = Some(at);
                View::first(&now)
            }
            Some((before, then)) => View::between(&before, &now, at.saturating_sub(then)),
        };
        let lately = self.restarted.is_some_and(|then| at.saturating_sub(then) < RESTART_SHOWN);
        self.notice = lately.then(|| "the daemon was restarted: counters start from 0".to_string());
        self.before = Some((now, at));
    }
}

/// Whether another run of the daemon answered.
fn is_restarted(before: &StatusModel, now: &StatusModel) -> bool {
    let other = before.pid.is_some() && now.pid.is_some() && before.pid != now.pid;
    other || now.uptime_ms < before.uptime_ms
}

/// A cell of a table: its text and its sort value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// `None` for text and for unknown values.
    pub(crate) value: Stat,
}

/// A table: headings, and rows of as many cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) headings: Vec<&'static str>,
    /// The last column is text, like the first.
    pub(crate) words_last: bool,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// Sort order of a table; unsorted without a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorting {
    pub(crate) column: Option<usize>,
    pub(crate) reversed: bool,
}

/// Sort orders of all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) threads: Sorting,
    pub(crate) zones: Sorting,
    pub(crate) ports: Sorting,
}

impl Table {
    /// The headings and the rows, each cell padded to its column: text to the left, numbers to the right.
    pub(crate) fn aligned(&self) -> Vec<Vec<String>> {
        let heads = self.headings.iter().map(|heading| heading.to_string()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| cell.text.clone()).collect());
        let mut all: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
        let columns = self.headings.len();
        for column in 0..columns {
            let width = all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let words = column == 0 || self.words_last && column == columns - 1;
            for row in &mut all {
                let text = &row[column];
                row[column] = if words { format!("{text:<width$}") } else { format!("{text:>width$}") };
            }
        }
        all
    }

    /// Largest values first, text in its order, unknown values last; stable.
    pub(crate) fn sort(&mut self, by: Sorting) {
        let Some(column) = by.column else { return };
        self.rows.sort_by(|a, b| {
            let (Some(a), Some(b)) = (a.get(column), b.get(column)) else { return Ordering::Equal };
            let order = match (a.value, b.value) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => return Ordering::Less,
                (None, Some(_)) => return Ordering::Greater,
                (None, None) => a.text.cmp(&b.text),
            };
            if by.reversed { order.reverse() } else { order }
        });
    }
}
