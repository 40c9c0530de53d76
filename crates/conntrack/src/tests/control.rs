//! Control packets: repeated lookups, packets that keep their length, ends.

use super::*;
use crate::tcp::flag::{ACK, SYN};
use crate::{Announcement, Edit, Helper};
use dpif::CtNat;

const TRANSLATED: [u8; 4] = [99, 111, 222, 133];
const LINE: &[u8] = b"PORT 10,0,0,1,4,5\r\n";

fn segment(flags: u8, seq: u32, ack: u32, line: &[u8]) -> Vec<u8> {
    let mut body = [1000u16, 21].map(u16::to_be_bytes).concat();
    body.extend([seq, ack].map(u32::to_be_bytes).concat());
    body.extend([0x50, flags, 3, 0xe8, 0, 0, 0, 0]);
    body.extend(line);
    frame(A, B, 6, body)
}

fn request() -> Request {
    let nat = snat(TRANSLATED, None);
    Request { zone: 1, commit: true, helper: Some(Helper::Ftp), nat, ..Request::default() }
}

/// Tracks a control packet, and edits it; returns its state and its new bytes.
fn control(
    bed: &Bed,
    bytes: &[u8],
    request: &Request,
    key: &mut FlowKey,
    may_grow: bool,
) -> (String, Vec<u8>) {
    let mut packet = Packet::from_slice(bytes);
    let mut fresh = FlowKey::default();
    let layout = extract(bytes, &Metadata::default(), 1, &mut fresh);
    (fresh.base.ct_state, fresh.base.ct_zone) = (key.base.ct_state, key.base.ct_zone);
    *key = fresh;
    let info = PacketInfo::read(&packet, key, layout, request.zone).unwrap();
    assert_eq!(info.control(None), Some(Helper::Ftp));
    let announcement = Announcement::read(&packet, 14, 34, false, Helper::Ftp);
    let (_, edit): (_, Option<Edit>) =
        bed.tracker.track_control(&info, &announcement, request, key, 1, bed.now_ms);
    if let Some(edit) = edit {
        bed.tracker.edit(&mut packet, 14, 34, &edit, may_grow);
    }
    (names(key.base.ct_state), packet.data().to_vec())
}

fn opened() -> Bed {
    let bed = Bed::new();
    let syn = control(&bed, &segment(SYN, 100, 0, b""), &request(), &mut FlowKey::default(), true);
    assert_eq!(syn.0, "new|trk|snat");
    let reply = tcp(B, TRANSLATED, [21, 1000], SYN | ACK, 500, 101, 0);
    let known = Request { zone: 1, nat: CtNat::Known, ..Request::default() };
    bed.pass(&reply, &mut FlowKey::default(), &known);
    bed
}

fn seq(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[38..42].try_into().unwrap())
}

#[test]
fn an_edit_happens_once_for_a_packet() {
    let bed = opened();
    let mut key = FlowKey::default();
    // A lookup without translation first, as rules of a firewall do: expected, but not rewritten.
    let look = Request { zone: 1, ..Request::default() };
    let port = segment(ACK, 101, 501, LINE);
    let (state, same) = control(&bed, &port, &look, &mut key, true);
    assert_eq!((state.as_str(), &same), ("est|trk", &port));
    assert_eq!(bed.tracker.expectations(bed.now_ms).count(), 1);
    let (state, grown) = control(&bed, &port, &request(), &mut key, true);
    assert_eq!((state.as_str(), grown.len()), ("est|trk|snat", port.len() + 6));
    let (_, next) =
        control(&bed, &segment(ACK, 120, 501, b"LIST\r\n"), &request(), &mut FlowKey::default(), true);
    assert_eq!(seq(&next), 126);
    assert_eq!(bed.tracker.expectations(bed.now_ms).count(), 1);
    assert_eq!(bed.tracker.stats().out_of_window, 0);
}

#[test]
fn a_packet_that_keeps_its_length_is_not_rewritten() {
    let bed = opened();
    let port = segment(ACK, 101, 501, LINE);
    let (state, same) = control(&bed, &port, &request(), &mut FlowKey::default(), false);
    assert_eq!((state.as_str(), same), ("est|trk|snat", port));
    assert_eq!((bed.tracker.stats().not_rewritten, bed.tracker.expectations(bed.now_ms).count()), (1, 1));
}

#[test]
fn packets_outside_of_the_window_announce_nothing() {
    let bed = opened();
    let (state, _) =
        control(&bed, &segment(ACK, 900_000, 501, LINE), &request(), &mut FlowKey::default(), true);
    assert_eq!(state, "inv|trk|snat");
    assert_eq!(bed.tracker.expectations(bed.now_ms).count(), 0);
}

