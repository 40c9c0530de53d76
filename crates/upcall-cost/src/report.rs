//! The report of a recording, as values: source of text, JSON, CSV and plots.

use rapidhash::{HashMapExt, RapidHashMap};
use upcall_events::{Stage, Why};

use crate::gather::{Gathered, NONE, Origin};
use crate::join::{Joined, UpcallTrace};
use crate::metrics::{self, MAIN, Measured, PathSegment, STAGES, measure, packet_path, time};
use crate::packet::brief;
use crate::stats::{Summary, jain};

/// Maximum number of stored outliers.
pub const OUTLIERS_MAX: usize = 1000;
/// Comparisons of mean delays exclude shares below this fraction of the largest.
const FEW: usize = 100;
/// Minimum number of upcalls for outliers: with fewer, quartiles mean little.
const OUTLIERS_OF: usize = 20;

/// Events of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events {
    /// The stage.
    pub stage: Stage,
    /// Events in matched upcalls.
    pub usable: u64,
    /// Reported events.
    pub total: u64,
    /// Events lost before the tracer.
    pub lost: u64,
}

/// Counts of joined upcalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Upcalls {
    /// Several events that belong together for certain.
    pub matched: u64,
    /// Upcalls whose events could belong to others with the same packet.
    pub ambiguous: u64,
    /// Upcalls with a single event: begun before the recording, ended after it, or without other reported
    /// events.
    pub single: u64,
    /// Matched ones that no megaflow matched.
    pub missed: u64,
    /// Matched ones that an action sent.
    pub action: u64,
}

/// Share of a port or a thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Its number in the datapath; id of a thread.
    pub number: u32,
    /// Upcalls of the port; upcalls that the thread took.
    pub upcalls: u64,
    /// Dropped at the full queue.
    pub refused: u64,
    /// Not received by a handler until the recording ended.
    pub not_received: u64,
    /// From the miss to the handler (ns), for handled upcalls joined for certain.
    pub wait: Summary,
    /// The packet's whole path, as far as reported (ns).
    pub packet_path: Summary,
}

/// An upcall far slower than the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Outlier {
    /// Start time: nanoseconds since the start of the recording.
    pub at_ns: u64,
    /// Its packet's whole way.
    pub ns: u64,
    /// The part that took longest.
    pub worst: PathSegment,
    /// The port's name.
    pub port: String,
    /// The handler's name.
    pub thread: String,
    /// Upcalls in the handler's batch; 0: unknown.
    pub batch: u16,
    /// Length of the packet.
    pub packet_bytes: u32,
    /// The packet in a few words.
    pub packet: String,
}

/// Jain's indexes: 1 is fair; `None` without shares.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fairness {
    /// Index of the upcall counts.
    pub counts: Option<f64>,
    /// Index of the mean delays; excludes those with less than a hundredth of the largest count.
    pub delays: Option<f64>,
}

/// The whole report.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Its name: a file, or the switch.
    pub name: String,
    /// Source of the events.
    pub origin: Option<Origin>,
    /// From the first event to the last.
    pub span_ns: u64,
    /// By stage.
    pub events: Vec<Events>,
    /// Counts of joined upcalls.
    pub upcalls: Upcalls,
    /// Turns of handlers, by number of upcalls.
    pub turns: Vec<u64>,
    /// Handlers, by number of upcalls.
    pub threads: Vec<Share>,
    /// Ports, by number of upcalls.
    pub ports: Vec<Share>,
    /// Among the handlers.
    pub thread_fairness: Fairness,
    /// Among the ports.
    pub port_fairness: Fairness,
    /// The four known from OVS.
    pub main: Vec<Measured>,
    /// The stages.
    pub stages: Vec<Measured>,
    /// The packets' whole paths, as far as reported.
    pub packet_path: Summary,
    /// The slowest first; at most [`OUTLIERS_MAX`].
    pub outliers: Vec<Outlier>,
    /// Number of outliers.
    pub outliers_all: u64,
    /// Lower limit of outliers (ns).
    pub outlier_limit_ns: u64,
    /// Reported events and the nanoseconds spent on reporting.
    pub overhead: Option<(u64, u64)>,
    /// Notes for the reader: losses, damage, ambiguity.
    pub notes: Vec<String>,
}

/// Sums for a port or a thread.
#[derive(Default)]
struct Group {
    upcalls: u64,
    refused: u64,
    not_received: u64,
    waits: Vec<u64>,
    roads: Vec<u64>,
}

impl Group {
    fn share(mut self, name: String, number: u32) -> Share {
        Share {
            name,
            number,
            upcalls: self.upcalls,
            refused: self.refused,
            not_received: self.not_received,
            wait: Summary::of(&mut self.waits),
            packet_path: Summary::of(&mut self.roads),
        }
    }
}

