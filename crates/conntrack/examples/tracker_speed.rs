//! In-process speed of the connection tracker.
//!
//! `cargo run --release -p conntrack --example tracker_speed -- [--only TEXT] [--memory CONNECTIONS]` prints cycles per
//! packet (at the processor's frequency according to the system) for established connections in random order, without
//! prefetch and with prefetch for groups of 32; commits per second; memory of a connection (resident set), and the time
//! of a walk that expires nothing and of one that expires all; the time to another tracker; that of the statistics by zone. Each case takes the
//! tenth percentile of its chunks, to limit the effect of other load. Each packet's result is verified.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use conntrack::carry::{Export, import};
use conntrack::{Cursor, Key, Lookup, PacketInfo, Request, Tracker, Transport, tcp};
use dpif::{CtCarry, CtImported, CtNat, NatAddresses, NatRange};
use flow::{FlowKey, ct_state};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Packets of a group that are fetched together.
const GROUP: usize = 32;
/// Packets between two clock reads.
const CHUNK: usize = 4096;
const NOW_MS: u64 = 1_000_000;

fn megahertz() -> f64 {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("cpu MHz"));
    line.and_then(|line| line.split(':').nth(1)?.trim().parse().ok()).unwrap_or(1000.0)
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// The first packet of connection `n`.
fn packet(n: u32, is_tcp: bool) -> PacketInfo {
    let (proto, flags) = if is_tcp { (6, tcp::flag::SYN) } else { (17, 0) };
    let ports = u64::from(1024 + (n & 0x7fff) as u16) << 48 | 53 << 32;
    let key = Key::V4([u64::from(0x0a00_0000 + (n >> 15)) << 32 | 0x0b00_0001, ports | proto]);
    let segment = tcp::Segment { flags, seq: 1000, ack: 0, window: 1000, bytes: 0, scale: None };
    let transport = if is_tcp { Transport::Tcp(segment) } else { Transport::Other };
    PacketInfo { key, is_error: false, transport }
}

fn reply(first: &PacketInfo) -> PacketInfo {
    let mut packet = PacketInfo { key: first.key.reversed(), ..*first };
    if let Transport::Tcp(segment) = &mut packet.transport {
        (segment.flags, segment.ack) = (tcp::flag::SYN | tcp::flag::ACK, 1001);
    }
    packet
}

fn established(first: &PacketInfo) -> PacketInfo {
    let mut packet = *first;
    if let Transport::Tcp(segment) = &mut packet.transport {
        (segment.flags, segment.seq, segment.ack) = (tcp::flag::ACK, 1001, 1001);
    }
    packet
}

fn track(tracker: &Tracker, packet: &PacketInfo, request: &Request, key: &mut FlowKey) {
    // A packet that was not tracked before.
    (key.base.ct_state, key.base.ct_zone) = (0, 0);
    black_box(tracker.track(Some(packet), request, key, 1, NOW_MS));
}

