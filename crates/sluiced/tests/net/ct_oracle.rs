//! Linux and Open vSwitch as oracles of the userspace tracker: the same TCP segments pass all three, one at a time.
//!
//! Clients and servers are two devices of a namespace without addresses, which answer nothing by themselves. Between them is
//! a router of Linux with rules of nf_tables, Sluice, or the stock switch. Each writes the state of a segment into
//! its TOS.

mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

use testkit::{Daemon, DaemonSpec, Netns, RunDir, patience, require_netns, require_programs, skip, veth};

use crate::helpers::{LIMIT, PYTHON, start, vsctl};
use script::{Script, Segment};

const SEGMENTS: &str = include_str!("ct_oracle/segments.py");
const RULES: &str = include_str!("ct_oracle/nft.py");

/// Address of both ends of the tracker.
const MIDDLE: &str = "02:00:00:00:00:0f";
const CLIENT: &str = "10.1.0.2";
const OTHER_CLIENT: &str = "10.1.0.3";
const SERVER: &str = "10.2.0.2";
/// Other address of clients.
const TRANSLATED: &str = "10.3.0.50";
/// Other address of the server.
const VIRTUAL: &str = "10.2.0.100";

/// A translation of all connections that clients begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Translation {
    No,
    Source,
    Destination,
}

/// Arrival of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Arrival {
    at_server: bool,
    state: &'static str,
    source: (String, u16),
    destination: (String, u16),
    right_checksum: bool,
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(line: &str) -> Result<Arrival, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let [side, tos, source, source_port, destination, destination_port, right] = words[..] else {
            return Err(line.to_string());
        };
        let state = match tos {
            "4" => "new",
            "68" => "new,rpl",
            "8" => "est",
            "72" => "est,rpl",
            "16" | "80" => "rel",
            "32" => "inv",
            other => return Err(format!("TOS {other}")),
        };
        let at = |address: &str, port: &str| (address.to_string(), port.parse().unwrap());
        Ok(Arrival {
            at_server: side == "s",
            state,
            source: at(source, source_port),
            destination: at(destination, destination_port),
            right_checksum: right == "1",
        })
    }
}

/// A tracker between clients and servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tracker {
    Linux,
    Sluice,
    Ovs,
}

struct Lab {
    ends: Netns,
    devices: [String; 2],
    _middle: Netns,
    _daemons: Vec<Daemon>,
}

impl Lab {
    fn new(tracker: Tracker, translation: Translation) -> Lab {
        let (ends, middle) = (Netns::new("ends").unwrap(), Netns::new("middle").unwrap());
        let (devices, ports): (Vec<_>, Vec<_>) = (0..2).map(|_| veth(&ends, &middle).unwrap()).unzip();
        for device in &devices {
            ends.ip(&format!("link set dev {device} addrgenmode none up")).unwrap();
        }
        for port in &ports {
            middle.ip(&format!("link set dev {port} address {MIDDLE} addrgenmode none up")).unwrap();
        }
        let daemons = match tracker {
            Tracker::Linux => {
                route(&middle, &ports, translation);
                Vec::new()
            }
            Tracker::Sluice => vec![start(&middle)],
            Tracker::Ovs => stock(&middle),
        };
        if let Some(daemon) = daemons.first() {
            switch(daemon, &ports, translation);
        }
        Lab { ends, devices: [devices[0].clone(), devices[1].clone()], _middle: middle, _daemons: daemons }
    }

    /// Arrivals of the segments of all scripts, each a connection.
    fn pass(&self, connections: &[Connection]) -> Vec<Vec<Arrival>> {
        let mut input = String::new();
        for (number, connection) in connections.iter().enumerate() {
            connection.script.segments.iter().for_each(|s| input += &connection.line(number, s));
        }
        let [clients, servers] = &self.devices;
        let command = self.ends.cmd(PYTHON).args(["-c", SEGMENTS, clients, servers]).input(input);
        let command = command.limit(patience(LIMIT * 30));
        let output = command.run().unwrap().stdout;
        let mut lines = output.lines();
        connections
            .iter()
            .map(|c| {
                let arrivals = lines.by_ref().take(c.script.segments.len());
                arrivals.map(|l| l.parse().unwrap_or_else(|why| panic!("{}: {why}", c.script.name))).collect()
            })
            .collect()
    }
}