/// Index of the port of a way, or [`NONE`].
pub fn port_of(gathered: &Gathered, trace: &UpcallTrace) -> u32 {
    let ports =
        Stage::ALL.iter().filter_map(|stage| trace.event(*stage)).map(|event| gathered.events[event].port);
    ports.into_iter().find(|port| *port != NONE).unwrap_or(NONE)
}

/// The handler of a way.
pub fn thread_of(gathered: &Gathered, trace: &UpcallTrace) -> Option<u32> {
    trace.event(Stage::Received).map(|event| gathered.events[event].thread)
}

/// The event with the most of an upcall's packet: the first that has it.
pub fn packet_of(gathered: &Gathered, trace: &UpcallTrace) -> (u32, u32) {
    let events =
        || Stage::ALL.iter().filter_map(|stage| trace.event(*stage)).map(|event| &gathered.events[event]);
    let known = events().find(|event| event.packet != NONE).or_else(|| events().next());
    known.map_or((NONE, 0), |event| (event.packet, event.packet_bytes))
}

/// Builds the report.
pub fn report(name: &str, gathered: &Gathered, joined: &Joined, mut notes: Vec<String>) -> Report {
    let events = &gathered.events;
    let (threads, ports) = groups(gathered, &joined.traces);
    let span_ns = events.last().map_or(0, |last| last.time_ns - events[0].time_ns);
    let mut roads: Vec<u64> = Vec::new();
    roads.extend(handled(&joined.traces).filter_map(|trace| Some(packet_path(events, trace)?.0)));
    let packet_path = Summary::of(&mut roads);
    let (outliers, outliers_all) = outliers(gathered, &joined.traces, &packet_path);
    let measured = |metrics: &[metrics::Metric]| -> Vec<Measured> {
        metrics.iter().map(|metric| measure(*metric, events, &joined.traces)).collect()
    };
    let counted = stage_events(gathered, joined);
    let upcalls = upcalls(gathered, &joined.traces);
    notes.extend(notes_of(gathered, &counted, &upcalls));
    Report {
        name: name.to_owned(),
        origin: gathered.origin.clone(),
        span_ns,
        events: counted,
        upcalls,
        turns: joined.turns.clone(),
        thread_fairness: fairness(&threads, |share| &share.packet_path),
        port_fairness: fairness(&ports, |share| &share.wait),
        threads,
        ports,
        main: measured(&MAIN),
        stages: measured(&STAGES),
        outlier_limit_ns: packet_path.outlier_limit(),
        packet_path,
        outliers,
        outliers_all,
        overhead: gathered.overhead,
        notes,
    }
}

/// The upcalls joined for certain and received by a handler.
fn handled(traces: &[UpcallTrace]) -> impl Iterator<Item = &UpcallTrace> {
    traces.iter().filter(|trace| trace.matched() && taken(trace))
}

/// Whether a handler received it: reported, or implied by the packet's return.
fn taken(trace: &UpcallTrace) -> bool {
    trace.event(Stage::Received).is_some() || trace.event(Stage::Executed).is_some()
}

fn stage_events(gathered: &Gathered, joined: &Joined) -> Vec<Events> {
    let mut totals = [0; Stage::ALL.len() + 1];
    for event in &gathered.events {
        totals[event.stage as usize] += 1;
    }
    let of = |stage: Stage| {
        let number = stage as usize;
        Events { stage, usable: joined.usable[number], total: totals[number], lost: gathered.lost[number] }
    };
    Stage::ALL.map(of).into_iter().filter(|events| events.total + events.lost > 0).collect()
}

fn upcalls(gathered: &Gathered, traces: &[UpcallTrace]) -> Upcalls {
    let mut found = Upcalls::default();
    for trace in traces {
        let whys =
            Stage::ALL.iter().filter_map(|stage| trace.event(*stage)).map(|event| gathered.events[event].why);
        let why = whys.into_iter().find(|why| *why != Why::Unknown);
        let matched = trace.matched();
        found.matched += u64::from(matched);
        found.ambiguous += u64::from(trace.ambiguous);
        found.single += u64::from(!matched && !trace.ambiguous && trace.events() == 1);
        found.missed += u64::from(matched && why == Some(Why::Miss));
        found.action += u64::from(matched && why == Some(Why::Action));
    }
    found
}