#[test]
fn expectations_and_parents_end_with_connections() {
    let mut bed = opened();
    control(&bed, &segment(ACK, 101, 501, LINE), &request(), &mut FlowKey::default(), true);
    let expected: Vec<_> =
        bed.tracker.expectations(bed.now_ms).map(|e| (e.tuple, e.parent, e.zone)).collect();
    let data = |port| {
        let mut key = FlowKey::default();
        let known = Request { zone: 1, commit: true, nat: CtNat::Known, ..Request::default() };
        bed.pass(&tcp(B, TRANSLATED, [20, port], SYN, 9000, 0, 0), &mut key, &known);
        names(key.base.ct_state)
    };
    assert_eq!((expected.len(), expected[0].2), (1, 1));
    assert_eq!((data(1029), data(1030)), ("new|rel|trk|dnat".to_string(), "new|trk".to_string()));
    assert_eq!(bed.tracker.parents.len(), 1);
    let related: Vec<_> = bed.list().into_iter().filter(|c| c.contains("dport=1029")).collect();
    assert!(related.len() == 1 && related[0].contains("reply=(src=10.0.0.1,dst=10.0.0.2"), "{related:?}");
    // The child ends.
    bed.tracker.flush(bed.now_ms, |c| c.parent.is_some());
    assert_eq!((bed.tracker.parents.len(), bed.tracker.expectations(bed.now_ms).count()), (0, 1));
    // Then the parent.
    bed.tracker.flush(bed.now_ms, |_| true);
    assert_eq!((bed.tracker.connections(), bed.tracker.expectations(bed.now_ms).count()), (0, 0));
    // Or time.
    bed = opened();
    control(&bed, &segment(ACK, 101, 501, LINE), &request(), &mut FlowKey::default(), true);
    bed.now_ms += 30_000;
    assert_eq!(bed.tracker.expectations(bed.now_ms).count(), 0);
    bed.tracker.expire(crate::Cursor::default(), 100, bed.now_ms);
    assert!(bed.tracker.expectations.is_empty());
}

/// As Open vSwitch 3.5 does: `ct(table=1)` first, and `ct(commit,alg=ftp)` only for the first packet, on any port.
#[test]
fn a_helper_of_the_connection_reads_packets_of_other_rules() {
    let bed = Bed::new();
    let info = |frame: &[u8]| {
        let mut key = FlowKey::default();
        let layout = extract(frame, &Metadata::default(), 1, &mut key);
        let zone = Request { zone: 1, ..Request::default() };
        (PacketInfo::read(&Packet::from_slice(frame), &key, layout, 1).unwrap(), key, zone)
    };
    let at_port = |mut frame: Vec<u8>, at: usize| {
        frame[at..at + 2].copy_from_slice(&11111u16.to_be_bytes());
        (frame[50], frame[51]) = (0, 0);
        let end = frame.len();
        super::frame(A, B, 6, frame.drain(34..end).collect())
    };
    let syn = at_port(segment(SYN, 100, 0, b""), 36);
    assert_eq!(bed.tracker.helper_of(&info(&syn).0, None, bed.now_ms), None);
    bed.pass(
        &syn,
        &mut FlowKey::default(),
        &Request { helper: Some(Helper::Ftp), nat: CtNat::No, ..request() },
    );
    bed.pass(&tcp(B, A, [11111, 1000], SYN | ACK, 500, 101, 0), &mut FlowKey::default(), &info(&syn).2);
    let port = at_port(segment(ACK, 101, 501, LINE), 36);
    let (packet, mut key, look) = info(&port);
    assert_eq!(packet.control(None), None);
    assert_eq!(bed.tracker.helper_of(&packet, None, bed.now_ms), Some(Helper::Ftp));
    let announcement = Announcement::read(&Packet::from_slice(&port), 14, 34, false, Helper::Ftp);
    bed.tracker.track_control(&packet, &announcement, &look, &mut key, 1, bed.now_ms);
    assert_eq!(bed.tracker.expectations(bed.now_ms).count(), 1);
    // Others have none.
    let other = tcp(A, B, [1001, 11111], ACK, 1, 1, 4);
    assert_eq!(bed.tracker.helper_of(&info(&other).0, None, bed.now_ms), None);
}

/// A datagram of a connection with a helper takes no shorter way that passes the helper by.
#[test]
fn a_helper_of_the_connection_reads_datagrams() {
    let bed = Bed::new();
    let frame = udp(A, B, 5, 1069);
    let commit = Request { zone: 1, commit: true, helper: Some(Helper::Tftp), ..Request::default() };
    bed.pass(&frame, &mut FlowKey::default(), &commit);
    bed.pass(&frame, &mut FlowKey::default(), &commit);
    let mut key = FlowKey::default();
    let layout = extract(&frame, &Metadata::default(), 1, &mut key);
    let info = PacketInfo::read(&Packet::from_slice(&frame), &key, layout, 1).unwrap();
    let mut lookup = bed.tracker.look_ahead(&info.key);
    bed.tracker.look_further(&mut lookup, &info.key);
    let (look, mut to) = (Request { zone: 1, ..Request::default() }, None);
    assert!(!bed.tracker.track_usual(&info, lookup, &look, &mut key, bed.now_ms, &mut to));
    assert_eq!(bed.tracker.helper_of(&info, None, bed.now_ms), Some(Helper::Tftp));
}
