//! Live connections, beside Debian's switch: states of TCP in lists, limits below the number of connections, timeout policies
//! that come and go, datagrams in fragments and errors about them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use packet::checksum::{checksum, fold, pseudo, sum};
use testkit::{require_netns, require_programs, wait_for};

use crate::ct_beside::{Side, hex};
use crate::ct_hostile::{ACK, FIN, RST, SYN, ipv4, tcp};
use crate::ct_zones::{case_flow, said, shown};
use crate::helpers::{LIMIT, appctl, vsctl};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The client as the server sees it.
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

/// A command that both answer alike.
fn same(sides: &[Side; 2], line: &str) -> String {
    let [ours, stock] = sides.each_ref().map(|side| said(side, line));
    assert_eq!(ours, stock, "{line}");
    ours
}

/// A packet that both pass alike.
fn pass_same(sides: &[Side; 2], what: &str, port: usize, packet: &str) -> String {
    let [ours, stock] = sides.each_ref().map(|side| side.pass(port, packet));
    assert_eq!(ours, stock, "{what}");
    ours
}

/// Segments of a connection: `>` from the client, flags, sequence and acknowledgement number; data after a `+`.
const SCRIPTS: [(&str, &[&str]); 22] = [
    ("SYN", &["> S 100 0"]),
    ("SYN twice", &["> S 100 0", "> S 100 0"]),
    ("SYN+ACK", &["> S 100 0", "< SA 500 101"]),
    ("open", &["> S 100 0", "< SA 500 101", "> A 101 501"]),
    ("data", &["> S 100 0", "< SA 500 101", "> A+ 101 501", "< A+ 501 105"]),
    ("the client closes", &["> S 100 0", "< SA 500 101", "> A 101 501", "> FA 101 501"]),
    ("its FIN is acknowledged", &["> S 100 0", "< SA 500 101", "> A 101 501", "> FA 101 501", "< A 501 102"]),
    ("the server closes", &["> S 100 0", "< SA 500 101", "> A 101 501", "< FA 501 101"]),
    ("that is acknowledged", &["> S 100 0", "< SA 500 101", "> A 101 501", "< FA 501 101", "> A 101 502"]),
    ("both close", &["> S 100 0", "< SA 500 101", "> A 101 501", "> FA 101 501", "< FA 501 102"]),
    (
        "both are acknowledged",
        &["> S 100 0", "< SA 500 101", "> A 101 501", "> FA 101 501", "< FA 501 102", "> A 102 502"],
    ),
    ("both close at once", &["> S 100 0", "< SA 500 101", "> A 101 501", "> FA 101 501", "< FA 501 101"]),
    ("the client resets", &["> S 100 0", "< SA 500 101", "> A 101 501", "> RA 101 501"]),
    ("the server resets", &["> S 100 0", "< SA 500 101", "> A 101 501", "< RA 501 101"]),
    ("refused", &["> S 100 0", "< RA 0 101"]),
    ("in mid-stream", &["> A+ 7000 8000"]),
    ("in mid-stream, both", &["> A+ 7000 8000", "< A+ 8000 7004"]),
    ("begins with FIN", &["> FA 7000 8000"]),
    ("begins with RST", &["> RA 7000 8000"]),
    ("the server begins", &["< A+ 8000 7004"]),
    ("both open", &["> S 100 0", "< S 500 0"]),
    ("FIN before the third segment", &["> S 100 0", "< SA 500 101", "> FA 101 501"]),
];

/// The frame of a segment between a port of the client and port 80.
fn segment(client: u16, text: &str) -> (usize, String) {
    let words: Vec<&str> = text.split(' ').collect();
    let [direction, flags, seq, ack] = words[..] else { panic!("{text}") };
    let bits = [('S', SYN), ('A', ACK), ('F', FIN), ('R', RST)];
    let bits = bits.iter().filter(|(c, _)| flags.contains(*c)).map(|(_, bit)| bit).sum();
    let payload: &[u8] = if flags.ends_with('+') { b"more" } else { b"" };
    let (c, s) = (SocketAddrV4::new(CLIENT, client), SocketAddrV4::new(SERVER, 80));
    let (port, from, to) = if direction == ">" { (1, c, s) } else { (2, s, c) };
    (port, hex(&tcp(from, to, seq.parse().unwrap(), ack.parse().unwrap(), bits, payload)))
}

