//! Sessions that move to another process go on as those that stay: the same world twice, once with moves. The texts of
//! version 1 are in the corpus.

use crate::protocol::{Columns, Environment, LinkPort, LinkValue, Received, SessionId, Table};
use crate::{Engines, LinkSettings, Protocol};
use flow::{MacAddr, OfPort};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

/// Links between both systems.
const LINKS: usize = 3;

/// Columns that each row has.
#[derive(Clone, Default)]
struct Rows(BTreeMap<(Table, &'static str), LinkValue>);

impl Columns for Rows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        self.0.iter().find(|((of, known), _)| (*of, *known) == (table, name)).map(|(_, value)| value.clone())
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        LINKS
    }
}

fn map(pairs: &[(&str, &str)]) -> LinkValue {
    LinkValue::Map(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

/// Settings of a protocol at a system.
fn settings(protocol: Protocol, variant: u8, system: usize) -> LinkSettings {
    use LinkValue::{Flag, Integer, Text};
    let rows: Vec<((Table, &'static str), LinkValue)> = match protocol {
        Protocol::Bfd => {
            let mut pairs = vec![("enable", "true"), ("min_tx", "200"), ("min_rx", "300")];
            match variant % 4 {
                1 => pairs.push(("decay_min_rx", "3000")),
                2 => pairs.extend([("forwarding_if_rx", "true"), ("mult", "1")]),
                3 if system == 0 => pairs.push(("cpath_down", "true")),
                _ => {}
            }
            vec![((Table::Interface, "bfd"), map(&pairs))]
        }
        Protocol::Cfm => {
            let mut pairs = vec![("cfm_interval", "100")];
            match variant % 3 {
                1 => pairs.extend([("cfm_extended", "true"), ("cfm_demand", "true")]),
                2 => pairs.extend([("cfm_extended", "true"), ("cfm_opstate", "down")]),
                _ => {}
            }
            vec![
                ((Table::Interface, "cfm_mpid"), Integer(system as i64 + 1)),
                ((Table::Interface, "other_config"), map(&pairs)),
            ]
        }
        Protocol::Lacp => {
            let mut pairs = vec![("lacp-time", if variant & 1 == 0 { "fast" } else { "slow" })];
            if variant & 2 != 0 {
                pairs.push(("lacp-fallback-ab", "true"));
            }
            let mode = if variant & 4 != 0 && system == 0 { "passive" } else { "active" };
            vec![
                ((Table::Port, "lacp"), Text(mode.to_string())),
                ((Table::Port, "other_config"), map(&pairs)),
            ]
        }
        Protocol::SpanningTree => {
            let name = if variant & 1 == 0 { "stp_enable" } else { "rstp_enable" };
            vec![((Table::Bridge, name), Flag(true))]
        }
        Protocol::Lldp => vec![
            ((Table::Interface, "lldp"), map(&[("enable", "true")])),
            ((Table::AutoAttach, "system_name"), Text(format!("system {system}"))),
            ((Table::AutoAttach, "system_description"), Text("a system".to_string())),
            ((Table::AutoAttach, "mappings"), LinkValue::Numbers(BTreeMap::from([(5, 6), (7, 8)]))),
        ],
    };
    // One member is no bond, for trees refuse those.
    struct Single(Rows);
    impl Columns for Single {
        fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
            self.0.column(table, name)
        }

        fn is_local(&self) -> bool {
            false
        }

        fn members(&self) -> usize {
            1
        }
    }
    let rows = Rows(rows.into_iter().collect());
    let (found, ignored) = match protocol {
        Protocol::Lacp => LinkSettings::parse(&rows),
        _ => LinkSettings::parse(&Single(rows)),
    };
    assert!(ignored.is_empty(), "{ignored:?}");
    found.into_iter().find(|found| found.protocol() == protocol).expect("the protocol is on")
}

fn name(link: usize) -> String {
    format!("p{link}")
}

/// Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

impl Environment for Random {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        7
    }

    fn random(&mut self, below: u32) -> u32 {
        self.below(below.into()) as u32
    }
}

/// A system and its clock.
struct System {
    engines: Engines,
    random: Random,
    /// Its clock is ahead of the world's by this.
    ahead_ms: u64,
}

/// Two systems.
struct World {
    protocol: Protocol,
    settings: [LinkSettings; 2],
    systems: [System; 2],
    up: [bool; LINKS],
    lost_percent: u64,
    link: Random,
    /// Arrival, system, link, frame.
    flying: Vec<(u64, usize, usize, Box<[u8]>)>,
    now_ms: u64,
    /// All that others see.
    seen: Vec<String>,
    last: BTreeMap<(usize, usize), String>,
}

const DELAY_MS: u64 = 3;

/// A state without tokens of rates, which have several forms.
fn without_rates(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).expect("JSON");
    value.as_object_mut().expect("an object").remove("triggered");
    value
}

