//! Two sessions talking, and a session with a misbehaving peer.

use super::hex;
use crate::budget::Budgets;
use crate::session::{CloseReason, Config, Event, MessageCounts, SendError, Session};
use crate::{ErrorCode, ErrorKind, Message, Version, VersionSet, decode, encode, fuzz};

fn config(versions: &[Version]) -> Config {
    Config { versions: VersionSet::of(versions), ..Config::default() }
}

/// Moves all output of `from` to `to`.
fn carry(from: &mut Session, to: &mut Session, now_ms: u64) -> Vec<Event> {
    let bytes = from.output().to_vec();
    from.consume_output(bytes.len());
    to.input(&bytes, now_ms)
}

fn connected() -> (Session, Session) {
    let mut a = Session::new(config(&[Version::V10, Version::V13]), 0);
    let mut b = Session::new(config(&[Version::V10, Version::V13]), 0);
    assert_eq!(carry(&mut a, &mut b, 0), [Event::Connected(Version::V13)]);
    assert_eq!(carry(&mut b, &mut a, 0), [Event::Connected(Version::V13)]);
    (a, b)
}

#[test]
fn versions_are_agreed_by_bitmap_and_by_number() {
    let rows: [(&[Version], &str, Option<Version>); 7] = [
        (&[Version::V10, Version::V13], "0100000800000001", Some(Version::V10)),
        (&[Version::V10, Version::V13], "0600000800000001", Some(Version::V13)),
        (&[Version::V10, Version::V13], "06000010000000010001000800000052", Some(Version::V13)),
        (&[Version::V10, Version::V13], "05000010000000010001000800000022", Some(Version::V10)),
        (&[Version::V10], "0400000800000001", Some(Version::V10)),
        (&[Version::V13], "04000010000000010001000800000002", None),
        (&[Version::V13], "0100000800000001", None),
    ];
    for (ours, hello, expected) in rows {
        let mut s = Session::new(config(ours), 0);
        s.consume_output(usize::MAX);
        let events = s.input(&hex(hello), 0);
        assert_eq!(s.version(), expected, "{hello}");
        if expected.is_none() {
            assert!(matches!(events[..], [Event::Closed(CloseReason::NoCommonVersion { .. })]));
            let (_, _, Message::Error(e)) = decode(s.output()).unwrap() else { panic!("no error sent") };
            assert_eq!(e.error, ErrorCode::Known(ErrorKind::HfcIncompatible));
        }
    }
}

#[test]
fn our_hello_has_a_bitmap_only_when_the_versions_have_a_gap() {
    let gap = Session::new(config(&[Version::V10, Version::V13]), 0);
    assert_eq!(gap.output(), hex("04000010 00000001 00010008 00000012"));
    let one = Session::new(config(&[Version::V10]), 0);
    assert_eq!(one.output(), hex("0100000800000001"));
}

#[test]
fn messages_pass_and_echoes_are_answered() {
    let (mut a, mut b) = connected();
    let xid = a.send(&Message::BarrierRequest).unwrap();
    a.send(&Message::EchoRequest(b"hi".to_vec())).unwrap();
    assert_eq!(
        carry(&mut a, &mut b, 1),
        [Event::Message {
            xid,
            message: Box::new(Message::BarrierRequest),
            frame: encode(&Message::BarrierRequest, Version::V13, xid).unwrap().into()
        }]
    );
    assert!(matches!(decode(b.output()), Ok((Version::V13, _, Message::EchoReply(d))) if d == b"hi"));
    assert_eq!(carry(&mut b, &mut a, 1), []);
}

