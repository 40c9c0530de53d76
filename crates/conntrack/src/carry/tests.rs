//! Tests of the format: versions, bounds, faults. The model (`crate::tests::model`) carries connections between packets.

use super::rows::Block;
use super::*;
use crate::key::Key;
use crate::tcp::Segment;
use crate::tcp::flag::{ACK, RST, SYN};
use crate::tests::agree;
use crate::{Announcement, Helper, PacketInfo, Request, Tracker, Transport};
use dpif::{CtAddresses, CtCarry, CtImported, CtNat, CtTransport, CtTuple, Masked, NatAddresses, NatRange};
use flow::FlowKey;
use proptest::prelude::*;
use std::ops::ControlFlow;

const NOW_MS: u64 = 1_000_000;

fn key(v6: bool, port: u16) -> Key {
    let addresses = match v6 {
        true => CtAddresses::V6 { src: 1.into(), dst: 2.into() },
        false => CtAddresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
    };
    let tuple = CtTuple { addresses, proto: 17, transport: CtTransport::Ports { src: port, dst: 69 } };
    Key::of(&tuple, 3).expect("a key")
}

/// A tracker with a translated control connection of TFTP and its expectation, of each family.
fn filled() -> Tracker {
    let tracker = Tracker::new(1);
    for v6 in [false, true] {
        let addresses = match v6 {
            true => NatAddresses::V6(9.into(), 9.into()),
            false => NatAddresses::V4([10, 0, 0, 9].into(), [10, 0, 0, 9].into()),
        };
        let nat = NatRange {
            is_dst: false,
            addresses: Some(addresses),
            ports: None,
            persistent: false,
            hash: false,
            random: false,
        };
        let request = Request {
            zone: 3,
            commit: true,
            force: false,
            mark: Some(Masked { value: 7, mask: u32::MAX }),
            labels: Some(Masked { value: 1 << 64 | 5, mask: u128::MAX }),
            helper: Some(Helper::Tftp),
            nat: CtNat::New(nat),
            policy: 0,
        };
        let packet = PacketInfo { key: key(v6, 1000), is_error: false, transport: Transport::Other };
        let announcement = Announcement::Tftp;
        tracker.track_control(&packet, &announcement, &request, &mut FlowKey::default(), 4, NOW_MS);
    }
    tracker
}

fn slices(tracker: &Tracker, export: &mut Export, room: usize) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| export.next(tracker, room, NOW_MS)).collect()
}

fn all(tracker: &Tracker) -> (Vec<String>, Vec<String>) {
    let mut list = Vec::new();
    tracker.list(NOW_MS, |c| {
        list.push(format!("{c:?}"));
        ControlFlow::Continue(())
    });
    list.sort();
    (list, tracker.expectations(NOW_MS).map(|e| format!("{e:?}")).collect())
}

#[test]
fn all_goes_over_and_later_only_changes() {
    let (tracker, mut export) = (filled(), Export::new(CtCarry::Over));
    let next = Tracker::new(2);
    let mut done = CtImported::default();
    slices(&tracker, &mut export, 1).iter().for_each(|slice| done.add(import(&next, slice, NOW_MS)));
    assert_eq!((done.made, done.expected, done.why), (2, 2, None));
    assert_eq!(all(&next), all(&tracker));
    agree::check(&next);
    // Nothing changed: only expectations come again.
    let again: Vec<u8> = slices(&tracker, &mut export, 1 << 20).concat();
    let done = import(&next, &again, NOW_MS);
    assert_eq!(done, CtImported { expected: 2, ..CtImported::default() });
    // One ends, another begins.
    assert!(tracker.end_of_key(&key(true, 1000), NOW_MS));
    let packet = PacketInfo { key: key(false, 1001), is_error: false, transport: Transport::Other };
    let commit = Request { zone: 3, ..crate::tests::COMMIT };
    tracker.track(Some(&packet), &commit, &mut FlowKey::default(), 4, NOW_MS);
    let done = import(&next, &slices(&tracker, &mut export, 1 << 20).concat(), NOW_MS);
    assert_eq!((done.made, done.replaced, done.ended, done.refused), (1, 0, 1, 0), "{done:?}");
    assert_eq!(all(&next), all(&tracker));
    agree::check(&next);
}

/// A key that another connection takes ends nothing.
#[test]
fn a_connection_of_the_same_key_stays() {
    let (tracker, mut export, next) = (filled(), Export::new(CtCarry::Over), Tracker::new(2));
    slices(&tracker, &mut export, 1 << 20).iter().for_each(|s| _ = import(&next, s, NOW_MS));
    // The record of the first one goes to another key, and its key to another record.
    tracker.flush(NOW_MS, |_| true);
    let commit = Request { zone: 3, ..crate::tests::COMMIT };
    for port in (1001..1040).chain([1000]) {
        let packet = PacketInfo { key: key(false, port), is_error: false, transport: Transport::Other };
        tracker.track(Some(&packet), &commit, &mut FlowKey::default(), 4, NOW_MS);
    }
    for slice in slices(&tracker, &mut export, 100) {
        assert_eq!(import(&next, &slice, NOW_MS).refused, 0);
    }
    assert_eq!(all(&next), all(&tracker));
    agree::check(&next);
}

