//! Tests of the format: versions, bounds, faults. The model (`crate::tests::model`) carries connections between packets.

use super::rows::Block;
use super::*;
use crate::key::Key;
use crate::tests::agree;
use crate::{Announcement, Helper, PacketInfo, Request, Tracker, Transport};
use dpif::{CtAddresses, CtImported, CtNat, CtTransport, CtTuple, Masked, NatAddresses, NatRange};
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
    let (tracker, mut export) = (filled(), Export::default());
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
    let (tracker, mut export, next) = (filled(), Export::default(), Tracker::new(2));
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
    let whole = slices(&filled(), &mut Export::default(), 1 << 20).concat();
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