fn commit(nat: CtNat) -> Request {
    Request { commit: true, nat, ..Request::default() }
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

/// The tenth percentile.
fn percentile(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
}

fn lookups(connections: u32, is_tcp: bool, mhz: f64) {
    let tracker = Tracker::new(1);
    let mut key = FlowKey::default();
    for n in 0..connections {
        let first = packet(n, is_tcp);
        track(&tracker, &first, &commit(CtNat::No), &mut key);
        track(&tracker, &reply(&first), &Request::default(), &mut key);
    }
    let mut state = 7;
    let count = (connections as usize * 2).clamp(1 << 16, 1 << 20);
    let packets: Vec<PacketInfo> = (0..count)
        .map(|_| established(&packet((random(&mut state) % u64::from(connections)) as u32, is_tcp)))
        .collect();
    let look = Request::default();
    let expected = ct_state::EST | ct_state::TRK;
    // A burst's keys, as a forwarding thread has them.
    let mut keys = vec![FlowKey::default(); GROUP];
    let mut lookups = [Lookup::default(); GROUP];
    // Seldom used memory gets its pages before.
    packets.iter().for_each(|packet| track(&tracker, packet, &look, &mut key));
    for (what, fetches) in [("", false), (", prefetch", true)] {
        let mut times = Vec::new();
        for _ in 0..(1 << 22) / count {
            for chunk in packets.chunks_exact(CHUNK) {
                let begin = Instant::now();
                let mut states = u32::MAX;
                for group in chunk.chunks_exact(GROUP) {
                    for (packet, lookup) in group.iter().zip(&mut lookups) {
                        *lookup = tracker.look_ahead(&packet.key);
                    }
                    if fetches {
                        for (packet, lookup) in group.iter().zip(&mut lookups) {
                            tracker.look_further(lookup, &packet.key);
                        }
                    }
                    for ((packet, key), lookup) in group.iter().zip(&mut keys).zip(&lookups) {
                        // Received anew.
                        (key.base.ct_state, key.base.ct_zone) = (0, 0);
                        tracker.track_looked_up(packet, *lookup, &look, key, 1, NOW_MS, &mut None);
                        states &= key.base.ct_state;
                    }
                }
                times.push(begin.elapsed().as_nanos() as f64 / CHUNK as f64);
                assert_eq!(states, expected);
            }
        }
        let ns = percentile(&mut times);
        let kind = if is_tcp { "TCP" } else { "UDP" };
        println!("{kind}, {connections} connections{what}: {:.0} cycles, {ns:.1} ns", ns * mhz / 1000.0);
    }
}

fn commits(nat: CtNat, what: &str) {
    const CONNECTIONS: u32 = 1_000_000;
    let tracker = Tracker::new(1);
    let mut key = FlowKey::default();
    for round in ["fresh memory", "used memory"] {
        let mut times = Vec::new();
        for from in (0..CONNECTIONS).step_by(CHUNK) {
            let to = (from + CHUNK as u32).min(CONNECTIONS);
            let begin = Instant::now();
            (from..to).for_each(|n| track(&tracker, &packet(n, false), &commit(nat), &mut key));
            times.push(begin.elapsed().as_nanos() as f64 / f64::from(to - from));
        }
        assert_eq!(tracker.connections(), CONNECTIONS);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let longest = times.iter().fold(0.0f64, |most, t| most.max(*t)) * CHUNK as f64 / 1e6;
        println!(
            "commits{what}, {round}: {:.2} million a second ({mean:.0} ns each, median chunk {:.0}; longest chunk of {CHUNK}: {longest:.1} ms)",
            1000.0 / mean,
            {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            }
        );
        tracker.flush(NOW_MS, |_| true);
        assert_eq!(tracker.connections(), 0);
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn memory(connections: u32) {
    let before = resident_bytes();
    let tracker = Tracker::new(1);
    let empty = resident_bytes() - before;
    tracker.set_max_connections(connections * 2);
    let mut key = FlowKey::default();
    (0..connections).for_each(|n| track(&tracker, &packet(n, false), &commit(snat()), &mut key));
    assert_eq!(tracker.connections(), connections);
    let bytes = resident_bytes() - before;
    println!(
        "memory: {:.1} MB empty, {:.1} bytes for each of {connections} translated connections",
        empty as f64 / 1e6,
        (bytes - empty) as f64 / f64::from(connections)
    );
    for (what, now_ms, left) in [("nothing", NOW_MS, connections), ("all", NOW_MS + 1_000_000, 0)] {
        let (begin, mut longest) = (Instant::now(), 0.0f64);
        let mut at = Some(Cursor::default());
        while let Some(cursor) = at {
            let slice = Instant::now();
            at = tracker.expire(cursor, 4096, now_ms);
            longest = longest.max(slice.elapsed().as_secs_f64());
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(tracker.connections(), left);
        println!(
            "a walk that expires {what} of {connections}: {:.0} ms ({:.1} ns each); its longest slice of 4096: {:.2} ms",
            seconds * 1e3,
            seconds * 1e9 / f64::from(connections),
            longest * 1e3
        );
    }
}

/// Time of the statistics by zone, with connections in all zones.
fn statistics(connections: u32) {
    let tracker = Tracker::new(1);
    tracker.set_max_connections(connections * 2);
    let mut key = FlowKey::default();
    for n in 0..connections {
        let mut packet = packet(n, false);
        let zone = n as u16;
        if let Key::V4(words) = &mut packet.key {
            words[1] |= u64::from(zone) << 16;
        }
        track(&tracker, &packet, &Request { zone, ..commit(CtNat::No) }, &mut key);
    }
    assert_eq!(tracker.connections(), connections);
    let mut times: Vec<f64> = (0..50)
        .map(|_| {
            let begin = Instant::now();
            let statistics = black_box(tracker.statistics(20));
            assert!(!statistics.zones.is_empty() && statistics.all.connections == connections);
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "statistics of {} zones with {connections} connections: {:.2} ms (median), {:.2} ms (longest)",
        tracker.zones().count(),
        times[times.len() / 2] * 1e3,
        times[times.len() - 1] * 1e3
    );
}

/// Time of all connections to another tracker, of a pass without changes, and of one after a packet of each tenth.
fn carry(connections: u32) {
    const ROOM: usize = 1 << 20;
    let (tracker, next) = (Tracker::new(1), Tracker::new(2));
    let mut key = FlowKey::default();
    (0..connections).for_each(|n| track(&tracker, &packet(n, true), &commit(snat()), &mut key));
    assert_eq!(tracker.connections(), connections);
    let mut export = Export::new(CtCarry::Over);
    for (what, step, (made, replaced)) in
        [("all", 1, (connections, 0)), ("no", 0, (0u32, 0u32)), ("each tenth", 10, (0, 10))]
    {
        if step == 10 {
            (0..connections)
                .step_by(step)
                .for_each(|n| track(&tracker, &packet(n, true), &commit(snat()), &mut key));
        }
        let (before, begin) = (resident_bytes(), Instant::now());
        let slices: Vec<Vec<u8>> =
            std::iter::from_fn(|| export.next(&tracker, ROOM, NOW_MS + 1000)).collect();
        let (exported, held) = (begin.elapsed().as_secs_f64() * 1e3, resident_bytes() - before);
        let bytes: usize = slices.iter().map(Vec::len).sum();
        let (begin, mut longest, mut done) = (Instant::now(), 0.0f64, CtImported::default());
        for slice in &slices {
            let one = Instant::now();
            done.add(import(&next, slice, NOW_MS + 1000));
            longest = longest.max(one.elapsed().as_secs_f64() * 1e3);
        }
        let imported = begin.elapsed().as_secs_f64() * 1e3;
        assert_eq!((done.made, done.replaced, done.refused), (made.into(), replaced.into(), 0));
        println!(
            "carry, {what} of {connections} connections changed: {:.1} MB written in {exported:.0} ms ({:.1} MB held), \
             read in {imported:.0} ms, the longest slice in {longest:.1} ms",
            bytes as f64 / 1e6,
            held as f64 / 1e6
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let only = value("--only").cloned().unwrap_or_default();
    let wanted = |name: &str| name.contains(&only);
    let mhz = megahertz();
    println!("{mhz:.0} MHz");
    for is_tcp in [false, true] {
        for connections in [1000, 100_000, 1_000_000] {
            let kind = if is_tcp { "TCP" } else { "UDP" };
            if wanted(&format!("{kind}, {connections} connections")) {
                lookups(connections, is_tcp, mhz);
            }
        }
    }
    if wanted("commits") {
        commits(CtNat::No, "");
        commits(snat(), " with source translation");
    }
    if wanted("memory") {
        memory(value("--memory").and_then(|n| n.parse().ok()).unwrap_or(4_000_000));
    }
    if wanted("carry") {
        carry(1_000_000);
    }
    if wanted("statistics") {
        statistics(3_000_000);
    }
}