/// Two hosts with a connection of TCP, and the time.
struct Pair {
    tracker: Tracker,
    now_ms: u64,
}

impl Pair {
    /// State bits of a segment: from the client, or from the server.
    fn pass(&self, is_reply: bool, flags: u8, seq: u32, ack: u32, bytes: u32) -> u32 {
        let addresses = CtAddresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
        let tuple = CtTuple { addresses, proto: 6, transport: CtTransport::Ports { src: 9, dst: 80 } };
        let key = Key::of(&tuple, 3).expect("a key");
        let key = if is_reply { key.reversed() } else { key };
        let segment = Segment { flags, seq, ack, window: 1000, bytes, scale: None };
        let packet = PacketInfo { key, is_error: false, transport: Transport::Tcp(segment) };
        let (mut flow, commit) = (FlowKey::default(), Request { zone: 3, ..crate::tests::COMMIT });
        self.tracker.track(Some(&packet), &commit, &mut flow, 4, self.now_ms);
        flow.base.ct_state
    }

    fn export(&self, export: &mut Export) -> Vec<u8> {
        std::iter::from_fn(|| export.next(&self.tracker, 1 << 20, self.now_ms)).flatten().collect()
    }
}

/// A pass writes a kept connection again if its state changed, not for data. Its next segments give the sequence numbers.
#[test]
fn a_kept_connection_takes_its_place_from_the_next_segments() {
    let est = flow::ct_state::EST;
    let inv = flow::ct_state::INV;
    let mut pair = Pair { tracker: Tracker::new(1), now_ms: NOW_MS };
    let mut export = Export::new(CtCarry::Kept);
    pair.pass(false, SYN, 100, 0, 0);
    pair.pass(true, SYN | ACK, 500, 101, 0);
    pair.pass(false, ACK, 101, 501, 0);
    let whole = pair.export(&mut export);
    for n in 0..100 {
        assert_eq!(pair.pass(false, ACK, 101 + 900 * n, 501, 900) & (est | inv), est, "{n}");
        assert_eq!(pair.pass(true, ACK, 501, 101 + 900 * (n + 1), 0) & (est | inv), est, "{n}");
    }
    pair.now_ms += 60_000;
    assert_eq!(pair.export(&mut export), Vec::<u8>::new(), "an established connection lasts for a day");
    // Told by now: the server's 501, the client's 90,101. The next process knows neither.
    pair.now_ms += 1000;
    let next = |is_exact: bool| {
        let tracker = Tracker::new(2);
        let done = match is_exact {
            true => import(&tracker, &whole, pair.now_ms),
            false => Restore::default().take(&tracker, &whole, pair.now_ms, 61_000),
        };
        assert_eq!((done.made, done.refused), (1, 0), "{done:?}");
        Pair { tracker, now_ms: pair.now_ms }
    };
    assert_eq!(next(true).pass(false, ACK, 90_101, 501, 900) & (est | inv), inv);
    for (first, second) in [(false, true), (true, false)] {
        let other = next(false);
        let segment = |is_reply: bool| match is_reply {
            false => other.pass(false, ACK, 3_000_090_101, 2_000_000_501, 900),
            true => other.pass(true, ACK, 2_000_000_501, 3_000_090_101, 10),
        };
        assert_eq!([segment(first) & (est | inv), segment(second) & (est | inv)], [est, est]);
        // From here on numbers count again.
        assert_eq!(other.pass(false, ACK, 90_101, 2_000_000_511, 900) & inv, inv);
        assert_eq!(other.pass(true, ACK, 501, 3_000_091_001, 10) & inv, inv);
        assert_eq!(other.pass(false, ACK, 3_000_091_001, 2_000_000_511, 900) & (est | inv), est);
    }
    // The client sends once more a segment that arrived, with half a megabyte behind it, before the server's last word was lost.
    let other = next(false);
    assert_eq!(other.pass(false, ACK, 3_000_000_000, 501, 900) & (est | inv), est);
    assert_eq!(other.pass(true, ACK, 501, 3_000_500_000, 0) & (est | inv), est);
    assert_eq!(other.pass(false, ACK, 3_000_500_000, 501, 900) & (est | inv), est);
    assert_eq!(other.pass(true, ACK, 501, 3_000_500_900, 10) & (est | inv), est);
    // A reset tells no place: it must fit the last known one, or what the other side acknowledges.
    let other = next(false);
    assert_eq!(other.pass(false, RST | ACK, 3_000_090_101, 501, 0) & (est | inv), inv);
    assert_eq!(other.pass(true, ACK, 501, 3_000_090_101, 10) & (est | inv), est);
    assert_eq!(other.pass(false, RST | ACK, 3_000_080_101, 511, 0) & (est | inv), inv);
    assert_eq!(other.pass(false, RST | ACK, 3_000_090_101, 511, 0) & (est | inv), est);
    // The file has the end of the connection: the reader ends it too.
    let tracker = Tracker::new(2);
    let mut restore = Restore::default();
    restore.take(&tracker, &whole, pair.now_ms, 61_000);
    pair.pass(false, RST | ACK, 90_101, 501, 0);
    let end = pair.export(&mut export);
    let done = restore.take(&tracker, &end, pair.now_ms + 3_600_000, 3_600_000);
    assert_eq!((done.ended, done.made, tracker.connections()), (1, 0, 0), "{done:?}");
}

