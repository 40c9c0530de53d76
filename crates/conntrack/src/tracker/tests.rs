//! Steps of two threads in a row that can meet: a connection ends between a thread's lookup and its next step.

use super::{Existing, Found, Pass, Tracker};
use crate::key::{Key, Words};
use crate::packet_info::{PacketInfo, Transport};
use crate::request::Request;
use crate::tests::{COMMIT, agree};
use dpif::{CtNat, NatAddresses, NatRange};
use flow::{FlowKey, ct_state};
use std::net::Ipv4Addr;

const NOW_MS: u64 = 1_000_000;

fn udp(src: u32, dst: u32, port: u16) -> ([u64; 2], PacketInfo) {
    let words = [u64::from(src) << 32 | u64::from(dst), u64::from(port) << 48 | 53 << 32 | 17];
    (words, PacketInfo { key: Key::V4(words), is_error: false, transport: Transport::Other })
}

fn commit(tracker: &Tracker, packet: &PacketInfo, request: &Request) -> u32 {
    let mut key = FlowKey::default();
    tracker.track(Some(packet), request, &mut key, 1, NOW_MS);
    key.base.ct_state
}

#[test]
fn a_record_used_again_is_another_connection() {
    for before in [0, ct_state::TRK | ct_state::SNAT] {
        let tracker = Tracker::new(3);
        let (words, packet) = udp(1, 2, 1000);
        commit(&tracker, &packet, &COMMIT);
        let place = tracker.find(&words, NOW_MS).expect("it was committed");
        let found = Found::new(place, words);
        assert!(tracker.end_of_key(&packet.key, NOW_MS));
        // The number is the next one that its list gives out.
        let next = (1..u16::MAX).find_map(|port| {
            let (words, packet) = udp(3, 4, port);
            commit(&tracker, &packet, &COMMIT);
            (tracker.find(&words, NOW_MS)?.number == place.number).then_some(words)
        });
        let next = next.expect("the record is used again");
        let connections = tracker.connections();
        let ct = Pass {
            packet: &packet,
            request: &COMMIT,
            before,
            translated: false,
            again: false,
            now_ms: NOW_MS,
        };
        assert!(matches!(tracker.existing(&found, &ct), (Existing::Gone, _)));
        let marks = Request { mark: Some(dpif::Masked { value: 5, mask: 0xff }), ..COMMIT };
        let ct = Pass { request: &marks, ..ct };
        assert!(matches!(tracker.existing(&found, &ct), (Existing::Gone, _)));
        tracker.end_found(&found);
        assert_eq!(tracker.connections(), connections);
        assert_eq!(tracker.find(&next, NOW_MS).map(|place| place.number), Some(place.number));
        agree::check(&tracker);
    }
}

#[test]
fn all_connections_are_flushed_also_those_whose_tuple_is_a_reply_of_others() {
    let tracker = Tracker::new(3);
    let address = Ipv4Addr::new(9, 9, 9, 9);
    let nat = CtNat::New(NatRange {
        is_dst: false,
        addresses: Some(NatAddresses::V4(address, address)),
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    });
    let port = |n: u32| 10_000 + n as u16;
    let all = 1..400;
    let fillers: Vec<_> = all.clone().map(|n| udp(n + 5000, 7, 9).1).collect();
    fillers.iter().for_each(|filler| {
        commit(&tracker, filler, &COMMIT);
    });
    for n in all.clone() {
        commit(&tracker, &udp(n, 2, port(n)).1, &Request { nat, ..COMMIT });
    }
    // Their entries leave room before those of the translated connections.
    fillers.iter().for_each(|filler| {
        tracker.end_of_key(&filler.key, NOW_MS);
    });
    for n in all.clone() {
        // The reply tuple is the original tuple of a translated connection.
        let packet = PacketInfo { key: Key::V4(udp(n, 2, port(n)).0.reversed()), ..udp(n, 2, port(n)).1 };
        assert_eq!(commit(&tracker, &packet, &COMMIT), ct_state::NEW | ct_state::TRK);
    }
    let both = 2 * all.end - 2;
    assert_eq!(tracker.connections(), both);
    let ambiguous = all.clone().filter(|n| {
        let place = tracker.find(&udp(*n, 2, port(*n)).0, NOW_MS);
        place.is_some_and(|place| place.direction.is_reply())
    });
    assert_ne!(ambiguous.count(), 0, "the case does not occur");
    agree::check(&tracker);
    assert!(all.clone().all(|n| tracker.end_of_key(&udp(n, 2, port(n)).1.key, NOW_MS)));
    assert_eq!(tracker.connections(), both / 2);
    tracker.flush(NOW_MS, |_| true);
    assert_eq!(tracker.connections(), 0);
    agree::check(&tracker);
}

#[test]
fn a_translated_packet_that_changed_is_found_by_its_original_tuple() {
    let address = Ipv4Addr::new(9, 9, 9, 9);
    let range = NatRange {
        is_dst: false,
        addresses: Some(NatAddresses::V4(address, address)),
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    };
    for (what, nat, orig_port) in [("lookup", CtNat::No, 1000), ("translation", CtNat::Known, 4000)] {
        let tracker = Tracker::new(3);
        let mut key = FlowKey::default();
        let request = Request { nat: CtNat::New(range), ..COMMIT };
        tracker.track(Some(&udp(1, 2, 1000).1), &request, &mut key, 1, NOW_MS);
        assert_ne!(key.base.ct_state & ct_state::SNAT, 0);
        // Its port is set to another one before the next action.
        let changed = udp(0x0909_0909, 2, 4000).1;
        tracker.track(Some(&changed), &Request { commit: false, nat, ..COMMIT }, &mut key, 1, NOW_MS);
        assert_eq!(key.ct.tp_src, orig_port, "{what}");
        agree::check(&tracker);
    }
}

/// As Open vSwitch 3.5 answers `flush-conntrack zone=N TUPLE` and `ct-flush`: the tuple of either direction.
#[test]
fn a_connection_ends_by_either_tuple() {
    let tracker = Tracker::new(3);
    let (words, packet) = udp(1, 2, 1000);
    commit(&tracker, &packet, &COMMIT);
    assert!(!tracker.end_of_key(&udp(2, 1, 1000).1.key, NOW_MS));
    assert!(tracker.end_of_key(&words.reversed().key(), NOW_MS));
    assert!(!tracker.end_of_key(&packet.key, NOW_MS));
    // A translated one by the tuple that replies have.
    let to = Ipv4Addr::from(9);
    let nat = CtNat::New(NatRange {
        is_dst: false,
        addresses: Some(NatAddresses::V4(to, to)),
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    });
    commit(&tracker, &packet, &Request { nat, ..COMMIT });
    assert!(!tracker.end_of_key(&words.reversed().key(), NOW_MS));
    let translated = Words::reversed(&udp(9, 2, 1000).0).key();
    assert!(tracker.end_of_key(&translated, NOW_MS));
    assert_eq!(tracker.connections(), 0);
    agree::check(&tracker);
}
