//! TCP against a plain oracle, written after the behaviour of Open vSwitch: peers as numbers without limit of size where
//! that matters, and each condition by itself.

use super::flag::{ACK, FIN, PSH, RST, SYN, URG};
use super::{SCALED, Segment, Side, Tcp, UNKNOWN, Update};
use dpif::{TcpState, TimeoutAttr};
use proptest::prelude::*;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Scale {
    None,
    Unknown,
    By(u32),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Peer {
    sent: u32,
    permitted: u32,
    window: i64,
    scale: Scale,
    pub(crate) state: TcpState,
}

/// Distance of `a` behind `b`: positive if later.
fn distance(a: u32, b: u32) -> i64 {
    let d = (i64::from(a) - i64::from(b)).rem_euclid(1 << 32);
    if d >= 1 << 31 { d - (1 << 32) } else { d }
}

fn plus(a: u32, b: i64) -> u32 {
    (i64::from(a) + b).rem_euclid(1 << 32) as u32
}

fn length(s: &Segment) -> i64 {
    i64::from(s.bytes) + i64::from(s.flags & SYN != 0) + i64::from(s.flags & FIN != 0)
}

pub(crate) fn are_invalid(flags: u8) -> bool {
    let has = |flag: u8| flags & flag != 0;
    has(SYN) && (has(RST) || has(FIN))
        || !has(SYN) && !has(ACK) && !has(RST)
        || !has(ACK) && (has(FIN) || has(PSH) || has(URG))
}

fn scale_of(s: &Segment) -> Scale {
    s.scale.map_or(Scale::None, |by| Scale::By(u32::from(by).min(14)))
}

fn without_scale(window: i64, by: u32) -> i64 {
    (window + (1 << by) - 1) >> by
}

pub(crate) fn oracle_new(s: &Segment) -> [Peer; 2] {
    let syn = s.flags & SYN != 0;
    let scale = if syn { scale_of(s) } else { Scale::Unknown };
    let window = i64::from(s.window).max(1);
    let window = if let Scale::By(by) = scale { without_scale(window, by) } else { window };
    let permitted = plus(s.seq, length(s) + 1);
    let other = if syn { Scale::None } else { Scale::Unknown };
    [
        Peer { sent: s.seq, permitted, window, scale, state: TcpState::SynSent },
        Peer { sent: 0, permitted: 1, window: 1, scale: other, state: TcpState::Closed },
    ]
}

/// The timeout of the states of both sides.
fn timeout_of(states: [TcpState; 2]) -> TimeoutAttr {
    use TcpState::{Closing, Established, FinWait2};
    if states.iter().all(|s| *s >= FinWait2) {
        TimeoutAttr::TcpClose
    } else if states.iter().all(|s| *s >= Closing) {
        TimeoutAttr::TcpTimeWait
    } else if states.iter().any(|s| *s < Established) {
        TimeoutAttr::TcpSynRecv
    } else if states.iter().any(|s| *s >= Closing) {
        TimeoutAttr::TcpFinWait
    } else {
        TimeoutAttr::TcpEstablished
    }
}

/// A SYN answers one with a scale; returns the scales of both.
fn agree(s: &Segment, from: &mut Peer, to: &mut Peer, by: u32, window: &mut i64) -> (u32, u32) {
    from.scale = scale_of(s);
    if let Scale::By(own) = from.scale {
        *window = without_scale(*window, own);
        return (own, by);
    }
    // The field has 16 bits.
    to.window = (to.window << by) & 0xffff;
    to.scale = Scale::None;
    (0, 0)
}

/// Whether a segment from `span.0` to `span.1` lies within both windows.
fn fits(s: &Segment, span: (u32, u32), from: &Peer, window: i64, skew: i64, from_by: u32) -> bool {
    let max = 0xffff + 1500;
    let resets_exactly = [-1, 0, 1].iter().any(|off| plus(from.sent, *off) == s.seq);
    distance(from.permitted, span.1) >= 0
        && distance(span.0, plus(from.sent, -window)) >= 0
        && skew >= -max
        && skew <= max << from_by
        && (s.flags & RST == 0 || resets_exactly)
}

/// Returns result and peers: sender and receiver.
pub(crate) fn oracle(s: &Segment, mut from: Peer, mut to: Peer, checked: bool) -> (Update, Peer, Peer) {
    use TcpState::{Closed, Closing, Established, FinWait2, SynSent, TimeWait};
    let has = |flag: u8| s.flags & flag != 0;
    if are_invalid(s.flags) {
        return (Update::Invalid, from, to);
    }
    if has(SYN) && !has(ACK) {
        if from.state >= FinWait2 && to.state >= FinWait2 {
            return (Update::Anew, from, to);
        }
        if from.state == Closed || from.state == TcpState::Listen || from.state == SynSent {
            from.state = SynSent;
            return (Update::StillNew(TimeoutAttr::TcpSynSent), from, to);
        }
    }
    let (mut from_by, mut to_by) = (0, 0);
    match (from.scale, to.scale) {
        (Scale::By(a), Scale::By(b)) if !has(SYN) => (from_by, to_by) = (a, b),
        (Scale::Unknown, Scale::Unknown) if !has(SYN) => (from_by, to_by) = (14, 14),
        _ => {}
    }
    let mut window = i64::from(s.window);
    let mut end = plus(s.seq, length(s));
    let mut acknowledges = true;
    if from.state < SynSent {
        if let (true, Scale::By(by)) = (has(SYN), to.scale) {
            (from_by, to_by) = agree(s, &mut from, &mut to, by, &mut window);
        }
        from.sent = s.seq;
        from.state = SynSent;
        let limit = plus(end, (to.window << to_by).max(1));
        if from.permitted == 1 || distance(limit, from.permitted) >= 0 {
            from.permitted = limit;
            acknowledges = false;
        }
        from.window = from.window.max(window);
    }
    let ack = if !has(ACK) || s.ack == 0 && has(RST) { to.sent } else { s.ack };
    let mut begin = s.seq;
    if begin == end {
        begin = from.sent;
        end = from.sent;
    }
    let skew = if acknowledges { distance(to.sent, ack) } else { 0 };
    let max = 0xffff + 1500;
    let span = (begin, end);
    let fits = fits(s, span, &from, to.window << to_by, skew, from_by) || !checked;
    if !fits {
        let doubtful = to.state < SynSent || to.state >= FinWait2 || from.state >= FinWait2;
        let near =
            distance(plus(from.permitted, max), end) >= 0 && distance(begin, plus(from.sent, -max)) >= 0;
        if !(doubtful && near) {
            return (Update::OutOfWindow, from, to);
        }
    }
    from.window = from.window.max(window);
    if distance(end, from.sent) > 0 {
        from.sent = end;
    }
    let offered = window << from_by;
    if distance(plus(ack, offered), to.permitted) >= 0 {
        to.permitted = plus(ack, offered.max(1));
    }
    if has(FIN) && from.state < Closing {
        from.state = Closing;
    }
    if fits && has(ACK) {
        if to.state == SynSent {
            to.state = Established;
        } else if to.state == Closing {
            to.state = FinWait2;
        }
    }
    if has(RST) {
        (from.state, to.state) = (TimeWait, TimeWait);
    }
    (Update::Valid(fits.then(|| timeout_of([from.state, to.state]))), from, to)
}

fn peer_of(side: &Side) -> Peer {
    let scale = match side.scale {
        0 => Scale::None,
        UNKNOWN => Scale::Unknown,
        by if by & SCALED != 0 => Scale::By(u32::from(by & 15)),
        other => panic!("scale {other:#x}"),
    };
    Peer { sent: side.low, permitted: side.high, window: side.window.into(), scale, state: side.state }
}

/// A segment near what the peers have sent.
#[derive(Clone, Copy, Debug)]
struct Draw {
    reply: bool,
    flags: u8,
    seq: i64,
    ack: i64,
    window: u16,
    bytes: u32,
    scale: Option<u8>,
}

fn offset() -> impl Strategy<Value = i64> {
    let edge = 0xffff + 1500;
    prop_oneof![
        6 => Just(0i64),
        4 => -2..3i64,
        2 => prop_oneof![Just(edge), Just(-edge), Just(edge + 1), Just(-edge - 1)],
        2 => -200_000..200_000i64,
        1 => any::<u32>().prop_map(i64::from),
    ]
}

fn draw() -> impl Strategy<Value = Draw> {
    let flags = prop_oneof![
        2 => Just(SYN),
        3 => Just(SYN | ACK),
        6 => Just(ACK),
        2 => Just(ACK | PSH),
        3 => Just(FIN | ACK),
        1 => Just(RST),
        1 => Just(RST | ACK),
        1 => 0..64u8,
    ];
    let bytes = prop_oneof![3 => Just(0u32), 2 => 1..1500u32, 1 => 0..65536u32];
    let scale = prop_oneof![Just(None), (0..16u8).prop_map(Some)];
    // As far behind as a scale allows, and one more.
    let scaled = (0..15u32, 0..2i64).prop_map(|(by, more)| -((0xffff + 1500) << by) - more);
    let ack = prop_oneof![5 => offset(), 1 => scaled];
    (any::<bool>(), flags, offset(), ack, any::<u16>(), bytes, scale).prop_map(
        |(reply, flags, seq, ack, window, bytes, scale)| Draw {
            reply,
            flags,
            seq,
            ack,
            window,
            bytes,
            scale,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 200_000 } else { 1000 }))]

    #[test]
    fn segments_of_both_directions_in_any_order(
        first in draw(),
        start in prop_oneof![any::<u32>(), Just(u32::MAX), Just(0)],
        draws in proptest::collection::vec(draw(), 0..40),
        checked in prop_oneof![5 => Just(true), 1 => Just(false)],
    ) {
        let segment = |d: &Draw, seq: u32, ack: u32| Segment {
            flags: d.flags,
            seq: plus(seq, d.seq),
            ack: plus(ack, d.ack),
            window: d.window,
            bytes: d.bytes,
            scale: d.scale.filter(|_| d.flags & SYN != 0),
        };
        let s = segment(&first, start, 0);
        let syn_ack = first.flags & SYN != 0 && first.flags & ACK != 0;
        prop_assert_eq!(s.may_begin(), !are_invalid(s.flags) && !syn_ack);
        if !s.may_begin() {
            return Ok(());
        }
        let (mut tcp, mut peers) = (Tcp::new(&s), oracle_new(&s));
        for d in &draws {
            prop_assert_eq!(tcp.sides.each_ref().map(peer_of), peers);
            prop_assert_eq!(Tcp::unpack(tcp.pack()), tcp);
            let (from, to) = if d.reply { (1, 0) } else { (0, 1) };
            // The other side begins where it likes.
            let seq = if peers[from].state == TcpState::Closed { start ^ 0x8000_0000 } else { peers[from].sent };
            let s = segment(d, seq, peers[to].sent);
            let expected;
            (expected, peers[from], peers[to]) = oracle(&s, peers[from], peers[to], checked);
            prop_assert_eq!(tcp.update(&s, d.reply, checked), expected, "{:?}", s);
            if expected == Update::Anew {
                (tcp, peers) = (Tcp::new(&s), oracle_new(&s));
            }
        }
        prop_assert_eq!(tcp.sides.each_ref().map(peer_of), peers);
    }
}