/// Commits a packet of UDP with a translation of its source.
fn translate(tracker: &Tracker, port: u16, address: [u8; 4], ports: Option<(u16, u16)>) {
    let addresses = Some(NatAddresses::V4(address.into(), address.into()));
    let nat = NatRange { is_dst: false, addresses, ports, persistent: false, hash: false, random: false };
    let request = Request { zone: 3, nat: CtNat::New(nat), ..crate::tests::COMMIT };
    let packet = PacketInfo { key: key(false, port), is_error: false, transport: Transport::Other };
    tracker.track(Some(&packet), &request, &mut FlowKey::default(), 4, NOW_MS);
}

/// A pass writes a connection again if its record now has another translation.
#[test]
fn another_translation_is_told() {
    let (tracker, mut export) = (Tracker::new(1), Export::new(CtCarry::Kept));
    translate(&tracker, 1000, [10, 0, 0, 9], None);
    let mut file = slices(&tracker, &mut export, 1 << 20).concat();
    tracker.flush(NOW_MS, |_| true);
    translate(&tracker, 1000, [10, 0, 0, 10], None);
    file.extend(slices(&tracker, &mut export, 1 << 20).concat());
    let next = Tracker::new(2);
    Restore::default().take(&next, &file, NOW_MS, 0);
    assert_eq!(all(&next), all(&tracker));
    agree::check(&next);
}

/// Two connections of a file share a translation, as the first ended while the file was written: the later one counts. One that a
/// packet makes meanwhile stays, and so do its keys.
#[test]
fn kept_connections_share_no_translation() {
    let ports = Some((5000, 5000));
    let one = |port: u16| {
        let tracker = Tracker::new(1);
        translate(&tracker, port, [10, 0, 0, 9], ports);
        (slices(&tracker, &mut Export::new(CtCarry::Kept), 1 << 20).concat(), all(&tracker))
    };
    let ((first, _), (second, of_second)) = (one(1000), one(1001));
    let (next, mut restore) = (Tracker::new(2), Restore::default());
    assert_eq!(restore.take(&next, &first, NOW_MS, 0).made, 1);
    assert_eq!(restore.take(&next, &second, NOW_MS, 0).made, 1);
    assert_eq!(all(&next), of_second);
    let (next, mut restore) = (Tracker::new(2), Restore::default());
    translate(&next, 1001, [10, 0, 0, 9], ports);
    let done = restore.take(&next, &first, NOW_MS, 0);
    let why = Some("a connection whose translation another one has by now".to_string());
    assert_eq!((done.made, done.refused, done.why), (0, 1, why));
    // An end in the file is that of the former one.
    let ended = Tracker::new(1);
    let mut export = Export::new(CtCarry::Kept);
    translate(&ended, 1001, [10, 0, 0, 9], ports);
    slices(&ended, &mut export, 1 << 20);
    ended.flush(NOW_MS, |_| true);
    let done = restore.take(&next, &slices(&ended, &mut export, 1 << 20).concat(), NOW_MS, 0);
    assert_eq!((done.ended, all(&next)), (0, of_second));
    agree::check(&next);
}

/// A pass writes a connection again once its deadline moved by half of the time left.
#[test]
fn deadlines_of_kept_connections_stay_near() {
    let (tracker, mut export) = (filled(), Export::new(CtCarry::Kept));
    let packet = PacketInfo { key: key(false, 1000), is_error: false, transport: Transport::Other };
    let mut told = 0;
    for second in 0..300 {
        let now_ms = NOW_MS + second * 1000;
        tracker.track(
            Some(&packet),
            &Request { zone: 3, ..Request::default() },
            &mut FlowKey::default(),
            4,
            now_ms,
        );
        let slices: Vec<u8> =
            std::iter::from_fn(|| export.next(&tracker, 1 << 20, now_ms)).flatten().collect();
        let next = Tracker::new(2);
        told += Restore::default().take(&next, &slices, now_ms, 0).made;
    }
    assert!((8..40).contains(&told), "{told}");
}