/// Lists show states, short and verbose, with the timeouts that follow from them. The short list shows the later state of both
/// sides, with `TIME_WAIT` for `FIN_WAIT_2` and `ESTABLISHED` for `SYN_RECV`.
#[test]
fn states_of_tcp_are_listed_as_by_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        side.rules(&format!("tcp actions=ct(commit,zone=6,table=9)\n{}", shown().replace("{ip}", "ip")));
        appctl(&side.daemon, "time/stop");
    }
    for (client, (what, segments)) in (1000..).zip(&SCRIPTS) {
        for text in *segments {
            let (port, frame) = segment(client, text);
            pass_same(&sides, &format!("{what}: {text}"), port, &frame);
        }
    }
    for options in ["", " -s", " -m", " -m -s"] {
        let all = same(&sides, &format!("dpctl/dump-conntrack{options}"));
        assert_eq!(all.trim().lines().count(), SCRIPTS.len(), "{all}");
    }
    let short = same(&sides, "dpctl/dump-conntrack");
    for state in ["SYN_SENT", "ESTABLISHED", "CLOSING", "TIME_WAIT"] {
        assert!(short.contains(&format!("(state={state})")), "{short}");
    }
    assert!(!short.contains("FIN_WAIT_2"), "{short}");
    assert!(same(&sides, "dpctl/dump-conntrack -m").contains("state_reply=FIN_WAIT_2"));
}

/// A limit below the number of connections ends none, and admits none until the number has fallen.
#[test]
fn limits_below_the_number_of_connections_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        side.rules(&format!("udp actions=ct(commit,zone=3,table=9)\n{}", shown().replace("{ip}", "ip")));
        appctl(&side.daemon, "time/stop");
    }
    let udp = |source: u16| {
        let (port, flow) = case_flow(&format!("> c {source} s 6"), false);
        pass_same(&sides, &source.to_string(), port, &flow);
    };
    let counted = |count: u32| {
        let limits = same(&sides, "dpctl/ct-get-limits zone=3");
        assert!(limits.contains(&format!("count={count}\n")), "{limits} instead of {count}");
    };
    same(&sides, "dpctl/ct-set-limits zone=3,limit=5");
    (10..14).for_each(udp);
    counted(4);
    same(&sides, "dpctl/ct-set-limits zone=3,limit=2");
    // One of those that are there, and another one.
    [10, 20].into_iter().for_each(udp);
    counted(4);
    same(&sides, "dpctl/ct-set-limits zone=3,limit=4");
    udp(21);
    counted(4);
    same(&sides, "dpctl/ct-set-limits zone=3,limit=5");
    [22, 23].into_iter().for_each(udp);
    counted(5);
    same(&sides, "dpctl/flush-conntrack zone=3");
    counted(0);
    (30..36).for_each(udp);
    counted(5);
    same(&sides, "dpctl/flush-conntrack zone=3 ct_nw_proto=17,ct_tp_src=31");
    counted(4);
    // By the tuple of its replies.
    let reply = |source| {
        let listed = appctl(&sides[0].daemon, "dpctl/dump-conntrack zone=3");
        let line = listed.lines().find(|line| line.contains(&format!("sport={source},"))).unwrap_or_default();
        let of = |name: &str| {
            let rest = line.split("reply=(").nth(1).and_then(|r| r.split(name).nth(1)).unwrap_or_default();
            rest.split([',', ')']).next().unwrap_or_default().to_string()
        };
        format!(
            "ct_nw_src={},ct_nw_dst={},ct_nw_proto=17,ct_tp_src={},ct_tp_dst={}",
            of("src="),
            of("dst="),
            of("sport="),
            of("dport=")
        )
    };
    same(&sides, &format!("dpctl/flush-conntrack zone=3 {}", reply(32)));
    counted(3);
    udp(32);
    counted(4);
    // The limit of all zones together.
    same(&sides, "dpctl/ct-set-maxconns 3");
    [31, 30].into_iter().for_each(udp);
    counted(4);
    same(&sides, "dpctl/ct-get-nconns");
    same(&sides, "dpctl/ct-set-maxconns 3000000");
    udp(31);
    same(&sides, "dpctl/dump-conntrack -s");
}

/// A zone's own limit of 0 admits no connection, and a default of 0 limits none: Open vSwitch 3.1 and 3.5 agree.
#[test]
fn a_limit_of_0_is_that_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        side.rules(&format!("udp actions=ct(commit,zone=3,table=9)\n{}", shown().replace("{ip}", "ip")));
        appctl(&side.daemon, "time/stop");
    }
    for (source, limit, connections) in [
        (10, "zone=3,limit=1", 1),
        (11, "zone=3,limit=1", 1),
        (12, "zone=3,limit=0", 1),
        (13, "default=0", 1),
        (14, "default=9", 1),
        (15, "zone=3,limit=2", 2),
    ] {
        same(&sides, &format!("dpctl/ct-set-limits {limit}"));
        let (port, flow) = case_flow(&format!("> c {source} s 6"), false);
        pass_same(&sides, &source.to_string(), port, &flow);
        assert_eq!(sides[0].tracked().len(), connections, "port {source}: {limit}");
    }
}

