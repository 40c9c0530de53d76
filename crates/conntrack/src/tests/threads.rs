//! Several threads on one tracker: no connection is lost or there twice, and none that stays is ever missed.

use super::{COMMIT, agree, names};
use crate::carry::{Export, import};
use crate::tcp::{Segment, flag};
use crate::{Cursor, Key, PacketInfo, Request, Tracker, Transport};
use dpif::{CtCarry, CtNat, NatAddresses, NatRange, TimeoutAttr};
use flow::{FlowKey, ct_state};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: u64 = 4;
const NOW_MS: u64 = 1_000_000;

/// Times that a test repeats its work.
fn rounds(usual: u64) -> u64 {
    if testkit::long() { usual * 50 } else { usual }
}

/// UDP connection `n` of a set.
fn udp(set: u8, n: u32, zone: u16) -> PacketInfo {
    let addresses = u64::from(0x0a00_0000 | u32::from(set) << 16 | n >> 14) << 32 | 0x0b00_0001;
    let ports = u64::from(1 + (n & 0x3fff)) << 48 | 53 << 32;
    let key = Key::V4([addresses, ports | u64::from(zone) << 16 | 17]);
    PacketInfo { key, is_error: false, transport: Transport::Other }
}

fn reply_of(packet: &PacketInfo) -> PacketInfo {
    PacketInfo { key: packet.key.reversed(), ..*packet }
}

fn track(tracker: &Tracker, packet: &PacketInfo, request: &Request, port: u32) -> u32 {
    let mut key = FlowKey::default();
    tracker.track(Some(packet), request, &mut key, port, NOW_MS);
    key.base.ct_state
}

/// Runs `work` in threads that begin together.
fn together(work: impl Fn(u64) + Sync) {
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (barrier, work) = (&barrier, &work);
            s.spawn(move || {
                barrier.wait();
                work(thread);
            });
        }
    });
}

fn expire_all(tracker: &Tracker, now_ms: u64) {
    let mut at = Some(Cursor::default());
    while let Some(cursor) = at {
        at = tracker.expire(cursor, 1000, now_ms);
    }
}

/// Original and reply tuples of all connections.
fn tuples(tracker: &Tracker) -> Vec<dpif::CtTuple> {
    let mut all = Vec::new();
    tracker.list(NOW_MS, |c| {
        all.extend([c.orig, c.reply]);
        ControlFlow::Continue(())
    });
    all
}

fn are_distinct(tuples: &[dpif::CtTuple]) -> bool {
    tuples.iter().collect::<HashSet<_>>().len() == tuples.len()
}

#[test]
fn simultaneous_commits_create_each_connection_once() {
    const CONNECTIONS: u32 = 3000;
    for round in 0..rounds(10) {
        let tracker = Tracker::new(round);
        together(|thread| {
            for n in 0..CONNECTIONS {
                // Two threads begin with the original direction, two with the reply.
                let packet = udp(1, n, 3);
                let packet = if thread % 2 == 0 { packet } else { reply_of(&packet) };
                let state = track(&tracker, &packet, &Request { zone: 3, ..COMMIT }, thread as u32);
                assert_ne!(state & (ct_state::NEW | ct_state::EST), 0, "{}", names(state));
            }
        });
        assert_eq!(tracker.connections(), CONNECTIONS);
        assert!(are_distinct(&tuples(&tracker)));
        agree::check(&tracker);
        together(|_| tracker.flush(NOW_MS, |_| true));
        assert_eq!((tracker.connections(), tracker.counts().ended), (0, CONNECTIONS.into()));
        agree::check(&tracker);
    }
}

#[test]
fn no_translated_tuple_is_given_twice() {
    let address = Ipv4Addr::new(1, 1, 1, 1);
    let nat = CtNat::New(NatRange {
        is_dst: false,
        addresses: Some(NatAddresses::V4(address, address)),
        ports: Some((2000, 2063)),
        persistent: false,
        hash: false,
        random: false,
    });
    let request = Request { nat, ..COMMIT };
    for round in 0..rounds(20) {
        let tracker = Tracker::new(round);
        let pause = Barrier::new(THREADS as usize);
        together(|thread| {
            for n in 0..200 {
                let packet = udp(thread as u8, n, 0);
                track(&tracker, &packet, &request, 1);
                // Some end again, so that their ports are taken anew.
                if n % 3 == 0 {
                    tracker.end_of_key(&packet.key, NOW_MS);
                }
                if n % 50 == 0 {
                    // A walk beside other threads may show a connection that has ended and the next one of its port.
                    pause.wait();
                    let tuples = tuples(&tracker);
                    pause.wait();
                    assert!(tuples.len() <= 2 * 64 && are_distinct(&tuples));
                }
            }
        });
        // Whatever the order, the last commits of each thread find free ports as long as there are some.
        (0..200).for_each(|n| {
            track(&tracker, &udp(9, n, 0), &request, 1);
        });
        assert_eq!(tracker.connections(), 64);
        assert!(are_distinct(&tuples(&tracker)));
        agree::check(&tracker);
    }
}