const WIDE: &[(u8, u8)] = &[(200, 3), (field::REPLY, 2), (31, 1), (field::ORIG, 2), (field::LEFT_MS, 1)];

/// Fields of another version: unknown ones, in another order, and absent ones.
#[test]
fn fields_come_and_go() {
    let (Key::V4(orig), Key::V4(reply)) = (key(false, 5), key(false, 5).reversed()) else { panic!() };
    let mut block = Block::new(kind::CONNECTIONS[0], WIDE);
    block.row(&[&[1, 2, 3], &reply, &[4], &orig, &[5500]]);
    let mut unknown = Block::new(99, WIDE);
    unknown.row(&[&[1, 2, 3], &reply, &[4], &orig, &[5500]]);
    let mut bare = Block::new(kind::CONNECTIONS[0], &WIDE[1..4]);
    let (Key::V4(other), Key::V4(back)) = (key(false, 6), key(false, 6).reversed()) else { panic!() };
    bare.row(&[&back, &[0], &other]);
    let mut bytes = Vec::new();
    [unknown, block, bare].into_iter().for_each(|block| block.finish(&mut bytes));
    let tracker = Tracker::new(1);
    let done = import(&tracker, &bytes, NOW_MS);
    assert_eq!((done.made, done.refused), (2, 0), "{done:?}");
    let mut left = Vec::new();
    tracker.list(NOW_MS, |c| {
        left.push(c.timeout_s);
        ControlFlow::Continue(())
    });
    // The second one has the timeout of a new connection.
    assert_eq!(left, [5, 60]);
}

#[test]
fn faults_are_refused_and_the_rest_goes_on() {
    let (Key::V4(orig), Key::V4(reply)) = (key(false, 5), key(false, 5).reversed()) else { panic!() };
    let fields: &[(u8, u8)] = &[(field::ORIG, 2), (field::REPLY, 2), (field::LEFT_MS, 1), (field::STATE, 1)];
    let zone = orig[1] ^ 1 << 16;
    for (rows, why) in [
        ([orig, [1, u64::MAX]], "a connection without a key of each direction"),
        ([orig, [reply[0], zone]], "a connection with directions of two zones or protocols"),
    ] {
        let mut block = Block::new(kind::CONNECTIONS[0], fields);
        block.row(&[&rows[0], &rows[1], &[1], &[0]]);
        block.row(&[&orig, &reply, &[0], &[0]]);
        block.row(&[&orig, &reply, &[1], &[u64::from(u16::MAX) << 16]]);
        block.row(&[&orig, &reply, &[1], &[0]]);
        let mut bytes = Vec::new();
        block.finish(&mut bytes);
        let tracker = Tracker::new(1);
        let done = import(&tracker, &bytes, NOW_MS);
        assert_eq!((done.made, done.refused, done.why.as_deref()), (1, 3, Some(why)));
        agree::check(&tracker);
    }
    let whole = slices(&filled(), &mut Export::new(CtCarry::Over), 1 << 20).concat();
    for (at, value, why) in [
        (0, 0, "no block of connections"),
        (4, 9, "connections of format 9, not 1"),
        (7, 255, "a block of connections with 255 fields"),
        (8, 255, "a block of 255 connections is cut"),
        (13, 0, "a field of connections with 0 words"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        let done = import(&Tracker::new(1), &bytes, NOW_MS);
        assert_eq!((done.refused, done.why.as_deref()), (1, Some(why)));
    }
    for end in 0..whole.len() {
        let done = import(&Tracker::new(1), &whole[..end], NOW_MS);
        assert!(done.refused <= 1 && done.made <= 2, "{end}: {done:?}");
    }
}

/// The bytes of version 1: a reader of later versions takes them.
#[test]
fn bytes_of_the_first_version() {
    let recorded = include_bytes!("../../corpus/carried/version-1");
    let tracker = Tracker::new(1);
    let done = import(&tracker, recorded, NOW_MS);
    assert_eq!((done.made, done.expected, done.refused), (2, 2, 0), "{done:?}");
    assert_eq!(all(&tracker), all(&filled()));
}

#[test]
fn corpus_of_carried() {
    testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/carried"), crate::fuzz::carried);
}

proptest! {
    #[test]
    fn any_bytes_are_read(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut bytes = include_bytes!("../../corpus/carried/version-1").to_vec();
        changes.iter().for_each(|(at, value)| bytes[at.index(588)] = *value);
        if is_cut {
            bytes.truncate(cut.index(588));
        }
        crate::fuzz::carried(&bytes);
    }
}
