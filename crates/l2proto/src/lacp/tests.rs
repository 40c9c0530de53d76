//! Messages, settings, and the choice of members. Texts and states are those of OVS 3.5 after the same packets.

mod cost;
mod simulation;

use super::*;
use crate::protocol::{Columns, Engine, LinkPort, LinkProtocol, LinkState, LinkValue, Table};
use crate::protocol::{Environment, LineLevel, Received, SessionId};
use flow::{Flow, MacAddr, Mask, OfPort};
use std::collections::BTreeMap;

/// No random numbers, no traffic.
struct Still;

impl Environment for Still {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, _: u32) -> u32 {
        0
    }
}

/// Rows of a port and an interface.
#[derive(Clone, Default)]
struct Rows {
    lacp: Option<&'static str>,
    port: Vec<(&'static str, &'static str)>,
    interface: Vec<(&'static str, &'static str)>,
    members: usize,
}

impl Columns for Rows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        let map = |pairs: &[(&str, &str)]| {
            LinkValue::Map(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        match (table, name) {
            (Table::Port, "lacp") => self.lacp.map(|mode| LinkValue::Text(mode.to_string())),
            (Table::Port, "other_config") => Some(map(&self.port)),
            (Table::Interface, "other_config") => Some(map(&self.interface)),
            _ => None,
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        self.members
    }
}

const BRIDGE: MacAddr = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 1]);
const ANOTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);

fn link_port(port: &str, interface: &str, of_port: u32, bridge_mac: MacAddr) -> LinkPort {
    LinkPort {
        interface: interface.to_string(),
        port: port.to_string(),
        bridge: "br0".to_string(),
        of_port: OfPort(of_port),
        mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, 1, of_port as u8]),
        bridge_mac,
        is_up: true,
        speed_mbps: 0,
        is_full_duplex: false,
    }
}

/// Settings of a member of a bond, or of a single port.
fn config(lacp: &'static str, time: &'static str, members: usize) -> Config {
    let rows = Rows { lacp: Some(lacp), port: vec![("lacp-time", time)], members, ..Rows::default() };
    Config::parse(&rows).0.expect("lacp is set")
}

/// A message of a system with a link, a key and a state, as a payload.
fn message(system: (u16, MacAddr), key: u16, port_id: u16, bits: u8) -> Vec<u8> {
    let (priority, id) = system;
    let actor =
        Information { system: System { priority, id }, key, port_priority: 200, port_id, state: bits };
    Pdu { actor, partner: Information::default() }.to_bytes().to_vec()
}

/// A switch on its own.
struct Lab {
    all: Aggregators,
    now_ms: u64,
    sent: Vec<(u64, SessionId, Box<[u8]>)>,
}

impl Lab {
    fn new() -> Lab {
        Lab { all: Aggregators::default(), now_ms: 1000, sent: Vec::new() }
    }

    /// Makes a port with members from p0 on, of port numbers from 1 on.
    fn port(name: &str, members: usize, config: &Config) -> Lab {
        let mut lab = Lab::new();
        for n in 0..members {
            let port = link_port(name, &format!("p{n}"), n as u32 + 1, BRIDGE);
            lab.all.put(&port, config, lab.now_ms);
        }
        lab.settle();
        lab
    }

    fn id(&self, name: &str) -> SessionId {
        self.all.find(name).expect(name)
    }

    fn settle(&mut self) {
        let (now_ms, sent) = (self.now_ms, &mut self.sent);
        assert!(!self.all.tick(now_ms, 16, |id, frame| sent.push((now_ms, id, frame))), "work without end");
    }

    fn receive(&mut self, name: &str, payload: &[u8]) {
        let id = self.id(name);
        self.all.input(id, payload, self.now_ms);
        self.settle();
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while let Some(at_ms) = self.all.next_wakeup().filter(|at_ms| *at_ms <= until_ms) {
            self.now_ms = self.now_ms.max(at_ms);
            self.settle();
        }
        self.now_ms = until_ms;
    }

    /// Status, attachment and liveness of each member.
    fn states(&self, port: &str) -> String {
        let aggregator = self.all.port(port).expect(port);
        let negotiated = if aggregator.is_negotiated() { "negotiated" } else { "configured" };
        let members = aggregator.members.iter().map(|member| {
            let attached = if member.is_attached { "attached" } else { "detached" };
            let enable = if self.all.effect(member.id).unwrap().may_enable { " live" } else { "" };
            format!("; {} {attached}{enable}", member.status.name())
        });
        format!("{negotiated}{}", members.collect::<String>())
    }