impl World {
    fn new(protocol: Protocol, variant: u8, seed: u64) -> World {
        let system = |n: u64| System { engines: Engines::default(), random: Random(seed ^ n), ahead_ms: 0 };
        let mut world = World {
            protocol,
            settings: [settings(protocol, variant, 0), settings(protocol, variant, 1)],
            systems: [system(1), system(2)],
            up: [true; LINKS],
            lost_percent: 0,
            link: Random(seed),
            flying: Vec::new(),
            now_ms: 1_000_000,
            seen: Vec::new(),
            last: BTreeMap::new(),
        };
        (0..2).for_each(|n| world.configure(n, 0..LINKS));
        world
    }

    fn configure(&mut self, n: usize, links: impl Iterator<Item = usize>) {
        let System { engines, random, ahead_ms } = &mut self.systems[n];
        for link in links {
            let mac = |low: usize| MacAddr([2, n as u8, 0, 0, 0, low as u8]);
            let port = match self.protocol {
                Protocol::Lacp => "bond".to_string(),
                _ => name(link),
            };
            let port = LinkPort {
                interface: name(link),
                port,
                bridge: "br0".to_string(),
                of_port: OfPort(link as u32 + 1),
                mac: mac(link + 1),
                bridge_mac: mac(0),
                is_up: self.up[link],
                speed_mbps: 10_000,
                is_full_duplex: true,
            };
            engines.configure(&port, &self.settings[n], self.now_ms + *ahead_ms, random);
        }
    }

    fn note(&mut self, n: usize, text: &str) {
        self.seen.push(format!("{} {n}: {text}", self.now_ms));
    }

    /// Notes what the sessions report, and each change of a status and of a port's state.
    fn reports(&mut self, n: usize) {
        while let Some(report) = self.systems[n].engines.get(self.protocol).take_report() {
            report.lines.iter().for_each(|line| self.note(n, &line.text));
            report.learned.iter().for_each(|change| self.note(n, &format!("{change:?}")));
            report.trunks.iter().for_each(|change| self.note(n, &format!("{change:?}")));
        }
        for link in 0..LINKS {
            let now_ms = self.now_ms + self.systems[n].ahead_ms;
            let engine = self.systems[n].engines.get(self.protocol);
            let Some(id) = engine.find(&name(link)) else { continue };
            // Counters of each frame are compared at the end.
            let state = format!("{:?}", engine.link_state(id, now_ms));
            if self.last.insert((n, link), state.clone()).is_none_or(|last| last != state) {
                self.note(n, &format!("{link} {state}"));
            }
        }
    }