/// Makes a namespace a router that tracks.
fn route(netns: &Netns, ports: &[String], translation: Translation) {
    let set = |name: &str, value: &str| {
        let line = format!("{name}={value}");
        netns.run("sysctl", &["-qw", &line]).unwrap();
    };
    set("net.ipv4.ip_forward", "1");
    for device in ["all", "default", &ports[0], &ports[1]] {
        set(&format!("net.ipv4.conf.{device}.rp_filter"), "0");
        set(&format!("net.ipv4.conf.{device}.send_redirects"), "0");
    }
    let [a, b] = ports else { unreachable!() };
    netns.add_addr(a, "10.1.0.1/24").unwrap();
    netns.add_addr(b, "10.2.0.1/24").unwrap();
    netns.ip(&format!("route add {TRANSLATED} dev {a}")).unwrap();
    for (address, device) in [(CLIENT, a), (OTHER_CLIENT, a), (TRANSLATED, a), (SERVER, b), (VIRTUAL, b)] {
        netns.ip(&format!("neigh replace {address} lladdr 02:00:00:00:00:01 dev {device}")).unwrap();
    }
    let virtual_of = format!("{VIRTUAL},{SERVER}");
    let translation = match translation {
        Translation::No => vec![],
        Translation::Source => vec!["snat", TRANSLATED],
        Translation::Destination => vec!["dnat", &virtual_of],
    };
    netns.cmd(PYTHON).args(["-c", RULES, b]).args(translation).run().unwrap();
}

/// The stock switch with the userspace datapath.
fn stock(netns: &Netns) -> Vec<Daemon> {
    let dir = RunDir::new("stock").unwrap();
    let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(netns).rundir(&dir));
    testkit::start_stock(spec, "ovs-vswitchd", &[], [&[], &["--pidfile", "--log-file"]]).unwrap()
}

/// Makes a daemon track between two ports.
fn switch(daemon: &Daemon, ports: &[String], translation: Translation) {
    let port = |(name, n): (&String, u8)| {
        format!(" -- add-port br0 {name} -- set interface {name} ofport_request={n}")
    };
    let ports: String = ports.iter().zip(1..).map(port).collect();
    vsctl(daemon, &format!("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure{ports}"));
    let (nat, commit) = match translation {
        Translation::No => ("", String::new()),
        Translation::Source => (",nat", format!(",nat(src={TRANSLATED})")),
        Translation::Destination => (",nat", format!(",nat(dst={SERVER})")),
    };
    let mut rules = format!("ip actions=ct(zone=3{nat},table=1)\n");
    for (from, to, commit) in [(1, 2, commit.as_str()), (2, 1, nat)] {
        let at = format!("table=1,in_port={from},ip");
        let new = format!("ct(commit,zone=3{commit}),");
        for (state, tos, new) in [("new", 4, new.as_str()), ("est", 8, ""), ("rel-new", 16, "")] {
            let _ =
                writeln!(rules, "{at},ct_state=+trk+{state}-rpl actions=mod_nw_tos:{tos},{new}output:{to}");
            let tos = tos | 0x40;
            let _ =
                writeln!(rules, "{at},ct_state=+trk+{state}+rpl actions=mod_nw_tos:{tos},{new}output:{to}");
        }
        let _ = writeln!(rules, "priority=40000,{at},ct_state=+trk+inv actions=mod_nw_tos:32,output:{to}");
    }
    let file = daemon.rundir().join("rules");
    std::fs::write(&file, rules).unwrap();
    daemon.ovs("ovs-ofctl", &["--bundle", "replace-flows", "br0", file.to_str().unwrap()]).unwrap();
}

/// A script with its tuple.
struct Connection {
    script: Script,
    client: (String, u16),
    server: (String, u16),
}

impl Connection {
    /// Whether a tuple is the one that the client knows, in some direction.
    fn is_own(&self, tuple: [&(String, u16); 2]) -> bool {
        tuple == [&self.client, &self.server] || tuple == [&self.server, &self.client]
    }

