//! Tests of the tracker by frames: states, translation, limits. Expectations are answers of Open vSwitch 3.1.

pub(crate) mod agree;
mod control;
mod model;
mod threads;

use crate::{Key, PacketInfo, Request, Tracker, Translation};
use dpif::{CtNat, NatAddresses, NatRange};
use flow::extract::{Metadata, extract};
use flow::{FlowKey, ct_state};
use packet::{Packet, checksum};
use std::net::Ipv4Addr;

/// Commits to zone 0, without anything else.
pub(crate) const COMMIT: Request = Request {
    zone: 0,
    commit: true,
    force: false,
    mark: None,
    labels: None,
    helper: None,
    nat: CtNat::No,
    policy: 0,
};
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

/// An IPv4 frame with right checksums of IP, TCP, UDP and ICMP.
pub(crate) fn frame(src: [u8; 4], dst: [u8; 4], proto: u8, mut body: Vec<u8>) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0];
    ip[2..4].copy_from_slice(&((20 + body.len()) as u16).to_be_bytes());
    ip.extend([src, dst].concat());
    let sum = checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let (at, pseudo) = match proto {
        6 => (16, true),
        17 => (6, true),
        1 => (2, false),
        _ => (body.len(), false),
    };
    if at + 2 <= body.len() {
        let start = if pseudo { checksum::pseudo(&src, &dst, proto, body.len()) } else { 0 };
        let sum = !checksum::fold(checksum::sum(&body, start));
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], ip, body].concat()
}

pub(crate) fn udp(src: [u8; 4], dst: [u8; 4], sport: u16, dport: u16) -> Vec<u8> {
    frame(src, dst, 17, [sport, dport, 8, 0].map(u16::to_be_bytes).concat())
}

pub(crate) fn tcp(
    src: [u8; 4],
    dst: [u8; 4],
    ports: [u16; 2],
    flags: u8,
    seq: u32,
    ack: u32,
    data: usize,
) -> Vec<u8> {
    let mut body = ports.map(u16::to_be_bytes).concat();
    body.extend([seq, ack].map(u32::to_be_bytes).concat());
    body.extend([0x50, flags, 3, 0xe8, 0, 0, 0, 0]);
    body.extend(vec![0; data]);
    frame(src, dst, 6, body)
}

pub(crate) fn icmp(src: [u8; 4], dst: [u8; 4], kind: u8, code: u8, id: u16, rest: &[u8]) -> Vec<u8> {
    let mut body = vec![kind, code, 0, 0];
    body.extend(id.to_be_bytes());
    body.extend([0, 1]);
    body.extend(rest);
    frame(src, dst, 1, body)
}

/// A tracker with its clock.
struct Bed {
    tracker: Tracker,
    now_ms: u64,
}

impl Bed {
    fn new() -> Bed {
        Bed { tracker: Tracker::new(7), now_ms: 1_000_000 }
    }

    /// Tracks a frame with that key; returns its translation.
    fn pass(&self, frame: &[u8], key: &mut FlowKey, request: &Request) -> Option<Translation> {
        let packet = Packet::from_slice(frame);
        let mut fresh = FlowKey::default();
        let layout = extract(packet.data(), &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut fresh);
        let info = PacketInfo::read(&packet, &fresh, layout, request.zone);
        (fresh.base.ct_state, fresh.base.ct_zone) = (key.base.ct_state, key.base.ct_zone);
        *key = fresh;
        self.tracker.track(info.as_ref(), request, key, 1, self.now_ms)
    }

    /// Looks up a frame, and commits it if it is new, as a stateful firewall does; returns the state of the lookup.
    fn state(&self, frame: &[u8]) -> String {
        let mut key = FlowKey::default();
        self.pass(frame, &mut key, &Request::default());
        let state = key.base.ct_state;
        if state & ct_state::NEW != 0 {
            self.pass(frame, &mut key, &COMMIT);
        }
        names(state)
    }

    fn list(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.tracker.list(self.now_ms, |c| {
            let mut text = String::new();
            let format = dpif::text::ConnectionFormat { verbose: false, statistics: true };
            dpif::text::write_connection(&mut text, c, format, &|_| String::new());
            all.push(text);
            std::ops::ControlFlow::Continue(())
        });
        all
    }
}

