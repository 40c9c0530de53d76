//! A packet of an established connection costs one lookup in the tracker for each zone, and no allocation: UDP, TCP and ICMP
//! over IPv4 and IPv6, both directions, translated or not, first and recirculated passes.
//!
//! Allocations are counted by the allocator of this binary, lookups by the tracker, in builds with debug assertions.
#![cfg(debug_assertions)]
#![forbid(unsafe_code)]

use conntrack::lookups_of_thread;
use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::parse_actions;
use dpif::text::NumbersOnly;
use dpif::{DpAction, DpifOp, Execute, FlowPut, OpResult, PmdId, PutMode, Upcall, UpcallSink};
use flow::{DpPort, KeyMask, Ufid};
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::{Packet, PacketBatch, PacketPool};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use sys::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets of a burst.
const BURST: usize = 32;
const SYN: u8 = 2;
const ACK: u8 = 16;
const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;

/// Takes packets and upcalls, into memory of its own.
struct Io {
    sent: Vec<(DpPort, Packet)>,
    upcalls: Vec<Upcall>,
}

impl UpcallSink for Io {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push(*upcall);
        Ok(())
    }
}

impl PmdIo for Io {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, _: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        for packet in batch.drain() {
            report.sent_packets += 1;
            report.sent_bytes += packet.len() as u64;
            self.sent.push((port, packet));
        }
        report
    }
}

/// A core whose flows are added as packets miss them: by input port and pass.
struct Switch {
    pmd: Pmd,
    io: Io,
    /// Actions by input port and recirculation id.
    lists: HashMap<(u32, u32), Arc<[DpAction]>>,
    now_us: u64,
    flows: u128,
}

/// Allocations and lookups.
type Costs = (u64, u64);

impl Switch {
    /// `lists`: actions by input port and recirculation id; `{n}` stands for the prefix of the addresses.
    fn new(lists: &[(u32, u32, &str)], is_v6: bool, group: bool) -> Switch {
        let mut config = PmdConfig::new(PmdId::Core(0), 7);
        config.tuning.group = group;
        let mut pmd = Pmd::new(config, Arc::new(DpShared::new(7)));
        for port in 1..=2 {
            pmd.port_add(DpPort(port)).unwrap();
        }
        let io = Io { sent: Vec::with_capacity(4 * BURST), upcalls: Vec::new() };
        let parsed = |text: &str| {
            let text = text.replace("{n}", if is_v6 { "fd00::" } else { "10.0.0." });
            parse_actions(&text, &NumbersOnly).expect(&text).into()
        };
        let lists = lists.iter().map(|(port, id, list)| ((*port, *id), parsed(list))).collect();
        Switch { pmd, io, lists, now_us: 1_000_000, flows: 0 }
    }

    /// Receives frames.
    fn receive(&mut self, port: u32, frames: &[Vec<u8>]) -> Costs {
        let mut batch: PacketBatch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        self.io.sent.clear();
        let before = (Counting::allocations(), lookups_of_thread());
        self.pmd.process_batch(DpPort(port), &mut batch, self.now_us, &mut self.io);
        self.pmd.flush_output(&mut self.io);
        (Counting::allocations() - before.0, lookups_of_thread() - before.1)
    }

    /// Receives a frame, which must leave. Adds a flow for each miss.
    fn pass(&mut self, port: u32, frame: &[u8]) {
        self.receive(port, &[frame.to_vec()]);
        while let Some(Upcall { packet, key, ticket, .. }) = self.io.upcalls.pop() {
            let actions = self.lists[&(key.base.in_port, key.base.recirc_id)].clone();
            let mut mask = KeyMask::default();
            (mask.base.in_port, mask.base.recirc_id) = (u32::MAX, u32::MAX);
            (mask.base.dl_type, mask.base.shape) = (u16::MAX, u16::MAX);
            self.flows += 1;
            let ufid = Ufid(self.flows);
            let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Create };
            self.apply(DpifOp::FlowPut(Box::new(put)));
            let execute = Execute { packet, key, actions, ticket, upcall: 0, went_on: false };
            self.apply(DpifOp::Execute(Box::new(execute)));
            self.pmd.flush_output(&mut self.io);
        }
        assert_eq!(self.io.sent.len(), 1, "{:?}", self.lists);
    }

    fn apply(&mut self, op: DpifOp) {
        let results = self.pmd.apply(vec![op], self.now_us, &mut self.io);
        assert!(!matches!(results[..], [OpResult::Failed(_)]), "{results:?}");
    }

    /// Costs of a burst, once buffers are there.
    fn costs(&mut self, port: u32, frames: &[Vec<u8>]) -> Costs {
        for _ in 0..2 {
            self.receive(port, &vec![frames[0].clone(); BURST]);
        }
        self.now_us += 1000;
        let costs = self.receive(port, frames);
        assert_eq!((self.io.sent.len(), self.io.upcalls.len()), (BURST, 0), "{:?}", self.lists);
        costs
    }
}

/// One end of a connection: address and port, or identifier.
type End = (IpAddr, u16);

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// A packet with right checksums. `flags`, `seq`, `ack`: of TCP.
fn frame(
    proto: u8,
    from: End,
    to: End,
    is_reply: bool,
    flags: u8,
    seq: u32,
    ack: u32,
    body: &[u8],
) -> Vec<u8> {
    let is_v4 = from.0.is_ipv4();
    let (src, dst) = (octets(from.0), octets(to.0));
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let (number, mut l4, at) = match proto {
        UDP => (UDP, [ports, vec![0, 8 + body.len() as u8, 0, 0]].concat(), 6),
        TCP => {
            let numbers = [seq.to_be_bytes(), ack.to_be_bytes()].concat();
            (TCP, [ports, numbers, vec![0x50, flags, 0x40, 0, 0, 0, 0, 0]].concat(), 16)
        }
        _ => {
            let kind = match (is_v4, is_reply) {
                (true, false) => 8,
                (true, true) => 0,
                (false, false) => 128,
                (false, true) => 129,
            };
            let id = from.1.to_be_bytes();
            (if is_v4 { 1 } else { 58 }, vec![kind, 0, 0, 0, id[0], id[1], 0, 1], 2)
        }
    };
    l4.extend(body);
    let sum = match number {
        1 => checksum(&l4),
        _ => !fold(sum(&l4, pseudo(&src, &dst, number, l4.len()))),
    };
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut ip = match is_v4 {
        true => vec![0x45, 0, 0, 20 + l4.len() as u8, 0, 1, 0, 0, 64, number, 0, 0],
        false => vec![0x60, 0, 0, 0, 0, l4.len() as u8, number, 64],
    };
    ip.extend([src, dst].concat());
    if is_v4 {
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let dl_type: u16 = if is_v4 { 0x0800 } else { 0x86dd };
    [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], dl_type.to_be_bytes().to_vec(), ip, l4].concat()
}

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
        lookups: [3, 2],
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