#[test]
fn bad_messages_are_answered_and_errors_are_not() {
    let (mut a, _) = connected();
    let events = a.input(&hex("0463000800000077"), 1);
    let [Event::Refused(e)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((e.kind, e.xid), (ErrorKind::BrcBadType, 0x77));
    assert_eq!(a.output(), hex("0401001400000077 00010001 0463000800000077"));
    a.consume_output(usize::MAX);
    // An error too short to be one.
    let events = a.input(&hex("0401000a000000770001"), 1);
    assert!(matches!(events[..], [Event::Refused(_)]));
    assert!(a.output().is_empty());
}

#[test]
fn a_peer_that_breaks_the_framing_is_left() {
    let (mut a, _) = connected();
    let events = a.input(&hex("0414000700000001"), 1);
    assert_eq!(events, [Event::Closed(CloseReason::BadLength(7))]);
    assert!(a.is_over() && a.send(&Message::BarrierRequest) == Err(SendError::NotConnected));
    let mut c = Session::new(Config::default(), 0);
    assert_eq!(c.input(b"GET /", 0), []);
    let events = c.input(b" HTTP/1.1\r\n\r\n", 0);
    assert_eq!(events, [Event::Closed(CloseReason::NoHello(b'E'))]);
}

#[test]
fn messages_of_another_version_get_a_reply_in_it_and_keep_the_session() {
    let (mut a, _) = connected();
    let rows = [
        // An echo returns in its own version, even an unknown one.
        ("0102000c0000006661626364", "0103000c0000006661626364"),
        ("0602000800000066", "0603000800000066"),
        ("6002000800000066", "6003000800000066"),
        ("0002000800000066", "0101001400000066 00010000 0002000800000066"),
        // Others are rejected: in their version if it exists, else in 1.0.
        ("0105000800000066", "0101001400000066 00010000 0105000800000066"),
        ("0263000800000066", "0201001400000066 00010000 0263000800000066"),
        ("0705000800000066", "0101001400000066 00010000 0705000800000066"),
        ("0005000800000066", "0101001400000066 00010000 0005000800000066"),
        // Replies get no reply.
        ("0103000800000066", ""),
        ("0101000c0000006600010001", ""),
        ("0100000800000066", ""),
    ];
    for (message, answer) in rows {
        a.input(&hex(message), 1);
        assert_eq!(a.output(), hex(answer), "{message}");
        a.consume_output(usize::MAX);
        assert!(!a.is_over(), "{message}");
    }
}

#[test]
fn an_error_carries_all_of_the_message_that_fits() {
    for (len, told) in [(8, 8), (64, 64), (65, 65), (1008, 1008), (65_523, 65_523), (65_535, 65_523)] {
        for version in [Version::V10, Version::V13] {
            let mut s = Session::new(config(&[version]), 0);
            let hello = Message::Hello(crate::msg::control::Hello { versions: VersionSet::of(&[version]) });
            s.input(&encode(&hello, version, 1).unwrap(), 0);
            s.consume_output(usize::MAX);
            let mut message = vec![0xff; len];
            message[..2].copy_from_slice(&[version.0, 99]);
            message[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            s.input(&message, 1);
            let (.., Message::Error(e)) = decode(s.output()).unwrap() else { panic!("no error") };
            assert_eq!((e.error, e.data.len()), (ErrorCode::Known(ErrorKind::BrcBadType), told), "{version}");
            assert_eq!(e.data[..], message[..told]);
        }
    }
}

#[test]
fn silence_is_probed_and_then_ends_the_session() {
    let (mut a, mut b) = connected();
    assert_eq!(a.next_wakeup_ms(), Some(5_000));
    assert_eq!(a.tick(4_999), []);
    assert!(a.tick(5_000).is_empty() && !a.output().is_empty());
    carry(&mut a, &mut b, 5_001);
    assert_eq!(carry(&mut b, &mut a, 5_002), []);
    assert_eq!(a.next_wakeup_ms(), Some(10_002));
    a.tick(10_002);
    assert_eq!(a.tick(15_001), []);
    assert_eq!(a.tick(15_002), [Event::Closed(CloseReason::ProbeTimeout)]);
    let mut waiting = Session::new(Config::default(), 100);
    assert_eq!(waiting.tick(10_100), [Event::Closed(CloseReason::HelloTimeout)]);
}

#[test]
fn a_tap_has_whole_messages_of_both_directions_or_reports_a_loss() {
    let (mut a, mut b) = connected();
    a.set_tap(true);
    let ours =
        encode(&Message::BarrierRequest, Version::V13, a.send(&Message::BarrierRequest).unwrap()).unwrap();
    let theirs = hex("0403000a 00000009 6869");
    a.push_input(&theirs[..7], 1);
    assert_eq!((a.next_event(), a.has_frame(), a.take_tap()), (None, false, Some(ours)));
    a.push_input(&theirs[7..], 1);
    assert!(a.has_frame() && a.take_tap() == Some(Vec::new()));
    assert_eq!((a.next_event(), a.take_tap()), (None, Some(theirs.clone())));
    // Unread copies are bounded.
    for _ in 0..=crate::session::TAP_BYTES / theirs.len() {
        a.input(&theirs, 1);
    }
    assert_eq!((a.take_tap(), a.take_tap()), (None, Some(Vec::new())));
    // And copied into another session unchanged.
    carry(&mut b, &mut a, 1);
    b.consume_output(usize::MAX);
    b.send_copies(&theirs).unwrap();
    assert_eq!(b.output(), theirs);
}

#[test]
fn output_is_bounded() {
    let small = Config { max_output_bytes: 1000, ..config(&[Version::V13]) };
    let mut a = Session::new(small, 0);
    a.consume_output(usize::MAX);
    a.input(&hex("0400000800000001"), 0);
    assert!(a.wants_input());
    while a.send(&Message::EchoRequest(vec![0; 92])).is_ok() {}
    assert_eq!(a.send(&Message::BarrierRequest), Err(SendError::Full { waiting_bytes: 1000 }));
    assert!(!a.wants_input());
    // A peer that asks on without reading is left.
    let events = a.input(&hex("0402000800000001"), 1);
    assert_eq!(events, [Event::Closed(CloseReason::OutputOverflow)]);
}

#[test]
fn the_table_id_extension_is_followed() {
    let mut a = Session::new(config(&[Version::V10]), 0);
    let mut b = Session::new(config(&[Version::V10]), 0);
    carry(&mut a, &mut b, 0);
    carry(&mut b, &mut a, 0);
    let mut fm = hex("010e0048 00000006 003820ff");
    fm.extend([0; 36]);
    fm.extend(hex("0000000000000009 0300 0000 0000 8000 ffffffff ffff 0000"));
    assert!(matches!(b.input(&fm, 1)[..], [Event::Refused(_)]));
    b.consume_output(usize::MAX);
    a.send(&Message::FlowModTableId(true)).unwrap();
    carry(&mut a, &mut b, 1);
    let events = b.input(&fm, 1);
    let [Event::Message { message, .. }] = &events[..] else { panic!("{events:?}") };
    let Message::FlowMod(got) = &**message else { panic!("{message:?}") };
    assert_eq!(got.table, flow::TableId(3));
    // Messages of the other side have the table, too.
    a.send(&Message::FlowMod(got.clone())).unwrap();
    assert_eq!(fuzz::split_frames(a.output())[0][8..], fm[8..]);
}

/// A message counts as sent once its first byte leaves; hellos count apart, also among copies.
#[test]
fn messages_are_counted_by_their_beginnings() {
    let (mut a, mut b) = connected();
    let hellos =
        MessageCounts { received: 1, hellos_received: 1, hellos_sent: 1, ..MessageCounts::default() };
    assert_eq!((a.counts(), b.counts()), (hellos, hellos));
    for _ in 0..3 {
        a.send(&Message::BarrierRequest).unwrap();
    }
    let copies = [a.output(), &hex("0400000800000009")].concat();
    a.send_copies(&copies).unwrap();
    let at = |sent, hellos_sent| MessageCounts { queued: 6, sent, hellos_sent, ..hellos };
    // Messages of 8 bytes each.
    for (bytes, expected) in [
        (0, at(0, 1)),
        (1, at(1, 1)),
        (7, at(1, 1)),
        (1, at(2, 1)),
        (31, at(5, 1)),
        (1, at(6, 1)),
        (8, at(6, 2)),
    ] {
        let sent = a.output()[..bytes].to_vec();
        a.consume_output(bytes);
        assert_eq!(a.counts(), expected, "{bytes} more");
        b.push_input(&sent, 0);
    }
    assert_eq!(std::iter::from_fn(|| b.next_event()).count(), 6);
    // Its hello is not to be answered, and counts.
    assert_eq!((b.counts().received, b.counts().hellos_received), (7, 1));
    b.push_input(a.output(), 0);
    a.consume_output(usize::MAX);
    assert!(b.next_event().is_none());
    assert_eq!((b.counts().received, b.counts().hellos_received), (8, 2));
    assert_eq!(a.counts().ended().discarded, 0);
    a.send(&Message::BarrierRequest).unwrap();
    a.send(&Message::BarrierRequest).unwrap();
    a.consume_output(1);
    let ended = a.counts().ended();
    assert_eq!((ended.queued, ended.sent, ended.discarded), (8, 7, 1));
}

/// Output of another process was counted there.
#[test]
fn a_resumed_session_counts_its_own_messages() {
    let (mut a, _) = connected();
    a.send(&Message::BarrierRequest).unwrap();
    a.send(&Message::BarrierRequest).unwrap();
    a.consume_output(3);
    let mut s = Session::resume(*a.config(), a.save().unwrap(), &Budgets::unbounded());
    s.send(&Message::BarrierRequest).unwrap();
    s.consume_output(13);
    assert_eq!(s.counts(), MessageCounts { queued: 1, ..MessageCounts::default() });
    s.consume_output(1);
    assert_eq!(s.counts(), MessageCounts { queued: 1, sent: 1, ..MessageCounts::default() });
    // A peer that reads no more: its output is gone.
    s.send(&Message::BarrierRequest).unwrap();
    s.mute();
    assert_eq!(s.send(&Message::BarrierRequest).map(drop), Ok(()));
    assert_eq!(s.counts().ended().discarded, 1);
}