fn names(state: u32) -> String {
    let all = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
    let set = all.iter().enumerate().filter(|(n, _)| state >> n & 1 != 0).map(|(_, name)| *name);
    set.collect::<Vec<_>>().join("|")
}

#[test]
fn states_of_tcp_segments() {
    use crate::tcp::flag::{ACK, FIN, PSH, RST, SYN};
    let bed = Bed::new();
    let (p, r) = ([1000, 80], [80, 1000]);
    for (what, frame, state, timeout, sides) in [
        ("SYN", tcp(A, B, p, SYN, 100, 0, 0), "new|trk", 30, "SYN_SENT"),
        ("SYN again", tcp(A, B, p, SYN, 100, 0, 0), "new|trk", 30, "SYN_SENT"),
        ("SYN+ACK", tcp(B, A, r, SYN | ACK, 500, 101, 0), "est|rpl|trk", 30, "ESTABLISHED"),
        ("ACK", tcp(A, B, p, ACK, 101, 501, 0), "est|trk", 86400, "ESTABLISHED"),
        ("data", tcp(A, B, p, ACK | PSH, 101, 501, 10), "est|trk", 86400, "ESTABLISHED"),
        ("ACK of data", tcp(B, A, r, ACK, 501, 111, 0), "est|rpl|trk", 86400, "ESTABLISHED"),
        ("out of window", tcp(A, B, p, ACK, 70101, 501, 3), "inv|trk", 86400, "ESTABLISHED"),
        ("FIN", tcp(A, B, p, FIN | ACK, 111, 501, 0), "est|trk", 900, "CLOSING"),
        ("ACK of FIN", tcp(B, A, r, ACK, 501, 112, 0), "est|rpl|trk", 900, "TIME_WAIT"),
        ("FIN back", tcp(B, A, r, FIN | ACK, 501, 112, 0), "est|rpl|trk", 45, "TIME_WAIT"),
        ("last ACK", tcp(A, B, p, ACK, 112, 502, 0), "est|trk", 30, "TIME_WAIT"),
        ("SYN anew", tcp(A, B, p, SYN, 5000, 0, 0), "new|trk", 30, "SYN_SENT"),
        ("reset", tcp(B, A, r, RST | ACK, 0, 5001, 0), "est|rpl|trk", 30, "TIME_WAIT"),
    ] {
        assert_eq!(bed.state(&frame), state, "{what}");
        let list = bed.list();
        assert_eq!(list.len(), 1, "{what}: {list:?}");
        assert!(list[0].contains(&format!("timeout={timeout}")), "{what}: {list:?}");
        assert!(list[0].contains(sides), "{what}: {list:?}");
    }
    for (what, frame, state) in [
        ("SYN+ACK first", tcp(A, B, [1001, 80], SYN | ACK, 5000, 0, 0), "inv|trk"),
        ("picked up", tcp(A, B, [1002, 80], ACK, 5000, 1, 0), "new|trk"),
        ("picked up, reply", tcp(B, A, [80, 1002], ACK, 700, 5000, 0), "est|rpl|trk"),
        ("wrong reset", tcp(A, B, [1002, 80], RST, 9_999_999, 0, 0), "inv|trk"),
        ("reset", tcp(A, B, [1002, 80], RST, 5000, 0, 0), "est|trk"),
        ("contradicting flags", tcp(A, B, [1003, 80], SYN | FIN, 5000, 0, 0), "inv|trk"),
    ] {
        assert_eq!(bed.state(&frame), state, "{what}");
    }
}