    /// The line of a segment, for the sender.
    fn line(&self, number: usize, s: &Segment) -> String {
        let (side, scale) = (if s.by_server { 's' } else { 'c' }, s.scale.map_or(-1, i32::from));
        let ((client, client_port), (server, server_port)) = (&self.client, &self.server);
        format!(
            "{number} {side} {client} {client_port} {server} {server_port} {} {} {} {} {scale} {} {}\n",
            s.flags,
            s.seq,
            s.ack,
            s.window,
            s.bytes,
            u8::from(s.wrong_checksum)
        )
    }
}

/// Connections of two clients with the same ports, to one server.
fn connections(scripts: Vec<Script>, server: &str) -> Vec<Connection> {
    let clients = [CLIENT, OTHER_CLIENT].into_iter().cycle();
    let ports = (0..).map(|n: u16| 20_000 + n / 2);
    let tuples = clients.zip(ports);
    let one = |(script, (client, port)): (Script, (&str, u16))| Connection {
        script,
        client: (client.to_string(), port),
        server: (server.to_string(), 80),
    };
    scripts.into_iter().zip(tuples).map(one).collect()
}

/// Whether the kernel tracks for a router; reports a skip otherwise.
fn linux_tracks(test: &str) -> bool {
    let netns = Netns::new("probe").unwrap();
    let load = |translation: &[&str]| {
        netns.cmd(PYTHON).args(["-c", RULES, "lo"]).args(translation).output().unwrap()
    };
    let loaded = load(&["snat", TRANSLATED]);
    loaded.status.success()
        || skip(test, &format!("the kernel lacks tracking or nf_tables: {}", loaded.stderr.trim()))
}

/// Segments to which Linux assigns another state than Sluice. Open vSwitch answers as Sluice.
struct Difference {
    /// Reason of Linux (`nf_conntrack_proto_tcp`, with its default settings).
    why: &'static str,
    script: &'static str,
    /// Places of segments in the script, their states by Linux and by Sluice.
    states: &'static [(usize, &'static str, &'static str)],
}

const UNREPLIED: &str =
    "a connection without a reply is new; in Sluice only its first segment and repeated SYNs are";
const BEGINNING: &str = "a reset or FIN begins no connection, also with nf_conntrack_tcp_loose";
const RESET: &str = "a reset in the window is valid, but ends the connection only at the exact number";
const LATE_SYN: &str = "a SYN within a connection passes: the peers resynchronize by its answer";
const AFTER_RESET: &str = "a SYN after a reset continues the connection of the reset";
const SIMULTANEOUS: &str = "the second SYN of a simultaneous open is a reply";
const OLD: &str = "data and acknowledgements before the window pass without effect";
const BEYOND: &str = "data somewhat beyond the window pass without effect";
const WRONG_ANSWER: &str = "a SYN+ACK must acknowledge the SYN exactly";

const DIFFERENCES: [Difference; 13] = [
    Difference {
        why: RESET,
        script: "reset within the window",
        states: &[(5, "est", "inv"), (7, "est", "inv")],
    },
    Difference { why: AFTER_RESET, script: "reused after reset", states: &[(5, "est", "new")] },
    Difference {
        why: LATE_SYN,
        script: "SYN of an established one",
        states: &[(5, "est", "inv"), (7, "est", "inv")],
    },
    Difference { why: SIMULTANEOUS, script: "simultaneous open", states: &[(1, "est,rpl", "new")] },
    Difference {
        why: UNREPLIED,
        script: "picked up, one side",
        states: &[(1, "new", "est"), (2, "new", "est"), (3, "new", "est"), (4, "new", "est")],
    },
    Difference { why: UNREPLIED, script: "acknowledged SYN first", states: &[(2, "new", "est")] },
    Difference {
        why: BEGINNING,
        script: "reset first",
        states: &[(0, "inv", "new"), (1, "inv", "est"), (2, "inv", "est,rpl")],
    },
    Difference {
        why: BEGINNING,
        script: "FIN first",
        states: &[(0, "inv", "new"), (1, "inv", "est,rpl"), (2, "new", "est")],
    },
    Difference { why: OLD, script: "data out of the window", states: &[(6, "est,rpl", "inv")] },
    Difference { why: OLD, script: "acknowledgement out of the window", states: &[(5, "est,rpl", "inv")] },
    Difference { why: BEYOND, script: "large windows", states: &[(6, "est,rpl", "inv")] },
    Difference { why: BEYOND, script: "scale of one side", states: &[(6, "est,rpl", "inv")] },
    Difference {
        why: WRONG_ANSWER,
        script: "handshake with a wrong acknowledgement",
        states: &[
            (1, "inv", "est,rpl"),
            (2, "new", "est"),
            (3, "inv", "est"),
            (4, "inv", "est,rpl"),
            (5, "new", "est"),
            (6, "new", "est"),
        ],
    },
];