    fn turn(&mut self) {
        let now_ms = self.now_ms;
        let (here, later) = std::mem::take(&mut self.flying).into_iter().partition(|(at, ..)| *at <= now_ms);
        self.flying = later;
        for (_, n, link, frame) in here as Vec<(u64, usize, usize, Box<[u8]>)> {
            let System { engines, random, ahead_ms } = &mut self.systems[n];
            let received =
                Received { ttl: frame.get(22).copied().unwrap_or(0), payload: self.protocol.payload(&frame) };
            let engine = engines.get(self.protocol);
            if let Some(id) = engine.find(&name(link)) {
                let _ = engine.input(id, received, now_ms + *ahead_ms, random);
            }
            self.reports(n);
        }
        for n in 0..2 {
            let System { engines, random, ahead_ms } = &mut self.systems[n];
            let (engine, mut sent) = (engines.get(self.protocol), Vec::new());
            let _ = engine.tick(now_ms + *ahead_ms, 64, random, &mut sent);
            let links: BTreeMap<SessionId, usize> =
                (0..LINKS).filter_map(|link| Some((engine.find(&name(link))?, link))).collect();
            self.reports(n);
            for (id, transmission) in sent {
                let link = links[&id];
                let bytes: String = transmission.frame.iter().map(|byte| format!("{byte:02x}")).collect();
                self.note(n, &format!("{link} sends {bytes}"));
                if self.up[link] && self.link.below(100) >= self.lost_percent {
                    self.flying.push((now_ms + DELAY_MS, 1 - n, link, transmission.frame));
                }
            }
        }
    }

    fn run(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            let arrival = self.flying.iter().map(|(at, ..)| *at).min();
            let wakeup =
                |system: &System| system.engines.next_wakeup().map(|at| at.saturating_sub(system.ahead_ms));
            let work = self.systems.iter().filter_map(wakeup).chain(arrival).min();
            let Some(at) = work.filter(|at| *at <= until_ms) else { break };
            self.now_ms = self.now_ms.max(at);
            self.turn();
        }
        self.now_ms = until_ms;
    }

    /// The states of a system.
    fn saved(&mut self, n: usize) -> Vec<(String, String)> {
        let now_ms = self.now_ms + self.systems[n].ahead_ms;
        let engine = self.systems[n].engines.get(self.protocol);
        let of = |link| Some((name(link), engine.saved(engine.find(&name(link))?, now_ms)?));
        (0..LINKS).filter_map(of).collect()
    }

    /// The sessions of a system move to another process, whose clock is elsewhere.
    fn hand_over(&mut self, n: usize) {
        self.reports(n);
        let saved = self.saved(n);
        assert_eq!(saved.len(), LINKS);
        let System { engines, ahead_ms, .. } = &mut self.systems[n];
        *engines = Engines::default();
        *ahead_ms = *ahead_ms * 3 + 12_345;
        let then_ms = self.now_ms + *ahead_ms;
        let engine = engines.get(self.protocol);
        for (name, text) in &saved {
            assert!(!text.contains(['\n', '\t']), "{text}");
            assert_eq!(engine.restore(name, text, then_ms), Ok(()), "{text}");
        }
        self.configure(n, 0..LINKS);
        assert!(self.systems[n].engines.get(self.protocol).forget_restored().is_empty());
        self.reports(n);
    }

    /// The replies to all commands without arguments, and the values of all columns.
    fn shown(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        for n in 0..2 {
            let now_ms = self.now_ms + self.systems[n].ahead_ms;
            let engines = &mut self.systems[n].engines;
            for (number, row) in self.protocol.commands().filter(|(_, row)| row.min_args == 0) {
                if !row.name.ends_with("tcn") {
                    shown.push(format!("{:?}", engines.run(self.protocol, number, &[], now_ms)));
                }
            }
            for link in 0..LINKS {
                let engine = engines.get(self.protocol);
                if let Some(id) = engine.find(&name(link)) {
                    shown.push(format!("{:?}", engine.status(id, now_ms)));
                }
            }
        }
        shown
    }
}

