//! Parsing of netlink messages: whole, truncated, and malformed ones.

use super::wire::{Request, attribute, link_of, messages};
use super::{AllLinkStats, LinkEvent, LinkStats, OperState, counters_of, monitor};
use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A new-link message as bytes: header, `ifinfomsg`, attributes.
fn message(kind: u16) -> Vec<u8> {
    let mut request = Request::change_link(7, (libc::IFF_UP | libc::IFF_LOWER_UP) as u32, 0);
    request.add(attribute::IFNAME, b"eth7\0");
    request.add(attribute::ADDRESS, &[2, 0, 0, 0, 0, 7]);
    request.add(attribute::MTU, &9000u32.to_ne_bytes());
    request.add(attribute::OPERSTATE, &[6]);
    request.add(attribute::STATS64, &[1; 24 * 8]);
    // A nested attribute with its flag set, as the kernel may send it.
    request.add(attribute::LINKINFO | 0x8000, &[9, 0, 1, 0, b'v', b'e', b't', b'h', 0, 0, 0, 0]);
    let mut bytes = request.finish();
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes
}

#[test]
fn a_link_is_read_from_its_attributes() {
    let mut two = message(libc::RTM_NEWLINK);
    two.extend(message(libc::RTM_DELLINK));
    let events: Vec<_> = messages(&two).filter_map(|m| monitor::event_of(&m)).collect();
    let [LinkEvent::Changed(l), LinkEvent::Deleted { ifindex: 7, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((l.ifindex, l.name.as_str(), l.mtu, l.kind.as_str()), (7, "eth7", 9000, "veth"));
    assert_eq!((l.mac, l.oper_state, l.carrier()), (Some([2, 0, 0, 0, 0, 7]), OperState::Up, true));
    let stats = messages(&two).find_map(|m| link_of(&m)).unwrap().1.unwrap();
    assert_eq!(stats.rx_missed_errors, 0x0101_0101_0101_0101);
}

#[test]
fn messages_cut_off_or_changed_do_no_harm() {
    let whole = message(libc::RTM_NEWLINK);
    let read = |bytes: &[u8]| messages(bytes).filter_map(|m| link_of(&m)).count();
    assert_eq!(read(&whole), 1);
    for cut in 0..whole.len() {
        assert_eq!(read(&whole[..cut]), 0, "the length in the header tells of more");
    }
    // Within a message of valid length, any length of any attribute, and any other byte.
    for at in 0..whole.len() {
        for value in [0, 1, 3, 4, 5, 0x7f, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            assert!(read(&changed) <= 1);
        }
    }
}

/// An answer of Linux to `RTM_GETSTATS`, written down field by field: counters count up from 1.
fn counters_message() -> Vec<u8> {
    let mut bytes = Request::dump_counters().finish();
    bytes[4..6].copy_from_slice(&92_u16.to_ne_bytes());
    bytes[20..24].copy_from_slice(&7_u32.to_ne_bytes());
    bytes.extend([204_u16, 1].map(u16::to_ne_bytes).concat());
    bytes.extend((1..=25_u64).flat_map(u64::to_ne_bytes));
    let total = bytes.len() as u32;
    bytes[..4].copy_from_slice(&total.to_ne_bytes());
    bytes
}

#[test]
fn counters_of_links_are_read_and_cut_ones_left() {
    let request = Request::dump_counters().finish();
    assert_eq!(
        &request[16..],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        "if_stats_msg: all links, their 64-bit counters"
    );
    let whole = counters_message();
    let [(7, stats)] = counters_of(&whole)[..] else { panic!("{:?}", counters_of(&whole)) };
    assert_eq!((stats.rx_packets, stats.tx_carrier_errors), (1, 18));
    assert!(counters_of(&message(libc::RTM_NEWLINK)).is_empty());
    for cut in 0..whole.len() {
        assert!(counters_of(&whole[..cut]).is_empty());
    }
    for at in 0..whole.len() {
        for value in [0, 1, 3, 4, 5, 0x7f, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            assert!(counters_of(&changed).len() <= 1);
        }
    }
}

#[test]
fn the_corpus_of_link_messages_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/link_messages");
    testkit::replay_corpus(folder, crate::fuzz::link_messages);
}

#[test]
fn counters_of_all_links_are_asked_for_once_a_second() {
    let (all, begun, asked) = (AllLinkStats::default(), Instant::now(), Cell::new(0));
    let get = |indexes: &[u32], ms| {
        let ask = || {
            asked.set(asked.get() + 1);
            let stats = LinkStats { collisions: asked.get(), ..LinkStats::default() };
            Ok(HashMap::from([(1, stats), (2, stats)]))
        };
        let got = all.get_by(indexes, begun + Duration::from_millis(ms), ask);
        got.into_iter().map(|stats| stats.map(|s| s.collisions)).collect::<Vec<_>>()
    };
    for (indexes, ms, expected, questions) in [
        (&[][..], 0, vec![], 0),
        (&[1, 2], 0, vec![Some(1), Some(1)], 1),
        (&[2], 999, vec![Some(1)], 1),
        // A new one, or a missing one: requested once.
        (&[1, 3], 999, vec![Some(2), None], 2),
        (&[3, 1], 1500, vec![None, Some(2)], 2),
        (&[1], 1999, vec![Some(3)], 3),
    ] {
        assert_eq!((get(indexes, ms), asked.get()), (expected, questions), "{indexes:?} at {ms}");
    }
}