/// The timeouts of all connections by their source port or protocol.
fn timeouts(side: &Side) -> Vec<String> {
    let mut all: Vec<String> = appctl(&side.daemon, "dpctl/dump-conntrack -s")
        .lines()
        .map(|line| {
            let of = |name: &str| line.split(name).nth(1).and_then(|rest| rest.split([',', ')']).next());
            let name = of("sport=").unwrap_or("icmp");
            format!("{name}: {}", of("timeout=").unwrap_or_default())
        })
        .collect();
    all.sort();
    all
}

/// The connection of port 9.
const LAST: &str = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=9,ct_tp_dst=6";

/// A connection keeps the timeout policy that its zone had when it began, or none. Once that policy is removed, the usual
/// timeouts count from its next packet on.
#[test]
fn timeout_policies_of_live_connections_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    let sent = |side: &Side| {
        for packet in ["> c 5 s 6", "< s 6 c 5", "> c 7 s 6", "> c 7 s 6"] {
            let (port, flow) = case_flow(packet, false);
            side.pass(port, &flow);
        }
        for text in ["> S 100 0", "< SA 500 101", "> A 101 501"] {
            let (port, frame) = segment(80, text);
            side.pass(port, &frame);
        }
    };
    let policy = "udp_first=20 udp_single=40 udp_multiple=50 tcp_established=300";
    let [with, usual] =
        [["5: 50", "7: 40", "80: 300"], ["5: 30", "7: 60", "80: 86400"]].map(|all| all.map(str::to_string));
    for side in &sides {
        let daemon = &side.daemon;
        side.rules(&format!("ip actions=ct(commit,zone=5,table=9)\n{}", shown().replace("{ip}", "ip")));
        vsctl(daemon, "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
        sent(side);
        vsctl(daemon, &format!("add-zone-tp dummy zone=5 {policy}"));
        // Connections that begin have it at some time.
        let (port, flow) = case_flow("> c 9 s 6", false);
        let forget = || said(side, &format!("dpctl/flush-conntrack zone=5 {LAST}"));
        wait_for(LIMIT, "the policy", || {
            forget();
            side.pass(port, &flow);
            timeouts(side).iter().any(|line| ["9: 20", "9: 19"].contains(&line.as_str()))
        })
        .unwrap();
        appctl(daemon, "time/stop");
        forget();
        sent(side);
        assert_eq!(timeouts(side), usual, "begun before the policy");
        appctl(daemon, "dpctl/flush-conntrack");
        sent(side);
        assert_eq!(timeouts(side), with, "begun with the policy");
        vsctl(daemon, "del-zone-tp dummy zone=5");
        wait_for(LIMIT, "the usual timeouts", || {
            // Sluice removes a policy after the next round of the revalidator.
            appctl(daemon, "time/warp 1000");
            sent(side);
            timeouts(side) == usual
        })
        .unwrap_or_else(|why| panic!("{why:#}: {:?}", timeouts(side)));
    }
}

/// A UDP datagram of the payload's length, with a right checksum.
fn udp(from: SocketAddrV4, to: SocketAddrV4, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [from.port(), to.port(), 8 + bytes as u16, 0] {
        body.extend(word.to_be_bytes());
    }
    body.extend((0..bytes).map(|n| n as u8));
    let sum = !fold(sum(&body, pseudo(&from.ip().octets(), &to.ip().octets(), 17, body.len())));
    body[6..8].copy_from_slice(&sum.to_be_bytes());
    body
}

/// The fragments of a datagram, of 800 bytes each.
fn fragments(from: SocketAddrV4, to: SocketAddrV4, id: u16) -> Vec<Vec<u8>> {
    let body = udp(from, to, 2000);
    let cut = |(n, part): (usize, &[u8])| {
        let more = if (n + 1) * 800 < body.len() { 0x2000 } else { 0 };
        ipv4(*from.ip(), *to.ip(), 17, (id, more | (n * 100) as u16), part)
    };
    body.chunks(800).enumerate().map(cut).collect()
}

