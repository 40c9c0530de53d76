//! The loads of the simulated cores.

use conntrack::{Key, PacketInfo, Request, Tracker, Transport, tcp};
use dpif::{CtNat, NatAddresses, NatRange};
use flow::{FlowKey, ct_state};
use std::net::Ipv4Addr;

/// Connections of each core.
const CONNECTIONS: u32 = 1000;
/// Packets of a burst.
const BURST: u32 = 32;
/// Bursts of each core. The first half brings the lines to their cores, and is not counted.
const ROUNDS: u32 = 400;
/// Bursts of a millisecond.
const ROUNDS_A_MS: u32 = 20;
const CORES: [u32; 5] = [1, 2, 4, 8, 16];
/// New connections of a mixed load, of a hundred packets.
const NEW_PERCENT: u32 = 1;

/// The first packet of a connection of a core.
fn first(core: u32, n: u32, is_tcp: bool) -> PacketInfo {
    let (proto, flags) = if is_tcp { (6, tcp::flag::SYN) } else { (17, 0) };
    let ports = u64::from(1024 + (n & 0x7fff) as u16) << 48 | 53 << 32;
    let addresses = u64::from(0x0a00_0000 | core << 16 | n >> 15) << 32 | 0x0b00_0001;
    let segment = tcp::Segment { flags, seq: 1000, ack: 0, window: 1000, bytes: 0, scale: None };
    let transport = if is_tcp { Transport::Tcp(segment) } else { Transport::Other };
    PacketInfo { key: Key::V4([addresses, ports | proto]), is_error: false, transport }
}

/// A later packet of a direction.
fn later(packet: &PacketInfo, is_reply: bool, begins: bool) -> PacketInfo {
    let mut packet = *packet;
    if is_reply {
        packet.key = packet.key.reversed();
    }
    if let Transport::Tcp(segment) = &mut packet.transport {
        let syn = if begins { tcp::flag::SYN } else { 0 };
        (segment.flags, segment.ack) = (tcp::flag::ACK | syn, 1001);
        segment.seq = if begins { 1000 } else { 1001 };
    }
    packet
}

struct Bench {
    tracker: Tracker,
    now_ms: u64,
    commit: Request,
}

impl Bench {
    fn new(nat: CtNat) -> Bench {
        sync::contention::reset();
        let commit = Request { commit: true, nat, ..Request::default() };
        Bench { tracker: Tracker::new(1), now_ms: 1_000_000, commit }
    }

    /// Tracks a packet that was not tracked before; returns its state.
    fn track(&self, core: u32, packet: &PacketInfo, request: &Request) -> u32 {
        let mut key = FlowKey::default();
        let lookup = self.tracker.look_ahead(&packet.key);
        self.tracker.track_looked_up(packet, lookup, request, &mut key, core, self.now_ms, &mut None);
        key.base.ct_state
    }

    /// Establishes all connections of all cores.
    fn establish(&self, cores: u32, is_tcp: bool) {
        for core in 0..cores {
            sync::contention::run_on(core);
            for n in 0..CONNECTIONS {
                let packet = first(core, n, is_tcp);
                self.track(core, &packet, &self.commit);
                self.track(core, &later(&packet, true, true), &Request::default());
                self.track(core, &later(&packet, false, false), &Request::default());
            }
        }
        sync::contention::take();
    }

    /// Runs bursts of all cores; `work` tracks packet `n` of a core. Prints the mean of a packet.
    fn run(&mut self, what: &str, cores: u32, work: impl Fn(&Bench, u32, u32)) -> f64 {
        for round in 0..ROUNDS {
            for core in 0..cores {
                sync::contention::run_on(core);
                (0..BURST).for_each(|n| work(self, core, round * BURST + n));
            }
            self.now_ms += u64::from(round % ROUNDS_A_MS == 0);
            if round + 1 == ROUNDS / 2 {
                sync::contention::take();
            }
        }
        let accesses = sync::contention::take();
        let packets = f64::from(ROUNDS / 2 * cores * BURST);
        let [locked, transfers] = [accesses.locked, accesses.transfers].map(|n| n as f64 / packets);
        println!("| {what} | {cores} | {locked:.2} | {transfers:.3} |");
        transfers
    }
}