#[test]
fn sequence_numbers_wrap_around() {
    let segment = |flags, seq, ack, bytes| Segment { flags, seq, ack, window: 1000, bytes, scale: None };
    let mut tcp = Tcp::new(&segment(SYN, u32::MAX - 1, 0, 0));
    for (what, s, reply, expected) in [
        (
            "SYN+ACK",
            segment(SYN | ACK, u32::MAX, u32::MAX, 0),
            true,
            Update::Valid(Some(TimeoutAttr::TcpSynRecv)),
        ),
        ("ACK", segment(ACK, u32::MAX, 0, 0), false, Update::Valid(Some(TimeoutAttr::TcpEstablished))),
        (
            "data over the end",
            segment(ACK, u32::MAX, 0, 600),
            false,
            Update::Valid(Some(TimeoutAttr::TcpEstablished)),
        ),
        ("more", segment(ACK, 599, 0, 400), false, Update::Valid(Some(TimeoutAttr::TcpEstablished))),
        ("beyond the window", segment(ACK, 999, 0, 400), false, Update::OutOfWindow),
        ("acknowledged", segment(ACK, 0, 999, 0), true, Update::Valid(Some(TimeoutAttr::TcpEstablished))),
        (
            "within the window",
            segment(ACK, 999, 0, 400),
            false,
            Update::Valid(Some(TimeoutAttr::TcpEstablished)),
        ),
        ("far behind", segment(ACK, u32::MAX - 3000, 0, 10), false, Update::OutOfWindow),
    ] {
        assert_eq!(tcp.update(&s, reply, true), expected, "{what}");
    }
}