/// An ICMP error that cites the first bytes of a frame's packet.
fn error(from: Ipv4Addr, to: Ipv4Addr, kind: u8, code: u8, cited: &[u8]) -> String {
    let mut body = vec![kind, code, 0, 0, 0, 0, 5, 120];
    body.extend(&cited[14..14 + 28]);
    let sum = checksum(&body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    hex(&ipv4(from, to, 1, (3, 0), &body))
}

impl Side {
    /// Receives a datagram in that order; returns its fragments as the other port sends them.
    fn pass_fragments(&self, port: usize, frames: &[Vec<u8>], order: [usize; 3]) -> Vec<String> {
        let before = self.sent(3 - port).len();
        order.iter().for_each(|n| self.receive(port, &hex(&frames[*n])));
        let sent = || self.sent(3 - port).split_off(before);
        wait_for(LIMIT, "the fragments", || sent().len() == 3).unwrap();
        sent()
    }
}

/// Datagrams in fragments are translated in both directions. Errors about their first fragments find the connection and are
/// translated back, as in Linux; in Open vSwitch they are invalid. Those about others are invalid in both.
#[test]
fn translated_fragments_and_errors_about_them_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        let nat = format!("ct(commit,zone=3,nat(src={TRANSLATED}),table=9)");
        let rules = format!("ip,in_port=1 actions={nat}\nip,in_port=2 actions=ct(zone=3,nat,table=9)\n");
        side.rules(&format!("{rules}{}", shown().replace("{ip}", "ip")));
        appctl(&side.daemon, "time/stop");
        appctl(&side.daemon, "dpctl/ipf-set-min-frag v4 400");
    }
    let end = SocketAddrV4::new;
    let (client, server, seen) = (end(CLIENT, 5), end(SERVER, 6), end(TRANSLATED, 5));
    let (there, back) = (fragments(client, server, 77), fragments(server, seen, 78));
    for (port, frames, order) in [(1, &there, [0, 2, 1]), (2, &back, [1, 0, 2]), (1, &there, [2, 1, 0])] {
        let [ours, stock] = sides.each_ref().map(|side| side.pass_fragments(port, frames, order));
        assert_eq!(ours, stock, "from port {port}");
    }
    let translated = fragments(seen, server, 77);
    let replied = fragments(server, client, 78);
    let errors = [
        ("too large, about the first", 2, error(ROUTER, TRANSLATED, 3, 4, &translated[0])),
        ("expired, about the first", 2, error(ROUTER, TRANSLATED, 11, 1, &translated[0])),
        ("about the second", 2, error(ROUTER, TRANSLATED, 11, 1, &translated[1])),
        ("about the first of a reply", 1, error(CLIENT, SERVER, 11, 1, &replied[0])),
        ("about the second of a reply", 1, error(CLIENT, SERVER, 11, 1, &replied[1])),
    ];
    let hex = |from: Ipv4Addr, to: Ipv4Addr| format!("{:08x}{:08x}", from.to_bits(), to.to_bits());
    for (what, port, frame) in &errors {
        let [ours, stock] = sides.each_ref().map(|side| side.pass(*port, frame));
        if what.contains("second") {
            assert_eq!(ours, stock, "{what}");
        } else {
            let outer = if *port == 2 { hex(ROUTER, CLIENT) } else { hex(TRANSLATED, SERVER) };
            let cited = if *port == 2 { hex(CLIENT, SERVER) } else { hex(SERVER, TRANSLATED) };
            assert!(ours.contains(&outer) && ours.contains(&cited), "{what}: {ours}");
        }
    }
    same(&sides, "dpctl/ipf-get-status -m");
    same(&sides, "dpctl/dump-conntrack");
}

/// Fragments whose datagram is not complete in time count alike. Sluice drops them; Open vSwitch 3.1 sends them behind a later
/// packet, untracked.
#[test]
fn late_fragments_are_counted_as_by_open_vswitch_and_dropped() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        side.rules(&format!("ip actions=ct(commit,zone=3,table=9)\n{}", shown().replace("{ip}", "ip")));
        appctl(&side.daemon, "time/stop");
        appctl(&side.daemon, "dpctl/ipf-set-min-frag v4 400");
    }
    let end = SocketAddrV4::new;
    let frames = fragments(end(CLIENT, 5), end(SERVER, 6), 77);
    // Open vSwitch sends the later packet first.
    let expected = [1, 3];
    let sent = [(&sides[0], expected[0]), (&sides[1], expected[1])].map(|(side, count)| {
        frames[..2].iter().for_each(|frame| side.receive(1, &hex(frame)));
        let status = said(side, "dpctl/ipf-get-status -m");
        assert!(status.contains("num frag: 2"), "{status}");
        appctl(&side.daemon, "time/warp 16000");
        let (port, flow) = case_flow("> c 50 s 6", false);
        side.receive(port, &flow);
        wait_for(LIMIT, "a later packet", || {
            let sent = side.sent(2);
            sent.len() >= count && sent.iter().any(|f| f.contains("00320006"))
        })
        .unwrap();
        side.sent(2).len()
    });
    assert_eq!(sent, expected);
    let status = same(&sides, "dpctl/ipf-get-status -m");
    assert!(status.contains("num frag: 0"), "{status}");
    // The last one begins anew.
    for side in &sides {
        side.receive(1, &hex(&frames[2]));
        wait_for(Duration::from_secs(10), "a held fragment", || {
            said(side, "dpctl/ipf-get-status").contains("num frag: 1")
        })
        .unwrap();
    }
    same(&sides, "dpctl/ipf-get-status -m");
}
