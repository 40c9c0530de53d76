//! All that is to be said of a recording, as values: what texts, JSON, CSV and figures are made of.

use rapidhash::{HashMapExt, RapidHashMap};
use upcall_events::{Stage, Why};

use crate::figures::{self, MAIN, Measured, Part, STAGES, measure, road, time};
use crate::gather::{Gathered, NONE, Teller};
use crate::join::{Joined, Way};
use crate::packet::brief;
use crate::stats::{Summary, jain};

/// How many outliers are kept.
pub const OUTLIERS_MAX: usize = 1000;
/// Who has less than this part of what the largest has is left out where mean delays are compared.
const FEW: usize = 100;
/// Below so many upcalls quartiles say little: there are no outliers.
const OUTLIERS_OF: usize = 20;

/// Events of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events {
    /// Which.
    pub stage: Stage,
    /// Those in matched upcalls.
    pub usable: u64,
    /// Those that were told.
    pub total: u64,
    /// Those that were lost on the way to the tracer.
    pub lost: u64,
}

/// How the upcalls joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Upcalls {
    /// Several events that belong together for certain.
    pub matched: u64,
    /// Those whose events could belong to others with the same packet.
    pub ambiguous: u64,
    /// Those of a single event: begun before the recording, ended after it, or their other events are not told.
    pub single: u64,
    /// Matched ones that no megaflow matched.
    pub missed: u64,
    /// Matched ones that an action sent.
    pub action: u64,
}

/// What a port or a thread had of the whole.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Its number in the datapath; id of a thread.
    pub number: u32,
    /// Upcalls of the port; upcalls that the thread took.
    pub upcalls: u64,
    /// Those that the full queue refused.
    pub refused: u64,
    /// Those that no handler took until the recording ended.
    pub untaken: u64,
    /// Those that were joined for certain, and that were handled: from the miss to the handler (ns).
    pub wait: Summary,
    /// The packet's whole way, as far as it was told (ns).
    pub road: Summary,
}

/// An upcall that took far longer than the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Outlier {
    /// When it began: nanoseconds since the recording began.
    pub at_ns: u64,
    /// Its packet's whole way.
    pub ns: u64,
    /// The part that took longest.
    pub worst: Part,
    /// The port's name.
    pub port: String,
    /// The handler's name.
    pub thread: String,
    /// How many upcalls the handler took with it; 0: not told.
    pub batch: u16,
    /// Length of the packet.
    pub packet_bytes: u32,
    /// The packet in a few words.
    pub packet: String,
}

/// Jain's indexes: 1 is fair; `None` where nothing was shared.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fairness {
    /// Of how many upcalls each has.
    pub counts: Option<f64>,
    /// Of the mean delay that each has; who has less than a hundredth of the largest count is left out.
    pub delays: Option<f64>,
}

/// All that is to be said.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What it is called: a file, or the switch.
    pub name: String,
    /// Who told.
    pub teller: Option<Teller>,
    /// From the first event to the last.
    pub span_ns: u64,
    /// By stage.
    pub events: Vec<Events>,
    /// How they joined.
    pub upcalls: Upcalls,
    /// Turns of handlers, by how many upcalls they took.
    pub turns: Vec<u64>,
    /// Handlers, by how many upcalls they took.
    pub threads: Vec<Share>,
    /// Ports, by how many upcalls they had.
    pub ports: Vec<Share>,
    /// Among the handlers.
    pub thread_fairness: Fairness,
    /// Among the ports.
    pub port_fairness: Fairness,
    /// The four that users of OVS know.
    pub main: Vec<Measured>,
    /// The stages.
    pub stages: Vec<Measured>,
    /// The packets' whole ways, as far as they were told.
    pub road: Summary,
    /// The slowest first; [`OUTLIERS_MAX`] at most.
    pub outliers: Vec<Outlier>,
    /// How many there are.
    pub outliers_all: u64,
    /// Where an outlier begins (ns).
    pub outlier_limit_ns: u64,
    /// Events told and nanoseconds that telling took.
    pub overhead: Option<(u64, u64)>,
    /// What the reader must know of it: losses, damage, uncertainty.
    pub notes: Vec<String>,
}