    fn lines(&mut self) -> Vec<(LineLevel, String)> {
        let reports = std::iter::from_fn(|| self.all.take_report());
        reports.flat_map(|report| report.lines).map(|line| (line.level, line.text)).collect()
    }
}

/// A frame of OVS 3.5: the first one of an active port.
#[test]
fn frames_are_those_of_ovs() {
    let expected = [
        "0180c2000002aa55aa55010188090101",
        "0114ffffaa55aa5500010001ffff0001",
        "b9000000021400000000000000000000",
        "00000000020000000310",
    ]
    .concat();
    let lab = Lab::port("p0", 1, &config("active", "slow", 1));
    let [(_, _, frame)] = &lab.sent[..] else { panic!("{:?}", lab.sent) };
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, format!("{expected:0<width$}", width = 2 * FRAME_BYTES));
}

#[test]
fn payloads_are_parsed_as_in_ovs() {
    let pdu = Pdu {
        actor: Information {
            system: System { priority: 1, id: ANOTHER },
            key: 2,
            port_priority: 3,
            port_id: 4,
            state: 5,
        },
        partner: Information::default(),
    };
    let good = pdu.to_bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Pdu::parse(&bytes)
    };
    assert_eq!(Pdu::parse(&good), Parsed::Pdu(pdu));
    assert_eq!(Pdu::parse(&[&good[..], &[0; 9]].concat()), Parsed::Pdu(pdu));
    assert_eq!(Pdu::parse(&good[..PDU_BYTES - 1]), Parsed::Bad);
    for (at, byte, expected) in [
        (0, 2, Parsed::Marker),
        (0, 3, Parsed::Bad),
        (1, 9, Parsed::Pdu(pdu)),
        (2, 2, Parsed::Bad),
        (3, 19, Parsed::Bad),
        (22, 1, Parsed::Bad),
        (23, 21, Parsed::Bad),
        (42, 0, Parsed::Pdu(pdu)),
    ] {
        assert_eq!(with(at, byte), expected, "{at} {byte}");
    }
    let frame = build(ANOTHER, pdu);
    assert_eq!(payload(&frame), Some(&good[..]));
    let tagged = |tags: &[[u8; 4]]| [&frame[..12], tags.as_flattened(), &frame[12..]].concat();
    let [inner, outer] = [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 7]];
    for tags in [&[inner][..], &[outer, inner]] {
        assert_eq!(payload(&tagged(tags)), Some(&good[..]), "{tags:?}");
    }
    assert_eq!(payload(&tagged(&[outer, outer, inner])), None);
    assert_eq!((payload(&frame[..13]), payload(&[0; 60]), payload(&[])), (None, None, None));
    assert_eq!(payload(&frame[..14]), Some(&[][..]));
}

#[test]
fn settings_are_read_as_in_ovs() {
    let rows = |lacp| Rows { lacp, members: 1, ..Rows::default() };
    let port = link_port("p0", "p0", 3, BRIDGE);
    let read = |rows: Rows| {
        let (config, ignored) = Config::parse(&rows);
        let places = ignored.into_iter().map(|ignored| ignored.place.replace("other_config:lacp-", ""));
        (config.map(|config| (config.of_port(&port), config.of_link(&port))), places.collect::<Vec<_>>())
    };
    for lacp in [None, Some("off")] {
        assert_eq!(read(rows(lacp)), (None, vec![]));
    }
    assert_eq!(read(rows(Some("on"))), (None, vec!["lacp".to_string()]));
    let (Some((of_port, link)), ignored) = read(rows(Some("passive"))) else { panic!("a session") };
    assert_eq!((of_port.system, ignored), (System { priority: 65535, id: BRIDGE }, vec![]));
    assert!(!of_port.is_active && !of_port.is_fast && !of_port.falls_back);
    assert_eq!((link.port_id, link.port_priority, link.key), (3, 65535, 0));
    let bond = read(Rows { members: 2, ..rows(Some("active")) }).0.unwrap().0;
    assert!(bond.is_active && bond.system.priority == 65534);
    let all = Rows {
        port: vec![
            ("lacp-time", "FAST"),
            ("lacp-system-id", "02:00:00:00:00:0a"),
            ("lacp-system-priority", "7"),
            ("lacp-fallback-ab", "True"),
        ],
        interface: vec![
            ("lacp-port-id", "65535"),
            ("lacp-port-priority", " 8"),
            ("lacp-aggregation-key", "9"),
        ],
        ..rows(Some("active"))
    };
    let (Some((of_port, link)), ignored) = read(all) else { panic!("a session") };
    assert_eq!((of_port.system, ignored), (System { priority: 7, id: ANOTHER }, vec![]));
    assert!(of_port.is_fast && of_port.falls_back);
    assert_eq!((link.port_id, link.port_priority, link.key), (65535, 8, 9));
    let wrong = Rows {
        port: vec![("lacp-time", "often"), ("lacp-system-priority", "65536"), ("lacp-fallback-ab", "1")],
        interface: vec![("lacp-port-id", "0"), ("lacp-port-priority", "-1"), ("lacp-aggregation-key", "9x")],
        ..rows(Some("passive"))
    };
    let defaults = read(rows(Some("passive"))).0;
    let places = ["time", "fallback-ab", "system-priority", "port-id", "port-priority", "aggregation-key"];
    assert_eq!(read(wrong), (defaults, places.map(str::to_string).to_vec()));
    for id in ["nothing", "00:00:00:00:00:00"] {
        let bad = Rows { port: vec![("lacp-system-id", id)], ..rows(Some("active")) };
        assert_eq!(read(bad), (None, vec!["system-id".to_string()]));
    }
}