/// Something that happens to the links.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Carrier(usize, bool),
    Loss(u64),
    /// The first system gets other settings: while its sessions move, in one of two worlds.
    Settings(u8),
    /// Only in one of two worlds.
    Handover(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..700u64).prop_map(Event::Pass),
        3 => (0..9000u64).prop_map(Event::Pass),
        1 => (0..40_000u64).prop_map(Event::Pass),
        2 => (0..LINKS, any::<bool>()).prop_map(|(link, is_up)| Event::Carrier(link, is_up)),
        1 => prop_oneof![Just(0), Just(30), Just(90), Just(100)].prop_map(Event::Loss),
        1 => any::<u8>().prop_map(Event::Settings),
        4 => prop_oneof![4 => Just(0usize), 1 => Just(1)].prop_map(Event::Handover),
    ]
}

fn run(
    protocol: Protocol,
    variant: u8,
    seed: u64,
    events: &[Event],
    moves: bool,
) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(protocol, variant, seed);
    world.run(10);
    for event in events {
        match *event {
            Event::Pass(ms) => world.run(ms),
            Event::Carrier(link, is_up) => {
                world.up[link] = is_up;
                (0..2).for_each(|n| world.configure(n, link..=link));
            }
            Event::Loss(percent) => world.lost_percent = percent,
            Event::Settings(variant) => {
                world.run(0);
                world.reports(0);
                world.settings[0] = settings(protocol, variant, 0);
                if moves {
                    world.hand_over(0);
                } else {
                    world.configure(0, 0..LINKS);
                    world.reports(0);
                }
            }
            Event::Handover(n) => {
                // Work that is due is done before.
                world.run(0);
                world.reports(n);
                if moves {
                    let saved = world.saved(n);
                    world.hand_over(n);
                    for ((_, now), (_, before)) in world.saved(n).iter().zip(&saved) {
                        assert!(without_rates(now) == without_rates(before), "{now}\n{before}");
                    }
                }
            }
        }
    }
    world.run(5000);
    let shown = world.shown();
    (world.seen, shown)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 2000 } else { 60 }))]

    #[test]
    fn nobody_sees_that_sessions_move(
        protocol in prop::sample::select(Protocol::ALL),
        variant: u8,
        seed: u64,
        events in proptest::collection::vec(event(), 1..40),
    ) {
        let stays = run(protocol, variant, seed, &events, false);
        let moves = run(protocol, variant, seed, &events, true);
        let first = stays.0.iter().zip(&moves.0).position(|(a, b)| a != b);
        if let Some(at) = first {
            let near = |seen: &[String]| seen[at.saturating_sub(3)..seen.len().min(at + 3)].join("\n");
            prop_assert!(false, "{protocol:?}\n{}\n--- moves:\n{}", near(&stays.0), near(&moves.0));
        }
        prop_assert_eq!((stays.0.len(), stays.1), (moves.0.len(), moves.1));
    }
}

/// A world in the middle of its work.
fn busy(protocol: Protocol, variant: u8) -> World {
    let mut world = World::new(protocol, variant, 5);
    world.run(9000);
    (world.up[0], world.lost_percent) = (false, 30);
    (0..2).for_each(|n| world.configure(n, 0..LINKS));
    world.run(4321);
    world
}

const RECORDED: [(Protocol, u8, &str); 6] = [
    (Protocol::Cfm, 1, "cfm"),
    (Protocol::Bfd, 1, "bfd"),
    (Protocol::Lacp, 0, "lacp"),
    (Protocol::SpanningTree, 0, "stp"),
    (Protocol::SpanningTree, 1, "rstp"),
    (Protocol::Lldp, 0, "lldp"),
];

fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/saved_states").to_string()
}

/// Texts of version 1: names of fields stay.
#[test]
fn texts_of_the_first_version() {
    for (protocol, variant, file) in RECORDED {
        let bytes = std::fs::read(format!("{}/{file}", folder())).expect("the file is there");
        let recorded = String::from_utf8(bytes[2..].to_vec()).expect("a text");
        let mut world = busy(protocol, variant);
        assert_eq!(world.saved(0)[1].1, recorded, "{file}");
    }
}