#[test]
fn states_of_other_packets() {
    let bed = Bed::new();
    let cited = |src, dst, sport, dport| udp(src, dst, sport, dport)[14..].to_vec();
    let mut bad = udp(A, B, 9, 9);
    bad[40] ^= 1;
    for (what, frame, state) in [
        ("UDP", udp(A, B, 5, 6), "new|trk"),
        ("UDP again", udp(A, B, 5, 6), "new|trk"),
        ("UDP, third", udp(A, B, 5, 6), "new|trk"),
        ("UDP reply", udp(B, A, 6, 5), "est|rpl|trk"),
        ("UDP after that", udp(A, B, 5, 6), "est|trk"),
        ("port 0", udp(A, B, 0, 6), "inv|trk"),
        ("wrong checksum", bad, "inv|trk"),
        ("GRE", frame(A, B, 47, vec![0; 8]), "new|trk"),
        ("GRE reply", frame(B, A, 47, vec![0; 8]), "est|rpl|trk"),
        ("ping", icmp(A, B, 8, 0, 77, &[]), "new|trk"),
        ("ping again", icmp(A, B, 8, 0, 77, &[]), "new|trk"),
        ("pong", icmp(B, A, 0, 0, 77, &[]), "est|rpl|trk"),
        ("ping after that", icmp(A, B, 8, 0, 77, &[]), "est|trk"),
        ("pong without ping", icmp(A, B, 0, 0, 78, &[]), "inv|trk"),
        ("error", icmp([10, 0, 0, 9], A, 3, 1, 0, &cited(A, B, 5, 6)), "rel|rpl|trk"),
        ("error, forward", icmp(A, B, 3, 1, 0, &cited(B, A, 6, 5)), "rel|trk"),
        ("error of nothing", icmp([10, 0, 0, 9], A, 3, 1, 0, &cited(A, B, 50, 6)), "inv|trk"),
        ("error to another", icmp([10, 0, 0, 9], [10, 0, 0, 8], 3, 1, 0, &cited(A, B, 5, 6)), "inv|trk"),
    ] {
        assert_eq!(bed.state(&frame), state, "{what}");
    }
}

fn snat(addr: [u8; 4], ports: Option<(u16, u16)>) -> CtNat {
    let addr = Ipv4Addr::from(addr);
    let addresses = Some(NatAddresses::V4(addr, addr));
    CtNat::New(NatRange { is_dst: false, addresses, ports, persistent: false, hash: false, random: false })
}

#[test]
fn translated_connections_have_distinct_reply_tuples() {
    let bed = Bed::new();
    let commit = Request { nat: snat([1, 1, 1, 1], Some((100, 102))), ..COMMIT };
    let mut ports = Vec::new();
    for source in 1..=5u16 {
        let mut key = FlowKey::default();
        let to = bed.pass(&udp(A, B, source, 53), &mut key, &commit);
        match to {
            Some(Translation::Tuple(Key::V4(words))) => {
                assert_eq!(words[0] >> 32, 0x0101_0101);
                ports.push((words[1] >> 48) as u16);
                assert_eq!(names(key.base.ct_state), "new|trk|snat");
            }
            other => {
                assert_eq!(other, None);
                assert_eq!(names(key.base.ct_state), "new|trk");
            }
        }
    }
    ports.sort_unstable();
    assert_eq!(ports, [100, 101, 102]);
    assert_eq!((bed.tracker.connections(), bed.tracker.counts().refused), (3, [0, 0, 0, 2]));
    // A reply is translated back.
    let mut key = FlowKey::default();
    let reply = bed.pass(
        &udp(B, [1, 1, 1, 1], 53, 101),
        &mut key,
        &Request { nat: CtNat::Known, ..Request::default() },
    );
    assert_eq!(names(key.base.ct_state), "est|rpl|trk|dnat");
    let Some(Translation::Tuple(to)) = reply else { panic!("{reply:?}") };
    assert_eq!(to.addresses()[1].to_string(), "10.0.0.1");
}

#[test]
fn expired_connections_end_once() {
    let mut bed = Bed::new();
    for source in 1..=1000 {
        bed.state(&udp(A, B, source, 53));
    }
    assert_eq!(bed.tracker.connections(), 1000);
    bed.now_ms += 61_000;
    assert_eq!(bed.list().len(), 0);
    // One of them begins anew before the walk.
    assert_eq!(bed.state(&udp(A, B, 7, 53)), "new|trk");
    assert_eq!(bed.tracker.connections(), 1000);
    let mut at = Some(crate::Cursor::default());
    while let Some(cursor) = at {
        at = bed.tracker.expire(cursor, 100, bed.now_ms);
    }
    assert_eq!((bed.tracker.connections(), bed.list().len(), bed.tracker.index.len()), (1, 1, 2));
    bed.tracker.flush(bed.now_ms, |_| true);
    assert_eq!((bed.tracker.connections(), bed.tracker.index.len()), (0, 0));
    assert_eq!(bed.tracker.counts().ended, 1001);
}