#[test]
fn connections_that_begin_anew_in_all_threads_stay_single() {
    const CONNECTIONS: u32 = 20;
    let segment = |flags, seq| Segment { flags, seq, ack: 0, window: 1000, bytes: 0, scale: None };
    let tcp = |n, segment| {
        let Key::V4([addresses, rest]) = udp(1, n, 0).key else { unreachable!("of IPv4") };
        let key = Key::V4([addresses, rest & !0xff | 6]);
        PacketInfo { key, is_error: false, transport: Transport::Tcp(segment) }
    };
    let tracker = Tracker::new(5);
    tracker.set_checks_sequence(false);
    together(|thread| {
        for round in 0..rounds(2000) as u32 {
            for n in 0..CONNECTIONS {
                // A reset closes both sides; the next SYN begins a connection anew.
                track(&tracker, &tcp(n, segment(flag::RST | flag::ACK, round)), &COMMIT, 1);
                track(&tracker, &tcp(n, segment(flag::SYN, round)), &COMMIT, 1);
                // Ends connections of the opposite direction, and begins its own.
                if round % 8 == thread as u32 {
                    let opposite = reply_of(&tcp(n, segment(flag::SYN, round)));
                    track(&tracker, &opposite, &Request { force: true, ..COMMIT }, 2);
                }
            }
        }
    });
    assert_eq!(tracker.connections(), CONNECTIONS);
    assert!(are_distinct(&tuples(&tracker)));
    agree::check(&tracker);
}

#[test]
fn established_connections_are_found_while_others_come_and_go() {
    const STAY: u32 = 400;
    let tracker = Tracker::new(11);
    let short = [(TimeoutAttr::UdpFirst, 5), (TimeoutAttr::UdpSingle, 5)].into_iter().collect();
    assert!(tracker.set_policy(1, Some(&short)).is_ok());
    let stays = |n: u32| udp(1, n, 1);
    for n in 0..STAY {
        let request = Request { zone: 1, ..COMMIT };
        track(&tracker, &stays(n), &request, 1);
        assert_eq!(names(track(&tracker, &reply_of(&stays(n)), &request, 1)), "est|rpl|trk");
    }
    let look = Request { zone: 1, ..Request::default() };
    let stop = AtomicBool::new(false);
    let lookups: u64 = std::thread::scope(|s| {
        let (tracker, stop) = (&tracker, &stop);
        let churn = |thread: u64| {
            for round in 0..rounds(6) as u32 {
                let zone = 2 + (round % 3) as u16;
                let request = Request { zone, policy: 1, ..COMMIT };
                let of = |n| udp(2 + thread as u8, n, zone);
                // The table grows by several doublings in the first round; sets of several threads overlap.
                (0..12_000).for_each(|n| {
                    track(tracker, &of(n), &request, thread as u32);
                    track(tracker, &udp(9, n & 0xff, zone), &request, thread as u32);
                });
                match (thread + u64::from(round)) % 3 {
                    0 => tracker.flush(NOW_MS, |c| c.zone == zone),
                    // Over by then: all but those that stay.
                    1 => expire_all(tracker, NOW_MS + 10_000),
                    _ => (0..12_000).for_each(|n| {
                        tracker.end_of_key(&of(n).key, NOW_MS);
                    }),
                }
            }
        };
        let writers: Vec<_> = (0..THREADS - 1).map(|thread| s.spawn(move || churn(thread))).collect();
        let reader = s.spawn(move || {
            let mut lookups = 0;
            while !stop.load(Ordering::Relaxed) {
                for n in 0..STAY {
                    let state = track(tracker, &stays(n), &look, 1);
                    assert_eq!(names(state), "est|trk", "connection {n} after {lookups} lookups");
                    let mut lookup = tracker.look_ahead(&stays(n).key);
                    tracker.look_further(&mut lookup, &stays(n).key);
                    lookups += 1;
                }
            }
            lookups
        });
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader")
    });
    assert!(lookups > 0 && tracker.index.buckets() > 1000, "{lookups}");
    assert!(tracker.connections() >= STAY);
    agree::check(&tracker);
    tracker.flush(NOW_MS, |_| true);
    assert_eq!(tracker.connections(), 0);
    agree::check(&tracker);
}

/// Connections go over while threads of both trackers begin, use and end some. The last pass, without packets, is exact.
#[test]
fn all_go_over_while_packets_go_on() {
    const CONNECTIONS: u32 = 2000;
    for round in 0..rounds(5) {
        let (tracker, next) = (Tracker::new(round), Tracker::new(round + 1));
        let export = std::sync::Mutex::new(Export::new(CtCarry::Over));
        let carry = || {
            let mut export = export.lock().expect("no thread failed");
            while let Some(slice) = export.next(&tracker, 4096, NOW_MS) {
                let done = import(&next, &slice, NOW_MS);
                assert_eq!(done.refused, 0, "{done:?}");
            }
        };
        together(|thread| match thread {
            0 => (0..20).for_each(|_| carry()),
            // The next tracker has packets of the same connections.
            1 => (0..CONNECTIONS).for_each(|n| _ = track(&next, &udp(0, n, 0), &COMMIT, 1)),
            _ => {
                for n in 0..CONNECTIONS {
                    let packet = udp(0, n ^ thread as u32, 0);
                    track(&tracker, &packet, &COMMIT, 1);
                    track(&tracker, &reply_of(&packet), &Request::default(), 2);
                    if n % 7 == 0 {
                        tracker.end_of_key(&packet.key, NOW_MS);
                    }
                }
            }
        });
        carry();
        // Connections that began there alone are of the next tracker.
        let keys: HashSet<dpif::CtTuple> = tuples(&tracker).into_iter().collect();
        next.flush(NOW_MS, |c| !keys.contains(&c.orig));
        let sorted = |tracker: &Tracker| {
            let mut all: Vec<String> = tuples(tracker).iter().map(|tuple| format!("{tuple:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&next), sorted(&tracker));
        (0..CONNECTIONS).for_each(|n| {
            let packet = udp(0, n, 0);
            let look = Request::default();
            assert_eq!(track(&next, &packet, &look, 1), track(&tracker, &packet, &look, 1));
        });
        agree::check(&next);
    }
}