/// Passes the connections through a tracker.
fn arrivals(tracker: Tracker, translation: Translation, of: &[Connection]) -> Vec<Vec<Arrival>> {
    Lab::new(tracker, translation).pass(of)
}

/// The segments with differing states, by Linux and by Sluice.
fn differing(linux: &[Arrival], sluice: &[Arrival]) -> Vec<(usize, &'static str, &'static str)> {
    let pairs = linux.iter().zip(sluice).enumerate();
    pairs.filter(|(_, (l, s))| l.state != s.state).map(|(n, (l, s))| (n, l.state, s.state)).collect()
}

/// Asserts that Linux and Sluice differ in the listed segments, and in no others.
fn assert_listed(connections: &[Connection], linux: &[Vec<Arrival>], sluice: &[Vec<Arrival>]) {
    let mut wrong = String::new();
    for ((c, linux), sluice) in connections.iter().zip(linux).zip(sluice) {
        let Script { name, words, .. } = &c.script;
        let found = differing(linux, sluice);
        let listed = DIFFERENCES.iter().find(|d| d.script == name);
        if found != listed.map_or(&[][..], |d| d.states) {
            let why = listed.map_or("", |d| d.why);
            let _ = writeln!(wrong, "{name}: {}\n  {found:?}; listed: {why}", words.join(" "));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Asserts that Open vSwitch assigns the same states, and translates the same segments.
fn assert_equal(connections: &[Connection], ovs: &[Vec<Arrival>], sluice: &[Vec<Arrival>]) {
    for ((c, ovs), sluice) in connections.iter().zip(ovs).zip(sluice) {
        let outcome = |(word, a): (&String, &Arrival)| {
            let tuple = [&a.source, &a.destination];
            format!("{word}={}{}", a.state, if c.is_own(tuple) { "" } else { ",translated" })
        };
        let outcomes = |all: &[Arrival]| c.script.words.iter().zip(all).map(outcome).collect::<Vec<_>>();
        assert_eq!(outcomes(sluice), outcomes(ovs), "{}", c.script.name);
    }
}

#[test]
fn tcp_states_are_those_of_linux() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "sysctl");
    if !linux_tracks("tcp_states_are_those_of_linux") {
        return;
    }
    let seeds = if testkit::long() { 1000 } else { 100 };
    let usual = (1..=seeds).map(|seed| script::usual(seed, 20));
    let connections = connections(script::named().into_iter().chain(usual).collect(), SERVER);
    let of = |tracker| arrivals(tracker, Translation::No, &connections);
    assert_listed(&connections, &of(Tracker::Linux), &of(Tracker::Sluice));
}

#[test]
fn tcp_states_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let seeds = if testkit::long() { 1000 } else { 100 };
    let unusual = (1..=seeds).map(|seed| script::unusual(seed, 24));
    let connections = connections(script::named().into_iter().chain(unusual).collect(), SERVER);
    let of = |tracker| arrivals(tracker, Translation::No, &connections);
    assert_equal(&connections, &of(Tracker::Ovs), &of(Tracker::Sluice));
}

type Tuple = [(String, u16); 2];