#[test]
fn a_claim_takes_all_slow_protocols() {
    let claims = |dl_type: u16| {
        let mut mask = Mask::none();
        let claimed = Claim.claims(&Flow { dl_type, ..Flow::default() }, &mut mask);
        (claimed, mask.0.dl_type)
    };
    assert_eq!((claims(0x8809), claims(0x0800)), ((true, u16::MAX), (false, u16::MAX)));
}

/// An active port without a partner: sends each second while it waits, then each half minute.
#[test]
fn a_mute_partner_is_given_up() {
    let mut lab = Lab::port("p0", 1, &config("active", "slow", 1));
    assert_eq!(lab.states("p0"), "negotiated; expired attached");
    let id = lab.id("p0");
    assert_eq!(lab.all.link_state(id, 0), LinkState { is_live: false, is_negotiated: true, ..LinkState::UP });
    lab.pass(4000);
    assert_eq!(lab.states("p0"), "configured; defaulted detached");
    assert_eq!(lab.all.link_state(id, 0), LinkState { is_live: false, ..LinkState::UP });
    lab.pass(40_000);
    let times: Vec<u64> = lab.sent.iter().map(|(at_ms, ..)| at_ms - 1000).collect();
    assert_eq!(times, [0, 1000, 2000, 3000, 33_000]);
    let counters = lab.all.member(id).unwrap().counters();
    assert_eq!(counters, Counters { sent: 5, defaulted: 1, ..Counters::default() });
    let status = lab.all.status(id, 0);
    assert_eq!(status, BTreeMap::from([((Table::Interface, "lacp_current"), LinkValue::Flag(false))]));
}

#[test]
fn a_passive_port_waits_for_a_partner() {
    let mut lab = Lab::port("p0", 1, &config("passive", "slow", 1));
    lab.pass(100_000);
    assert_eq!((lab.states("p0").as_str(), lab.sent.len()), ("configured; defaulted detached", 0));
    assert_eq!(lab.all.next_wakeup(), None);
    lab.receive("p0", &message((100, ANOTHER), 7, 1, 0x0d));
    assert_eq!((lab.states("p0").as_str(), lab.sent.len()), ("negotiated; current attached live", 1));
    lab.pass(90_000);
    assert_eq!(lab.states("p0"), "negotiated; expired attached");
    lab.pass(3000);
    assert_eq!(lab.states("p0"), "configured; defaulted detached");
}

/// The states that OVS 3.5 shows after the same packets.
#[test]
fn members_of_another_partner_are_detached() {
    let mut lab = Lab::port("bond0", 2, &config("active", "fast", 2));
    let other = MacAddr([2, 0, 0, 0, 0, 1]);
    let a = |key, port_id| message((100, ANOTHER), key, port_id, 0x3d);
    let steps = [
        ("p0", a(7, 1), "negotiated; current attached live; expired detached"),
        ("p1", message((100, other), 7, 0, 0x3d), "negotiated; current attached live; current detached"),
        ("p1", a(8, 0), "negotiated; current attached live; current detached"),
        ("p1", message((100, BRIDGE), 8, 0, 0x3d), "negotiated; current attached live; current detached"),
        ("p1", a(7, 2), "negotiated; current attached live; current attached live"),
    ];
    for (n, (name, payload, expected)) in steps.into_iter().enumerate() {
        lab.receive(name, &payload);
        assert_eq!(lab.states("bond0"), expected, "step {n}");
    }
    let warning = "member p1: Loopback detected. Interface is connected to its own bond";
    assert_eq!(lab.lines(), [(LineLevel::Warning, warning.to_string())]);
    let ids = [lab.id("p0"), lab.id("p1")];
    assert!(ids.iter().all(|id| lab.all.link_state(*id, 0).is_live));
    for (ms, expected) in [
        (2900, "negotiated; current attached live; current attached live"),
        (200, "negotiated; expired attached; expired attached"),
        (3000, "configured; defaulted detached; defaulted detached"),
    ] {
        lab.pass(ms);
        assert_eq!(lab.states("bond0"), expected, "after {ms}");
    }
    let falls_back = Config { falls_back: true, ..config("active", "fast", 2) };
    for (n, name) in ["p0", "p1"].into_iter().enumerate() {
        lab.all.put(&link_port("bond0", name, n as u32 + 1, BRIDGE), &falls_back, lab.now_ms);
    }
    lab.settle();
    assert_eq!(lab.states("bond0"), "configured; defaulted attached live; defaulted attached live");
    lab.receive("p1", &a(7, 2));
    assert_eq!(lab.states("bond0"), "negotiated; defaulted detached; current attached live");
}