#[test]
fn a_connection_without_time_is_over_at_once() {
    let bed = Bed::new();
    let none = [(dpif::TimeoutAttr::UdpFirst, 0)].into_iter().collect();
    bed.tracker.set_policy(1, Some(&none)).expect("policy 1");
    let commit = Request { policy: 1, ..COMMIT };
    for _ in 0..2 {
        let mut key = FlowKey::default();
        let frame = Packet::from_slice(&udp(A, B, 5, 6));
        let layout = extract(frame.data(), &Metadata::default(), 1, &mut key);
        let info = PacketInfo::read(&frame, &key, layout, 0).expect("a packet");
        let lookup = bed.tracker.look_ahead(&info.key);
        bed.tracker.track_looked_up(&info, lookup, &commit, &mut key, 1, bed.now_ms, &mut None);
        assert_eq!(names(key.base.ct_state), "new|trk");
    }
}

#[test]
fn a_port_without_end_leaves_the_share_of_others() {
    let bed = Bed::new();
    bed.tracker.set_max_connections(100);
    bed.tracker.set_ports(5);
    let commit = COMMIT;
    let open = |port: u32, from: u16| {
        let mut key = FlowKey::default();
        let packet = Packet::from_slice(&udp(A, B, from, 53));
        let layout = extract(packet.data(), &Metadata::default(), 1, &mut key);
        let info = PacketInfo::read(&packet, &key, layout, 0);
        bed.tracker.track(info.as_ref(), &commit, &mut key, port, bed.now_ms);
        bed.tracker.connections_of_port(port)
    };
    (1..=200).for_each(|n| {
        open(1, n);
    });
    // A quarter is kept for five ports; the flooding port has used its own part of it.
    assert_eq!(bed.tracker.connections_of_port(1), 80);
    for port in 2..=5 {
        (1..=10).for_each(|n| {
            open(port, 1000 * port as u16 + n);
        });
        assert_eq!(bed.tracker.connections_of_port(port), 5);
    }
    assert_eq!(bed.tracker.connections(), 100);
    // Ports beyond their share are refused; port 5 is so only when all places are taken.
    assert_eq!(bed.tracker.counts().refused, [5, 0, 120 + 15, 0]);
}

#[test]
fn zones_have_limits() {
    let bed = Bed::new();
    bed.tracker.set_zone_limit(None, Some(2));
    bed.tracker.set_zone_limit(Some(5), Some(3));
    bed.tracker.set_zone_limit(Some(6), Some(0));
    for (zone, most) in [(4, 2), (5, 3), (6, 0)] {
        for source in 1..10 {
            let mut key = FlowKey::default();
            bed.pass(&udp(A, B, source, 53), &mut key, &Request { zone, ..COMMIT });
            assert_eq!(names(key.base.ct_state), "new|trk");
        }
        assert_eq!(bed.tracker.connections_of_zone(zone), most);
    }
    let zones: Vec<_> = bed.tracker.zones().map(|z| (z.zone, z.limit, z.counts.refused)).collect();
    let expected = [(4, Some(2), [0, 7, 0, 0]), (5, Some(3), [0, 6, 0, 0]), (6, Some(0), [0, 9, 0, 0])];
    assert_eq!(zones, expected);
    assert_eq!(bed.tracker.limited_zones(), [5, 6]);
}

#[test]
fn corpus_of_track() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/track");
    testkit::replay_corpus(folder, crate::fuzz::track);
    // The frames are whole: each file creates what its name says.
    for (name, created) in [
        ("udp", 1),
        ("tcp", 2),
        ("icmp_error_of_translated", 1),
        ("force", 2),
        ("limit", 16),
        ("ipv6", 2),
        ("ftp_session", 2),
    ] {
        let bytes = std::fs::read(format!("{folder}/{name}")).expect("the file is there");
        assert_eq!(crate::fuzz::run(&bytes), created, "{name}");
    }
}