fn snat() -> CtNat {
    let addresses = Some(NatAddresses::V4(Ipv4Addr::new(1, 1, 0, 0), Ipv4Addr::new(1, 1, 255, 255)));
    CtNat::New(NatRange {
        is_dst: false,
        addresses,
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    })
}

/// Bytes of a segment of data.
const DATA_BYTES: u32 = 10;

/// A later segment with the data that follow in its direction.
fn data(packet: &PacketInfo, is_reply: bool, number: u32) -> PacketInfo {
    let mut packet = later(packet, is_reply, false);
    if let Transport::Tcp(segment) = &mut packet.transport {
        segment.bytes = DATA_BYTES;
        segment.seq += number * DATA_BYTES;
        segment.ack = segment.seq;
    }
    packet
}

/// Segments of both directions of which each moves the windows.
fn established_data(what: &str, is_split: bool) {
    for cores in CORES {
        let mut bench = Bench::new(CtNat::No);
        bench.establish(cores, true);
        bench.run(what, cores, |bench, core, n| {
            let is_reply = n % 2 == 1;
            let owner = if is_split && is_reply { (core + 1) % cores } else { core };
            let packet = first(owner, n / 2 % CONNECTIONS, true);
            let state = bench.track(core, &data(&packet, is_reply, n / 2 / CONNECTIONS), &Request::default());
            assert_eq!(state & (ct_state::EST | ct_state::INV), ct_state::EST);
        });
    }
}

fn established(what: &str, is_tcp: bool, is_split: bool) {
    let look = Request::default();
    for cores in CORES {
        let mut bench = Bench::new(CtNat::No);
        bench.establish(cores, is_tcp);
        let transfers = bench.run(what, cores, |bench, core, n| {
            // Replies arrive on the next core, or on the same one.
            let is_reply = n % 2 == 1;
            let owner = if is_split && is_reply { (core + 1) % cores } else { core };
            let packet = first(owner, n / 2 % CONNECTIONS, is_tcp);
            let state = bench.track(core, &later(&packet, is_reply, false), &look);
            assert_eq!(state & (ct_state::EST | ct_state::INV), ct_state::EST);
        });
        assert!(is_split || transfers < 0.01, "{what}: {cores} cores share written lines");
    }
}

fn created(what: &str, nat: &CtNat) {
    for cores in CORES {
        let mut bench = Bench::new(nat.clone());
        bench.run(what, cores, |bench, core, n| {
            let state = bench.track(core, &first(core, n, false), &bench.commit);
            assert_eq!(state & ct_state::NEW, ct_state::NEW);
        });
    }
}

fn mixed(what: &str) {
    let look = Request::default();
    for cores in CORES {
        let mut bench = Bench::new(CtNat::No);
        bench.establish(cores, false);
        bench.run(what, cores, |bench, core, n| match n % 100 < NEW_PERCENT {
            true => drop(bench.track(core, &first(core, CONNECTIONS + n, false), &bench.commit)),
            false => {
                drop(bench.track(core, &later(&first(core, n % CONNECTIONS, false), false, false), &look))
            }
        });
    }
}

/// Prints the table.
pub(crate) fn run() {
    println!(
        "| packets | cores | locked operations a packet | line transfers a packet |\n| --- | --- | --- | --- |"
    );
    established("UDP, both directions on one core", false, false);
    established("UDP, directions on two cores", false, true);
    established("TCP, both directions on one core", true, false);
    established("TCP, directions on two cores", true, true);
    established_data("TCP data, both directions on one core", false);
    established_data("TCP data, directions on two cores", true);
    created("new", &CtNat::No);
    created("new, SNAT to common addresses", &snat());
    mixed("UDP, 1 % new");
}