fn groups(gathered: &Gathered, traces: &[UpcallTrace]) -> (Vec<Share>, Vec<Share>) {
    let events = &gathered.events;
    let mut threads: RapidHashMap<u32, Group> = RapidHashMap::new();
    let mut ports: RapidHashMap<u32, Group> = RapidHashMap::new();
    for trace in traces {
        let begun = time(events, trace, Stage::Miss).or_else(|| time(events, trace, Stage::Enqueued));
        let (received, refused) =
            (time(events, trace, Stage::Received), trace.event(Stage::Refused).is_some());
        if begun.is_none() && received.is_none() && !refused {
            continue;
        }
        let thread = thread_of(gathered, trace).map(|thread| threads.entry(thread).or_default());
        let port = ports.entry(port_of(gathered, trace)).or_default();
        port.refused += u64::from(refused);
        port.not_received += u64::from(!taken(trace) && !refused);
        let wait = begun.zip(received).map(|(begun, received)| received.saturating_sub(begun));
        let packet_path = packet_path(events, trace).filter(|_| taken(trace)).map(|(ns, _)| ns);
        for group in [Some(port), thread].into_iter().flatten() {
            group.upcalls += 1;
            if trace.matched() {
                group.waits.extend(wait);
                group.roads.extend(packet_path);
            }
        }
    }
    let threads =
        threads.into_iter().map(|(thread, group)| group.share(gathered.thread_name(thread), thread));
    let ports = ports.into_iter().map(|(port, group)| {
        let number = gathered.ports.get(port as usize).map_or(NONE, |port| port.number);
        group.share(gathered.port_name(port), number)
    });
    (by_upcalls(threads.collect()), by_upcalls(ports.collect()))
}

fn by_upcalls(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.upcalls.cmp(&a.upcalls).then(a.number.cmp(&b.number)).then(a.name.cmp(&b.name)));
    shares
}

fn fairness(shares: &[Share], delay: fn(&Share) -> &Summary) -> Fairness {
    // The mean of a handful beside thousands is chance.
    let most = shares.iter().map(|share| delay(share).count).max().unwrap_or_default();
    let enough = |summary: &&Summary| summary.count > most / FEW;
    let delays = shares.iter().map(delay).filter(enough).map(|summary| summary.mean);
    Fairness { counts: jain(shares.iter().map(|share| share.upcalls as f64)), delays: jain(delays) }
}

fn outliers(gathered: &Gathered, traces: &[UpcallTrace], roads: &Summary) -> (Vec<Outlier>, u64) {
    if roads.count < OUTLIERS_OF {
        return (Vec::new(), 0);
    }
    let events = &gathered.events;
    let slow = handled(traces).filter_map(|trace| Some((packet_path(events, trace)?, trace)));
    let mut slow: Vec<_> = slow.filter(|((ns, _), _)| *ns > roads.outlier_limit()).collect();
    slow.sort_by_key(|((ns, _), _)| std::cmp::Reverse(*ns));
    let all = slow.len() as u64;
    let start = events.first().map_or(0, |event| event.time_ns);
    let one = |((ns, worst), trace): ((u64, PathSegment), &UpcallTrace)| {
        let (packet, packet_bytes) = packet_of(gathered, trace);
        let seen = if packet == NONE { &[][..] } else { gathered.bytes.get(packet) };
        let received = trace.event(Stage::Received).map(|event| &events[event]);
        let first = Stage::ALL.iter().find_map(|stage| time(events, trace, *stage));
        Outlier {
            at_ns: first.unwrap_or(start) - start,
            ns,
            worst,
            port: gathered.port_name(port_of(gathered, trace)),
            thread: received.map_or("-".into(), |event| gathered.thread_name(event.thread)),
            batch: received.map_or(0, |event| event.batch),
            packet_bytes,
            packet: brief(seen),
        }
    };
    (slow.into_iter().take(OUTLIERS_MAX).map(one).collect(), all)
}

/// Notes for the reader.
fn notes_of(gathered: &Gathered, events: &[Events], upcalls: &Upcalls) -> Vec<String> {
    let mut notes = Vec::new();
    let lost = gathered.lost_all();
    if lost > 0 {
        let lost_of = events.iter().filter(|events| events.lost > 0);
        let each: Vec<String> =
            lost_of.map(|events| format!("{} {}", events.lost, events.stage.name())).collect();
        notes.push(format!(
            "{lost} EVENTS WERE LOST ({}): a buffer was full. Upcalls without all their events are missing below; \
             a larger --buffer-page-count, smaller --packet-size and --flow-key-size or --quiet help",
            each.join(", ")
        ));
    }
    if gathered.full() {
        notes.push("more events came than are kept in memory: only the first ones are analysed".into());
    }
    if upcalls.ambiguous > 0 {
        notes.push(format!(
            "{} upcalls are left out of the statistics: identical packets were in progress at the same time, so their \
             events are ambiguous",
            upcalls.ambiguous
        ));
    }
    let has = |stage: Stage| events.iter().any(|events| events.stage == stage);
    if !gathered.events.is_empty() && !has(Stage::Miss) {
        notes.push(
            "no misses were reported: delays to the handler are unknown. Misses of the kernel datapath need --source bpf"
                .into(),
        );
    }
    if !gathered.events.is_empty() && !has(Stage::Received) {
        notes.push(
            "no handler reported batches: threads, batches and delays to the handler are unknown. For a switch without probes, \
             only the kernel reports events: misses and executed packets"
                .into(),
        );
    }
    notes
}