/// What is summed up for a port or a thread.
#[derive(Default)]
struct Group {
    upcalls: u64,
    refused: u64,
    untaken: u64,
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
            untaken: self.untaken,
            wait: Summary::of(&mut self.waits),
            road: Summary::of(&mut self.roads),
        }
    }
}

/// Index of the port of a way, or [`NONE`].
pub fn port_of(gathered: &Gathered, way: &Way) -> u32 {
    let ports =
        Stage::ALL.iter().filter_map(|stage| way.event(*stage)).map(|event| gathered.events[event].port);
    ports.into_iter().find(|port| *port != NONE).unwrap_or(NONE)
}

/// The handler of a way.
pub fn thread_of(gathered: &Gathered, way: &Way) -> Option<u32> {
    way.event(Stage::Received).map(|event| gathered.events[event].thread)
}

/// The event that knows most of a way's packet: the first that has it.
pub fn packet_of(gathered: &Gathered, way: &Way) -> (u32, u32) {
    let events =
        || Stage::ALL.iter().filter_map(|stage| way.event(*stage)).map(|event| &gathered.events[event]);
    let known = events().find(|event| event.packet != NONE).or_else(|| events().next());
    known.map_or((NONE, 0), |event| (event.packet, event.packet_bytes))
}

/// Says all of what was gathered and joined.
pub fn report(name: &str, gathered: &Gathered, joined: &Joined, mut notes: Vec<String>) -> Report {
    let events = &gathered.events;
    let (threads, ports) = groups(gathered, &joined.ways);
    let span_ns = events.last().map_or(0, |last| last.time_ns - events[0].time_ns);
    let mut roads: Vec<u64> = Vec::new();
    roads.extend(handled(&joined.ways).filter_map(|way| Some(road(events, way)?.0)));
    let road = Summary::of(&mut roads);
    let (outliers, outliers_all) = outliers(gathered, &joined.ways, &road);
    let measured = |figures: &[figures::Figure]| -> Vec<Measured> {
        figures.iter().map(|figure| measure(*figure, events, &joined.ways)).collect()
    };
    let counted = stage_events(gathered, joined);
    let upcalls = upcalls(gathered, &joined.ways);
    notes.extend(cautions(gathered, &counted, &upcalls));
    Report {
        name: name.to_owned(),
        teller: gathered.teller.clone(),
        span_ns,
        events: counted,
        upcalls,
        turns: joined.turns.clone(),
        thread_fairness: fairness(&threads, |share| &share.road),
        port_fairness: fairness(&ports, |share| &share.wait),
        threads,
        ports,
        main: measured(&MAIN),
        stages: measured(&STAGES),
        outlier_limit_ns: road.far_out(),
        road,
        outliers,
        outliers_all,
        overhead: gathered.overhead,
        notes,
    }
}

/// The ways that were joined for certain and that a handler took.
fn handled(ways: &[Way]) -> impl Iterator<Item = &Way> {
    ways.iter().filter(|way| way.matched() && taken(way))
}

