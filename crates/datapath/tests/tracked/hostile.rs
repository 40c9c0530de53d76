//! Hostile traffic at the tracker, on virtual time: no packet of another port is lost or loses its state. Real traffic would send
//! a lost packet again.

use crate::switch::{ACK, BURST, End, ICMP, SYN, Switch, TCP, UDP, frame};
use conntrack::Cursor;
use dpif::actions::parse_actions;
use dpif::text::NumbersOnly;
use packet::checksum::checksum;
use std::net::Ipv4Addr;

/// Input port of the attacker; ports 1 and 2 are the victims'.
const ATTACKER: u32 = 4;
const FIN: u8 = 1;
const RST: u8 = 4;
const ROUNDS: u32 = 300;
/// Places for connections.
const CONNECTIONS: u32 = 400;

fn end(host: u8, port: u16) -> End {
    (Ipv4Addr::new(10, 0, 0, host).into(), port)
}

/// A port of the attacker's address number `n`.
fn forged(n: u32) -> End {
    (Ipv4Addr::from(0x0b00_0000 + n / 50_000).into(), (1024 + n % 50_000) as u16)
}

/// A fragment of a UDP datagram without a checksum of UDP. `place`: flags and offset of IPv4.
fn fragment(from: u8, to: u8, id: u16, place: u16, body: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    for word in [20 + body.len() as u16, id, place] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend([64, UDP, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, body].concat()
}

/// Both fragments of a datagram from port 5 to port 6.
fn datagram(from: u8, to: u8, id: u16) -> [Vec<u8>; 2] {
    let mut first = vec![0, 5, 0, 6, 0x06, 0x48, 0, 0];
    first.resize(1208, 7);
    [fragment(from, to, id, 0x2000, &first), fragment(from, to, id, 151, &[7; 400])]
}

/// Frames of the attacker by round, and the list of actions for them.
struct Attack {
    actions: String,
    frames: Box<dyn Fn(u32) -> Vec<Vec<u8>>>,
    /// Translation of the victims' source, and the address that servers answer.
    nat: &'static str,
    seen: u8,
}

/// One frame for each packet of a burst, by a running number.
fn each(of: impl Fn(u32) -> Vec<u8> + 'static) -> Box<dyn Fn(u32) -> Vec<Vec<u8>>> {
    Box::new(move |round| (0..BURST as u32).map(|n| of(round * BURST as u32 + n)).collect())
}

fn syn(n: u32) -> Vec<u8> {
    frame(TCP, forged(n), end(2, 80), false, SYN, n, 0, &[])
}

/// The victims: a connection of each protocol, and datagrams in fragments.
struct Victims {
    switch: Switch,
    /// Address that servers answer.
    seen: u8,
}

impl Victims {
    fn new(attack: &Attack, group: bool) -> Victims {
        let commit = format!("ct(commit,zone=1{}),recirc(0x1)", attack.nat);
        let back = format!("ct(zone=1{}),recirc(0x2)", if attack.nat.is_empty() { "" } else { ",nat" });
        let lists =
            [(1, 0, &*commit), (1, 1, "2"), (2, 0, &back), (2, 2, "1"), (ATTACKER, 0, &attack.actions)];
        let mut switch = Switch::new(&lists, false, group);
        switch.others = Some(parse_actions("3", &NumbersOnly).unwrap().into());
        switch.shared.tracker().set_max_connections(CONNECTIONS);
        switch.shared.tracker().set_ports(3);
        let mut victims = Victims { switch, seen: attack.seen };
        for _ in 0..2 {
            for (port, frame) in victims.opening() {
                victims.switch.pass(port, &frame);
            }
            for is_back in [false, true] {
                let (port, fragments) = victims.fragments(is_back, 1);
                victims.open(port, &fragments);
            }
        }
        victims.open(ATTACKER, &(attack.frames)(0)[..2]);
        victims
    }

    /// Receives frames that need flows, one after the other.
    fn open(&mut self, port: u32, frames: &[Vec<u8>]) {
        for frame in frames {
            self.switch.receive(port, std::slice::from_ref(frame));
            self.switch.resolve();
        }
    }

    /// The client, the server, and the client as the server sees it. Pings have one identifier.
    fn ends(&self, proto: u8) -> [End; 3] {
        let (client, server) = if proto == ICMP { (7, 7) } else { (1000, 80) };
        [end(1, client), end(2, server), end(self.seen, client)]
    }

    fn opening(&self) -> Vec<(u32, Vec<u8>)> {
        let [client, server, seen] = self.ends(TCP);
        let mut all = vec![
            (1, frame(TCP, client, server, false, SYN, 100, 0, &[])),
            (2, frame(TCP, server, seen, true, SYN | ACK, 500, 101, &[])),
            (1, frame(TCP, client, server, false, ACK, 101, 501, &[])),
            (2, frame(TCP, server, seen, true, ACK, 501, 101, &[])),
        ];
        for proto in [UDP, ICMP] {
            let [client, server, seen] = self.ends(proto);
            all.push((1, frame(proto, client, server, false, 0, 0, 0, &[1])));
            all.push((2, frame(proto, server, seen, true, 0, 0, 0, &[1])));
            all.push((1, frame(proto, client, server, false, 0, 0, 0, &[1])));
        }
        all
    }

    /// Both fragments of a datagram: port, frames.
    fn fragments(&self, is_back: bool, id: u16) -> (u32, [Vec<u8>; 2]) {
        if is_back { (2, back(self.seen, id)) } else { (1, datagram(1, 2, id)) }
    }

    /// Passes bursts of all established connections.
    fn check(&mut self, what: &str, round: u32) {
        for proto in [TCP, UDP, ICMP] {
            let [client, server, seen] = self.ends(proto);
            let there = frame(proto, client, server, false, ACK, 101, 501, &[1]);
            let back = frame(proto, server, seen, true, ACK, 501, 101, &[1]);
            for (port, frame, left) in [(1, there, [0, BURST, 0, 0]), (2, back, [BURST, 0, 0, 0])] {
                self.switch.receive(port, &vec![frame; BURST]);
                let got = self.switch.left();
                assert_eq!(got, (left, 0), "{what}, round {round}: protocol {proto} from port {port}");
            }
        }
        for (is_back, left) in [(false, [0, 2, 0, 0]), (true, [2, 0, 0, 0])] {
            let (port, fragments) = self.fragments(is_back, round as u16 + 2);
            self.switch.receive(port, &fragments);
            assert_eq!(self.switch.left(), (left, 0), "{what}, round {round}: fragments from port {port}");
        }
    }
}

/// A datagram of the server, from port 6 to port 5.
fn back(to: u8, id: u16) -> [Vec<u8>; 2] {
    let mut first = vec![0, 6, 0, 5, 0x06, 0x48, 0, 0];
    first.resize(1208, 7);
    [fragment(2, to, id, 0x2000, &first), fragment(2, to, id, 151, &[7; 400])]
}

fn attacks() -> [(&'static str, Attack); 5] {
    let plain = |actions: &str, frames| Attack { actions: actions.to_string(), frames, nat: "", seen: 1 };
    // Segments of the victims' connection, far from their windows.
    let storm = |n: u32| {
        let flags = [RST, RST | ACK, FIN | ACK, ACK, SYN, SYN | ACK][n as usize % 6];
        let far = if n.is_multiple_of(2) { 0x4000_0000 + n } else { 0xc000_0000 - n };
        match n / 6 % 2 {
            0 => frame(TCP, end(1, 1000), end(2, 80), false, flags, 101_u32.wrapping_add(far), 501, b"x"),
            _ => frame(TCP, end(2, 80), end(1, 1000), true, flags, 501_u32.wrapping_add(far), 101, b"x"),
        }
    };
    let bomb = |n: u32| {
        let place = if n.is_multiple_of(2) { 0x2000 } else { 0x2000 | 151 };
        fragment(200 + (n >> 16) as u8, 2, n as u16, place, &[0; 1208])
    };
    let zones: Vec<String> = (10..40)
        .map(|zone| format!("ct(commit,zone={zone},mark={zone}/0xff,label={zone:#x}/0xff)"))
        .collect();
    [
        ("a SYN flood", plain("ct(commit,zone=1)", each(syn))),
        ("segments out of the window", plain("ct(commit,zone=1)", each(storm))),
        ("incomplete datagrams", plain("ct(commit,zone=1)", each(bomb))),
        (
            "exhausted ports",
            Attack {
                actions: "ct(commit,zone=1,nat(src=10.0.0.9:7000-7009))".to_string(),
                frames: each(syn),
                nat: ",nat(src=10.0.0.9)",
                seen: 9,
            },
        ),
        ("zones, marks and labels", plain(&zones.join(","), each(syn))),
    ]
}

#[test]
fn hostile_traffic_costs_other_ports_no_packet() {
    for (what, attack) in attacks() {
        for group in [true, false] {
            let mut victims = Victims::new(&attack, group);
            let (mut cursor, mut opened) = (Cursor::default(), 0);
            for round in 0..ROUNDS {
                victims.switch.receive(ATTACKER, &(attack.frames)(round));
                victims.check(what, round);
                // Connections that begin now and then get a place.
                if round % 30 == 29 {
                    let (client, server) = (end(1, 2000 + round as u16), end(2, 53));
                    let seen = end(attack.seen, client.1);
                    victims.switch.pass(1, &frame(UDP, client, server, false, 0, 0, 0, &[]));
                    victims.switch.pass(2, &frame(UDP, server, seen, true, 0, 0, 0, &[]));
                    victims.switch.pass(1, &frame(UDP, client, server, false, 0, 0, 0, &[]));
                    assert_eq!(victims.switch.left().0, [0, 1, 0, 0], "{what}: connection {opened}");
                    opened += 1;
                }
                let shared = victims.switch.shared.clone();
                let now_ms = victims.switch.now_us / 1000;
                if what.starts_with("zones") {
                    let zone = (10 + round % 30) as u16;
                    shared.tracker().flush(now_ms, |c| c.zone == zone);
                }
                shared.expire_fragments(now_ms, 64);
                cursor = shared.tracker().expire(cursor, 64, now_ms).unwrap_or_default();
                victims.switch.now_us += 50_000;
            }
            // The attack did what it is for.
            let (tracker, fragments) =
                (victims.switch.shared.tracker(), victims.switch.shared.fragment_status());
            let counts = tracker.counts();
            let refused: u64 = counts.refused.iter().sum();
            let is_there = match what {
                "segments out of the window" => counts.created < 100,
                "incomplete datagrams" => fragments.v4.evicted > 100 && fragments.held > 900,
                _ => refused > 1000,
            };
            assert!(is_there, "{what}: {counts:?} {fragments:?}");
        }
    }
}