/// Priorities of the lower system rank the members when none is in use yet.
#[test]
fn the_lower_system_ranks_members() {
    let other = MacAddr([2, 0, 0, 0, 0, 1]);
    // Both partners answer at once: neither member is in use.
    for (system, ids, expected) in [
        // The partners decide, by their addresses.
        (100, [1, 2], "negotiated; current detached; current attached live"),
        // The bond decides: its first link is the highest.
        (65535, [1, 2], "negotiated; current attached live; current detached"),
    ] {
        let mut lab = Lab::port("bond0", 2, &config("passive", "fast", 2));
        let [first, second] = [lab.id("p0"), lab.id("p1")];
        lab.all.input(first, &message((system, ANOTHER), 7, ids[0], 0x3d), lab.now_ms);
        lab.all.input(second, &message((system, other), 7, ids[1], 0x3d), lab.now_ms);
        lab.settle();
        assert_eq!(lab.states("bond0"), expected, "{system}");
    }
}

#[test]
fn packets_without_use_are_counted_and_told_seldom() {
    let mut lab = Lab::port("s1", 1, &config("active", "slow", 1));
    let good = message((100, ANOTHER), 7, 1, 0x3d);
    let marker = [&[2], &good[1..]].concat();
    lab.lines();
    lab.receive("p0", &marker);
    let told = "s1: received a LACP marker PDU.".to_string();
    assert_eq!(lab.lines(), [(LineLevel::Debug, told)]);
    for _ in 0..1000 {
        lab.receive("p0", &good[..60]);
    }
    let lines = lab.lines();
    let told = "s1: received an unparsable LACP PDU.".to_string();
    assert_eq!(lines, vec![(LineLevel::Warning, told); 5]);
    (0..1000).for_each(|_| lab.receive("p0", &marker));
    let id = lab.id("p0");
    assert!(lab.all.member(id).unwrap().lines.len() <= 16, "bounded");
    let counters = lab.all.member(id).unwrap().counters();
    assert_eq!((counters.received, counters.bad, counters.markers), (2001, 1000, 1001));
    assert_eq!(lab.states("s1"), "negotiated; expired attached");
    // Messages on a port without a carrier are ignored.
    let down = LinkPort { is_up: false, ..link_port("s1", "p0", 1, BRIDGE) };
    lab.all.put(&down, &config("active", "slow", 1), lab.now_ms);
    lab.lines();
    lab.pass(60_000);
    let sent = lab.sent.len();
    lab.receive("p0", &good);
    assert_eq!((lab.states("s1").as_str(), lab.sent.len()), ("configured; defaulted detached", sent));
    let told = "p0: carrier state is DOWN, dropping received LACP PDU.".to_string();
    assert_eq!(lab.lines(), [(LineLevel::Info, told)]);
}

/// Partners that change with each message get no answer to each, and no line.
#[test]
fn a_storm_of_partners_causes_few_messages() {
    let mut lab = Lab::port("p0", 1, &config("active", "fast", 1));
    for n in 0..100_000u32 {
        let partner = MacAddr::from_u64(0x0200_0000_0000 | u64::from(n));
        lab.receive("p0", &message((n as u16, partner), n as u16, n as u16, n as u8));
        lab.pass(u64::from(n % 100 == 0));
    }
    assert!(lab.sent.len() < 30, "{} messages in a second", lab.sent.len());
}

