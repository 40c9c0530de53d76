//! Writes of the usual packet. The tests of the model compare its results with those of the tracker as a whole.

use crate::record::Version;
use crate::tcp::{Segment, flag};
use crate::tracker::{Family, REFRESH_MS};
use crate::{Key, PacketInfo, Request, Tracker, Transport};
use flow::{FlowKey, ct_state};

const NOW_MS: u64 = 1_000_000;
/// Scale of the largest windows: 2^30 bytes.
const SCALE: u8 = 14;
const FIRST: u32 = 1000;
const BYTES: u32 = 10;

fn segment(is_reply: bool, flags: u8, seq: u32, ack: u32, bytes: u32) -> PacketInfo {
    let key = Key::V4([0x0a00_0001_0a00_0002, 5000 << 48 | 80 << 32 | 6]);
    let scale = (flags & flag::SYN != 0).then_some(SCALE);
    let segment = Segment { flags, seq, ack, window: u16::MAX, bytes, scale };
    let key = if is_reply { key.reversed() } else { key };
    PacketInfo { key, is_error: false, transport: Transport::Tcp(segment) }
}

/// Data number `n` of a direction.
fn data(is_reply: bool, n: u32) -> PacketInfo {
    segment(is_reply, flag::ACK, FIRST + 1 + n * BYTES, FIRST + 1, BYTES)
}

/// Tracks a packet as a forwarding core does; returns its state.
fn track(tracker: &Tracker, packet: &PacketInfo, request: &Request, now_ms: u64) -> u32 {
    let mut key = FlowKey::default();
    let mut lookup = tracker.look_ahead(&packet.key);
    tracker.look_further(&mut lookup, &packet.key);
    tracker.track_looked_up(packet, lookup, request, &mut key, 1, now_ms, &mut None);
    key.base.ct_state & !ct_state::TRK
}

/// A tracker with one established connection.
fn established() -> Tracker {
    let tracker = Tracker::new(3);
    let commit = Request { commit: true, ..Request::default() };
    let look = Request::default();
    track(&tracker, &segment(false, flag::SYN, FIRST, 0, 0), &commit, NOW_MS);
    track(&tracker, &segment(true, flag::SYN | flag::ACK, FIRST, FIRST + 1, 0), &look, NOW_MS);
    // The windows of SYNs have no scale.
    for is_reply in [false, true] {
        track(&tracker, &segment(is_reply, flag::ACK, FIRST + 1, FIRST + 1, 0), &look, NOW_MS);
    }
    tracker
}

fn version(tracker: &Tracker) -> Version {
    Family::<2>::slab(tracker).record(0).read_version(|_| ()).expect("live and not locked").1
}

fn expires_ms(tracker: &Tracker) -> u64 {
    Family::<2>::slab(tracker).record(0).expires_ms()
}

/// The ends of the data of both sides.
fn ends(tracker: &Tracker) -> [u32; 2] {
    let words = Family::<2>::slab(tracker).record(0).tcp();
    [words[0], words[1]].map(|side| (side >> 32) as u32)
}

#[test]
fn a_segment_writes_only_if_it_moves_a_window_or_the_deadline() {
    let (tracker, look) = (established(), Request::default());
    let before = version(&tracker);
    let pure = segment(false, flag::ACK, FIRST + 1, FIRST + 1, 0);
    for _ in 0..3 {
        assert_eq!(track(&tracker, &pure, &look, NOW_MS + REFRESH_MS), ct_state::EST);
    }
    assert_eq!(version(&tracker), before);
    assert_eq!(track(&tracker, &data(false, 0), &look, NOW_MS + REFRESH_MS), ct_state::EST);
    let moved = version(&tracker);
    assert_ne!(moved, before);
    assert_eq!(ends(&tracker), [FIRST + 1 + BYTES, FIRST + 1]);
    // The same data again.
    assert_eq!(track(&tracker, &data(false, 0), &look, NOW_MS + REFRESH_MS), ct_state::EST);
    assert_eq!(version(&tracker), moved);
    let deadline = expires_ms(&tracker);
    assert_eq!(track(&tracker, &pure, &look, NOW_MS + 2 * REFRESH_MS + 1), ct_state::EST);
    assert_eq!(expires_ms(&tracker), deadline + REFRESH_MS + 1);
    // Out of the window: counted, and nothing moves.
    let far = segment(true, flag::ACK, FIRST + (1 << 31), FIRST + 1, 0);
    let far = PacketInfo {
        transport: match far.transport {
            Transport::Tcp(s) => Transport::Tcp(Segment { bytes: BYTES, ..s }),
            other => other,
        },
        ..far
    };
    assert_eq!(track(&tracker, &far, &look, NOW_MS), ct_state::INV);
    assert_eq!(ends(&tracker), [FIRST + 1 + BYTES, FIRST + 1]);
}

#[test]
fn a_datagram_moves_the_deadline_of_its_connection() {
    let (tracker, look) = (Tracker::new(3), Request::default());
    let key = Key::V4([0x0a00_0001_0a00_0002, 5000 << 48 | 53 << 32 | 17]);
    let first = PacketInfo { key, is_error: false, transport: Transport::Other };
    let reply = PacketInfo { key: key.reversed(), ..first };
    track(&tracker, &first, &Request { commit: true, ..look }, NOW_MS);
    track(&tracker, &reply, &look, NOW_MS);
    let (before, deadline) = (version(&tracker), expires_ms(&tracker));
    assert_eq!(track(&tracker, &first, &look, NOW_MS + REFRESH_MS), ct_state::EST);
    assert_eq!(version(&tracker), before);
    assert_eq!(track(&tracker, &first, &look, NOW_MS + 1000), ct_state::EST);
    assert_eq!(expires_ms(&tracker), deadline + 1000);
}

/// An edge that one thread moves is never moved back by the other.
#[test]
fn directions_on_two_threads_lose_no_edge_of_a_window() {
    let segments = if testkit::long() { 1_000_000 } else { 20_000 };
    let (tracker, look) = (established(), Request::default());
    std::thread::scope(|scope| {
        for is_reply in [false, true] {
            let (tracker, look) = (&tracker, &look);
            scope.spawn(move || {
                let reply = if is_reply { ct_state::RPL } else { 0 };
                for n in 0..segments {
                    let state = track(tracker, &data(is_reply, n), look, NOW_MS);
                    assert_eq!(state, ct_state::EST | reply, "segment {n}");
                    let low = ends(tracker)[usize::from(is_reply)];
                    assert_eq!(low, FIRST + 1 + (n + 1) * BYTES, "segment {n}");
                }
            });
        }
    });
    assert_eq!(ends(&tracker), [FIRST + 1 + segments * BYTES; 2]);
}