/// Whether a handler took it: it says so, or the packet came back.
fn taken(way: &Way) -> bool {
    way.event(Stage::Received).is_some() || way.event(Stage::Executed).is_some()
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

fn upcalls(gathered: &Gathered, ways: &[Way]) -> Upcalls {
    let mut found = Upcalls::default();
    for way in ways {
        let whys =
            Stage::ALL.iter().filter_map(|stage| way.event(*stage)).map(|event| gathered.events[event].why);
        let why = whys.into_iter().find(|why| *why != Why::Unknown);
        let matched = way.matched();
        found.matched += u64::from(matched);
        found.ambiguous += u64::from(way.ambiguous);
        found.single += u64::from(!matched && !way.ambiguous && way.events() == 1);
        found.missed += u64::from(matched && why == Some(Why::Miss));
        found.action += u64::from(matched && why == Some(Why::Action));
    }
    found
}

fn groups(gathered: &Gathered, ways: &[Way]) -> (Vec<Share>, Vec<Share>) {
    let events = &gathered.events;
    let mut threads: RapidHashMap<u32, Group> = RapidHashMap::new();
    let mut ports: RapidHashMap<u32, Group> = RapidHashMap::new();
    for way in ways {
        let begun = time(events, way, Stage::Miss).or_else(|| time(events, way, Stage::Enqueued));
        let (received, refused) = (time(events, way, Stage::Received), way.event(Stage::Refused).is_some());
        if begun.is_none() && received.is_none() && !refused {
            continue;
        }
        let thread = thread_of(gathered, way).map(|thread| threads.entry(thread).or_default());
        let port = ports.entry(port_of(gathered, way)).or_default();
        port.refused += u64::from(refused);
        port.untaken += u64::from(!taken(way) && !refused);
        let wait = begun.zip(received).map(|(begun, received)| received.saturating_sub(begun));
        let road = road(events, way).filter(|_| taken(way)).map(|(ns, _)| ns);
        for group in [Some(port), thread].into_iter().flatten() {
            group.upcalls += 1;
            if way.matched() {
                group.waits.extend(wait);
                group.roads.extend(road);
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

fn outliers(gathered: &Gathered, ways: &[Way], roads: &Summary) -> (Vec<Outlier>, u64) {
    if roads.count < OUTLIERS_OF {
        return (Vec::new(), 0);
    }
    let events = &gathered.events;
    let slow = handled(ways).filter_map(|way| Some((road(events, way)?, way)));
    let mut slow: Vec<_> = slow.filter(|((ns, _), _)| *ns > roads.far_out()).collect();
    slow.sort_by_key(|((ns, _), _)| std::cmp::Reverse(*ns));
    let all = slow.len() as u64;
    let start = events.first().map_or(0, |event| event.time_ns);
    let one = |((ns, worst), way): ((u64, Part), &Way)| {
        let (packet, packet_bytes) = packet_of(gathered, way);
        let seen = if packet == NONE { &[][..] } else { gathered.bytes.get(packet) };
        let received = way.event(Stage::Received).map(|event| &events[event]);
        let first = Stage::ALL.iter().find_map(|stage| time(events, way, *stage));
        Outlier {
            at_ns: first.unwrap_or(start) - start,
            ns,
            worst,
            port: gathered.port_name(port_of(gathered, way)),
            thread: received.map_or("-".into(), |event| gathered.thread_name(event.thread)),
            batch: received.map_or(0, |event| event.batch),
            packet_bytes,
            packet: brief(seen),
        }
    };
    (slow.into_iter().take(OUTLIERS_MAX).map(one).collect(), all)
}

/// What the reader must know.
fn cautions(gathered: &Gathered, events: &[Events], upcalls: &Upcalls) -> Vec<String> {
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
            "{} upcalls are left out of the statistics: identical packets were under way at the same time, and which event \
             belongs to which cannot be told",
            upcalls.ambiguous
        ));
    }
    let has = |stage: Stage| events.iter().any(|events| events.stage == stage);
    if !gathered.events.is_empty() && !has(Stage::Miss) {
        notes.push(
            "no miss was told: delays to the handler are not known. Those of the kernel's datapath are told by the kernel alone, \
             to --source bpf"
                .into(),
        );
    }
    if !gathered.events.is_empty() && !has(Stage::Received) {
        notes.push(
            "no handler told what it took: threads, batches and delays to the handler are not known. A switch without probes of its \
             own is seen from the kernel alone: misses, and packets that come back"
                .into(),
        );
    }
    notes
}