#[test]
fn a_carrier_that_returns_negotiates_anew() {
    let settings = config("active", "slow", 1);
    let mut lab = Lab::port("p0", 1, &settings);
    let good = message((100, ANOTHER), 7, 1, 0x3d);
    lab.receive("p0", &good);
    assert_eq!(lab.states("p0"), "negotiated; current attached live");
    for (is_up, changes) in [(false, 1), (true, 2), (true, 2)] {
        let port = LinkPort { is_up, ..link_port("p0", "p0", 1, BRIDGE) };
        lab.all.put(&port, &settings, lab.now_ms);
        lab.settle();
        assert_eq!(lab.states("p0"), "negotiated; expired attached", "{is_up}");
        let counters = lab.all.member(lab.id("p0")).unwrap().counters();
        assert_eq!(counters.carrier_changed, changes);
    }
    lab.receive("p0", &good);
    assert_eq!(lab.states("p0"), "negotiated; current attached live");
}

/// A change of port or settings negotiates anew, the order of ports in texts is that of their creation.
#[test]
fn members_move_between_ports() {
    let settings = config("active", "slow", 2);
    let mut lab = Lab::port("bond1", 3, &settings);
    assert_eq!(lab.all.port("bond1").unwrap().key(), Some(1));
    let first = lab.id("p0");
    assert_eq!(lab.all.put(&link_port("bond0", "p0", 1, BRIDGE), &settings, lab.now_ms), first);
    lab.settle();
    assert_eq!(lab.all.port("bond1").unwrap().key(), Some(2), "the key is that of the next member");
    assert_eq!(lab.all.port("bond0").unwrap().members.len(), 1);
    let titles =
        |text: String| text.lines().filter(|l| l.starts_with("----")).map(str::to_string).collect::<Vec<_>>();
    assert_eq!(titles(lab.all.show(None).unwrap()), ["---- bond1 ----", "---- bond0 ----"]);
    lab.all.remove(first);
    assert!(lab.all.port("bond0").is_none() && lab.all.find("p0").is_none());
    for name in ["p1", "p2"] {
        lab.all.remove(lab.id(name));
    }
    assert_eq!((lab.all.next_wakeup(), lab.all.show(None)), (None, Ok(String::new())));
    assert_eq!(lab.all.show(Some("bond1")).map_err(|e| e.to_string()), Err("no such lacp object".into()));
    let numbered = Config { port_id: Some(9), key: Some(5), ..settings };
    let mut lab = Lab::port("p0", 1, &numbered);
    assert_eq!(lab.all.port("p0").unwrap().key(), Some(5));
    lab.receive("p0", &message((100, ANOTHER), 7, 1, 0x3d));
    let unkeyed = Config { key: None, ..numbered };
    lab.all.put(&link_port("p0", "p0", 1, BRIDGE), &unkeyed, lab.now_ms);
    lab.settle();
    assert_eq!(lab.states("p0"), "negotiated; expired attached");
    assert_eq!(lab.all.port("p0").unwrap().key(), Some(9));
}

#[test]
fn commands_and_state_follow_the_engine() {
    let mut all = Aggregators::default();
    let commands = Aggregators::COMMANDS;
    let run = |all: &mut Aggregators, n: usize, args: &[&str]| {
        (commands[n].run)(all, &args.iter().map(|arg| arg.to_string()).collect::<Vec<_>>(), 0)
    };
    assert_eq!(run(&mut all, 0, &[]), Ok(String::new()));
    assert_eq!(run(&mut all, 1, &["p0"]), Err("no such lacp object".to_string()));
    let port = link_port("p0", "p0", 1, BRIDGE);
    let id = LinkProtocol::configure(&mut all, &port, &config("active", "slow", 1), 5, &mut Still);
    let mut out = Vec::new();
    assert!(!Engine::tick(&mut all, 5, 8, &mut Still, &mut out));
    assert_eq!(out.iter().map(|(id, sent)| (*id, sent.header_bytes)).collect::<Vec<_>>(), [(id, 14)]);
    assert_eq!(run(&mut all, 0, &["p0"]).unwrap(), include_str!("tests/show.txt"));
    assert_eq!(run(&mut all, 1, &[]).unwrap(), include_str!("tests/show_stats.txt"));
    let received = Received { ttl: 0, payload: None };
    assert_eq!(Engine::input(&mut all, id, received, 6, &mut Still), Ok(()));
    assert_eq!(all.member(id).unwrap().counters().bad, 1);
    assert!(all.take_report().is_some_and(|report| report.status_changed && !report.lines.is_empty()));
    assert_eq!(all.take_report(), None);
    Engine::remove(&mut all, id);
    assert_eq!(all.link_state(id, 7), LinkState::UP);
    assert!(all.status(id, 7).is_empty());
    Engine::remove(&mut all, id);
}

#[test]
fn corpus_of_lacp_packets() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/lacp_packets"),
        crate::fuzz::lacp_packets,
    );
}
