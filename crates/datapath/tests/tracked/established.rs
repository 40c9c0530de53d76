//! A packet of an established connection costs one lookup in the tracker for each zone, and no allocation: UDP, TCP and ICMP
//! over IPv4 and IPv6, both directions, translated or not, first and recirculated passes.

use crate::switch::{ACK, BURST, End, ICMP, SYN, Switch, TCP, UDP, frame};
use std::net::IpAddr;
use sys::counting::Counting;

/// A connection.
struct Connection {
    proto: u8,
    client: End,
    server: End,
    /// The destination that the client asks, and the source that the server sees.
    asked: End,
    seen: End,
}

impl Connection {
    fn new(proto: u8, is_v6: bool, scenario: &Scenario) -> Connection {
        let end = |host: u8, port: u16| -> End {
            let text = if is_v6 { format!("fd00::{host}") } else { format!("10.0.0.{host}") };
            (text.parse().unwrap(), if proto == ICMP { 7 } else { port })
        };
        Connection {
            proto,
            client: end(1, 1000),
            server: end(2, 80),
            asked: end(scenario.asked, 80),
            seen: end(scenario.seen, 1000),
        }
    }

    fn there(&self, flags: u8, seq: u32, ack: u32, body: &[u8]) -> Vec<u8> {
        frame(self.proto, self.client, self.asked, false, flags, seq, ack, body)
    }

    fn back(&self, flags: u8, seq: u32, ack: u32, body: &[u8]) -> Vec<u8> {
        frame(self.proto, self.server, self.seen, true, flags, seq, ack, body)
    }

    /// Frames that open it: port, frame.
    fn opening(&self) -> Vec<(u32, Vec<u8>)> {
        match self.proto {
            TCP => vec![
                (1, self.there(SYN, 100, 0, &[])),
                (2, self.back(SYN | ACK, 500, 101, &[])),
                (1, self.there(ACK, 101, 501, &[])),
            ],
            _ => vec![(1, self.there(0, 0, 0, &[1])), (2, self.back(0, 0, 0, &[1]))],
        }
    }

    /// Bursts after that: port, frames. Segments of TCP with data move the windows.
    fn bursts(&self) -> Vec<(u32, Vec<Vec<u8>>)> {
        let same = |frame: Vec<u8>| vec![frame; BURST];
        let data = |n: usize| 101 + 10 * n as u32;
        let body = [7; 10];
        match self.proto {
            TCP => vec![
                (1, same(self.there(ACK, 101, 501, &[]))),
                (2, same(self.back(ACK, 501, 101, &[]))),
                (1, (0..BURST).map(|n| self.there(ACK, data(n), 501, &body)).collect()),
                (2, (0..BURST).map(|n| self.back(ACK, 501 + 10 * n as u32, data(n + 1), &body)).collect()),
            ],
            _ => vec![(1, same(self.there(0, 0, 0, &body))), (2, same(self.back(0, 0, 0, &body)))],
        }
    }
}