/// Calls `visit` with the text after each change of one of its objects: a field less, and one more.
fn changed(value: &Value, visit: &mut dyn FnMut(Value, &str)) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                let mut less = object.clone();
                less.remove(name);
                visit(less.into(), name);
                changed(inner, &mut |inner, path| {
                    let mut other = object.clone();
                    other.insert(name.clone(), inner);
                    visit(other.into(), path);
                });
            }
            let mut more = object.clone();
            more.insert("later".to_string(), serde_json::json!([{ "a": 1 }, null]));
            visit(more.into(), "later");
        }
        Value::Array(list) => {
            for (at, inner) in list.iter().enumerate() {
                changed(inner, &mut |inner, path| {
                    let mut other = list.clone();
                    other[at] = inner;
                    visit(other.into(), path);
                });
            }
        }
        _ => {}
    }
}

#[test]
fn fields_come_and_go() {
    for (protocol, variant, file) in RECORDED {
        let text = busy(protocol, variant).saved(0)[1].1.clone();
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let mut count = 0;
        changed(&value, &mut |other, name| {
            let mut world = World::new(protocol, variant, 5);
            world.systems[0].engines = Engines::default();
            let restored =
                world.systems[0].engines.get(protocol).restore("p1", &other.to_string(), world.now_ms);
            match name {
                "version" => assert_eq!(restored, Err("a state without a version".to_string())),
                // A carrier without a state, or the other way.
                "is_up" | "state" | "args" if file == "stp" => {}
                _ => assert_eq!(restored, Ok(()), "{file}: {name}"),
            }
            world.configure(0, 0..LINKS);
            world.reports(0);
            if name == "later" {
                let saved: Value = serde_json::from_str(&world.saved(0)[1].1).expect("JSON");
                for part in ["session", "port"] {
                    assert_eq!(saved.get(part).is_some(), value.get(part).is_some(), "{file}");
                }
            }
            world.run(3000);
            count += 1;
        });
        assert!(count > 8, "{file}: {count}");
    }
}

#[test]
fn faults_are_refused() {
    for (protocol, _, name) in RECORDED {
        let mut engines = Engines::default();
        let engine = engines.get(protocol);
        for (text, why) in [
            ("", "a state that is no JSON: EOF while parsing a value at line 1 column 0"),
            ("[]", "a state that is no object"),
            ("{\"version\":2}", "a state of version 2, not 1"),
        ] {
            assert_eq!(engine.restore("p", text, 5), Err(why.to_string()), "{name}");
        }
        let long = format!("{{\"version\":1,\"a\":\"{}\"}}", "b".repeat(super::TEXT_BYTES_MAX));
        assert!(engine.restore("p", &long, 5).is_err());
    }
    let mut engines = Engines::default();
    let bad = "{\"version\":1,\"session\":{\"remote\":{\"state\":\"above\"}}}";
    let refused = engines.get(Protocol::Bfd).restore("p", bad, 5);
    assert_eq!(refused, Err("session: remote: state: no such word".to_string()));
    // More states than interfaces can be.
    let engine = engines.get(Protocol::Lldp);
    (0..super::FORMER_MAX)
        .for_each(|n| assert_eq!(engine.restore(&n.to_string(), "{\"version\":1}", 5), Ok(())));
    assert_eq!(engine.restore("p", "{\"version\":1}", 5), Err("more than 65536 states wait".to_string()));
    assert_eq!(engine.forget_restored().len(), super::FORMER_MAX);
}

#[test]
fn corpus_of_saved_states() {
    testkit::replay_corpus(folder(), crate::fuzz::saved_states);
}

proptest! {
    #[test]
    fn any_text_is_read(
        file in 0..RECORDED.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = std::fs::read(format!("{}/{}", folder(), RECORDED[file].2)).expect("the file is there");
        let length = bytes.len();
        changes.iter().for_each(|(at, value)| bytes[at.index(length)] = *value);
        crate::fuzz::saved_states(&bytes);
    }
}