/// Asserts the tuples of translated connections: segments of the client have the translated one, those of the server are
/// translated back, and no two connections of a switch share one. Linux leaves invalid segments as they are.
fn assert_translated(
    tracker: Tracker,
    translation: Translation,
    connections: &[Connection],
    all: &[Vec<Arrival>],
) {
    let mut owners = BTreeMap::new();
    let mut with_other_port = 0;
    for (number, (c, arrivals)) in connections.iter().zip(all).enumerate() {
        let mut translated: Option<Tuple> = None;
        for ((segment, word), a) in c.script.segments.iter().zip(&c.script.words).zip(arrivals) {
            let context = || format!("{tracker:?}, {}: {word}, {a:?}, {translated:?}", c.script.name);
            assert_eq!(a.at_server, !segment.by_server, "{}", context());
            assert_eq!(a.right_checksum, !segment.wrong_checksum, "{}", context());
            let tuple =
                if segment.by_server { [&a.destination, &a.source] } else { [&a.source, &a.destination] };
            let is_translated = translated.as_ref().is_some_and(|[from, to]| tuple == [from, to]);
            if a.state == "inv" {
                // The sender's own tuple, which is not the client's if a server sends.
                let as_sent =
                    if segment.by_server && translated.is_some() { is_translated } else { c.is_own(tuple) };
                let exchanged = if segment.by_server { c.is_own(tuple) } else { is_translated };
                assert!(as_sent || exchanged && tracker != Tracker::Linux, "{}", context());
                continue;
            }
            if segment.by_server {
                assert!(c.is_own(tuple), "{}", context());
                continue;
            }
            let [(from, port), to] = tuple;
            let expected = match translation {
                Translation::Source => (TRANSLATED, &*c.server.0, c.server.1),
                _ => (&*c.client.0, SERVER, c.server.1),
            };
            assert_eq!((from.as_str(), to.0.as_str(), to.1), expected, "{}", context());
            if a.state == "new" {
                with_other_port += u32::from(*port != c.client.1);
            } else {
                assert!(is_translated, "{}", context());
            }
            let tuple = tuple.map(Clone::clone);
            let owner = *owners.entry(tuple.clone()).or_insert(number);
            // Seen once: Linux 6.18 gives two connections one port. It is the oracle of states, not the one under test.
            assert!(owner == number || tracker == Tracker::Linux, "{}, of {owner}", context());
            translated = Some(tuple);
        }
    }
    // Both clients use the same ports, so that one of them gets another. Only Open vSwitch also changes the client's port of
    // a new connection with a translated destination, whose former one was just reset.
    let takes_other = translation == Translation::Source || tracker == Tracker::Ovs;
    assert_eq!(with_other_port > 0, takes_other, "{tracker:?}");
}

/// Translated connections of scripts in which the client begins.
fn translated(translation: Translation, trackers: &[Tracker]) {
    let server = if translation == Translation::Destination { VIRTUAL } else { SERVER };
    let begins =
        |script: &Script| script.words[0].starts_with("c:") && !script.words.iter().any(|w| w == "s:S*");
    let named: Vec<Script> = script::named().into_iter().filter(begins).collect();
    let scripts = named.iter().chain(&named).cloned().collect();
    let connections = connections(scripts, server);
    let all: Vec<_> = trackers.iter().map(|t| arrivals(*t, translation, &connections)).collect();
    for (tracker, arrivals) in trackers.iter().zip(&all) {
        assert_translated(*tracker, translation, &connections, arrivals);
    }
    match trackers[0] {
        Tracker::Linux => assert_listed(&connections, &all[0], &all[1]),
        _ => assert_equal(&connections, &all[0], &all[1]),
    }
}

#[test]
fn translated_sources_are_as_those_of_linux() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "sysctl");
    if linux_tracks("translated_sources_are_as_those_of_linux") {
        translated(Translation::Source, &[Tracker::Linux, Tracker::Sluice]);
    }
}

#[test]
fn translated_destinations_are_as_those_of_linux() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "sysctl");
    if linux_tracks("translated_destinations_are_as_those_of_linux") {
        translated(Translation::Destination, &[Tracker::Linux, Tracker::Sluice]);
    }
}

#[test]
fn translations_are_as_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    translated(Translation::Source, &[Tracker::Ovs, Tracker::Sluice]);
    translated(Translation::Destination, &[Tracker::Ovs, Tracker::Sluice]);
}