/// Lists of actions, and the lookups of a packet.
struct Scenario {
    name: &'static str,
    lists: &'static [(u32, u32, &'static str)],
    /// Hosts that the client asks and the server sees: 2 and 1, or others by a translation.
    asked: u8,
    seen: u8,
    /// In groups, and alone.
    lookups: [u64; 2],
}

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "one zone",
        lists: &[
            (1, 0, "ct(commit,zone=1),recirc(0x1)"),
            (1, 1, "2"),
            (2, 0, "ct(zone=1),recirc(0x2)"),
            (2, 2, "1"),
        ],
        seen: 1,
        asked: 2,
        lookups: [1, 1],
    },
    Scenario {
        name: "two zones, one after the other",
        lists: &[
            (1, 0, "ct(commit,zone=1),recirc(0x1)"),
            (1, 1, "ct(commit,zone=2),recirc(0x3)"),
            (1, 3, "2"),
            (2, 0, "ct(zone=2),recirc(0x2)"),
            (2, 2, "ct(zone=1),recirc(0x4)"),
            (2, 4, "1"),
        ],
        seen: 1,
        asked: 2,
        lookups: [2, 2],
    },
    Scenario {
        name: "a translated source",
        lists: &[
            (1, 0, "ct(commit,zone=1,nat(src={n}9)),recirc(0x1)"),
            (1, 1, "2"),
            (2, 0, "ct(zone=1,nat),recirc(0x2)"),
            (2, 2, "1"),
        ],
        seen: 9,
        asked: 2,
        lookups: [1, 1],
    },
    Scenario {
        name: "a translated destination",
        lists: &[
            (1, 0, "ct(commit,zone=1,nat(dst={n}2)),recirc(0x1)"),
            (1, 1, "2"),
            (2, 0, "ct(zone=1,nat),recirc(0x2)"),
            (2, 2, "1"),
        ],
        seen: 1,
        asked: 99,
        lookups: [1, 1],
    },
    Scenario {
        name: "translated, in another zone after that",
        lists: &[
            (1, 0, "ct(commit,zone=1,nat(src={n}9)),recirc(0x1)"),
            (1, 1, "ct(commit,zone=2),recirc(0x3)"),
            (1, 3, "2"),
            (2, 0, "ct(zone=2),recirc(0x2)"),
            (2, 2, "ct(zone=1,nat),recirc(0x4)"),
            (2, 4, "1"),
        ],
        seen: 9,
        asked: 2,
        lookups: [2, 2],
    },
    // Groups read a bucket to fetch the record, and then again: it is in the cache.
    Scenario {
        name: "a mark and labels at each commit",
        lists: &[
            (1, 0, "ct(commit,zone=1,mark=0x5/0xff,label=0x7/0xff),recirc(0x1)"),
            (1, 1, "2"),
            (2, 0, "ct(commit,zone=1,mark=0x5/0xff),recirc(0x2)"),
            (2, 2, "1"),
        ],
        seen: 1,
        asked: 2,
        lookups: [2, 1],
    },
    Scenario {
        name: "the same zone again",
        lists: &[
            (1, 0, "ct(zone=1),recirc(0x1)"),
            (1, 1, "ct(commit,zone=1),recirc(0x3)"),
            (1, 3, "2"),
            (2, 0, "ct(zone=1),recirc(0x2)"),
            (2, 2, "ct(zone=1),recirc(0x4)"),
            (2, 4, "1"),
        ],
        seen: 1,
        asked: 2,
        lookups: [2, 2],
    },
    Scenario {
        name: "translated, the same zone again",
        lists: &[
            (1, 0, "ct(commit,zone=1,nat(src={n}9)),recirc(0x1)"),
            (1, 1, "ct(zone=1,nat),recirc(0x3)"),
            (1, 3, "2"),
            (2, 0, "ct(zone=1,nat),recirc(0x2)"),
            (2, 2, "ct(zone=1,nat),recirc(0x4)"),
            (2, 4, "1"),
        ],
        seen: 9,
        asked: 2,
        lookups: [3, 2],
    },
];

#[test]
fn an_established_packet_costs_one_lookup_a_pass_and_no_allocation() {
    let mut wrong = Vec::new();
    for scenario in &SCENARIOS {
        for (is_v6, proto, group) in [false, true]
            .into_iter()
            .flat_map(|v6| [UDP, TCP, ICMP].map(|p| (v6, p)))
            .flat_map(|(v6, p)| [(v6, p, true), (v6, p, false)])
        {
            let mut switch = Switch::new(scenario.lists, is_v6, group);
            let connection = Connection::new(proto, is_v6, scenario);
            // All stages are over, and all flows are there.
            for _ in 0..2 {
                connection.opening().iter().for_each(|(port, frame)| switch.pass(*port, frame));
            }
            for (n, (port, frames)) in connection.bursts().iter().enumerate() {
                let costs = switch.costs(*port, frames);
                let expected = (0, scenario.lookups[usize::from(!group)] * BURST as u64);
                if costs != expected {
                    wrong.push(format!(
                        "{}: v6 {is_v6}, protocol {proto}, groups {group}, burst {n} of port {port}: {costs:?} allocations and \
                         lookups instead of {expected:?}",
                        scenario.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The counters count: a packet that begins a connection costs more.
#[test]
fn a_new_connection_costs_more() {
    let mut switch = Switch::new(SCENARIOS[0].lists, false, true);
    let end = |host: u8, port: u16| (IpAddr::from([10, 0, 0, host]), port);
    switch.pass(1, &frame(UDP, end(1, 1), end(2, 80), false, 0, 0, 0, &[]));
    let frames: Vec<_> =
        (2..34).map(|port| frame(UDP, end(1, port), end(2, 80), false, 0, 0, 0, &[])).collect();
    let (_, lookups) = switch.receive(1, &frames);
    assert!(lookups > BURST as u64, "{lookups}");
    let before = Counting::allocations();
    assert_eq!(vec![1].len(), 1);
    assert!(Counting::allocations() > before);
}
