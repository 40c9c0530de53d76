//! Parsing of what Linux 6.18 sent (`corpus/route_messages`), and of changed messages.

use super::{RouteChange, RouteEvent, events_of};
use std::fmt::Write as _;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/route_messages");

fn corpus(name: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}/{name}")).unwrap()
}

/// An event in the manner of ip(8).
fn brief(event: &RouteEvent) -> String {
    let mut out = String::new();
    let _ = match event {
        RouteEvent::Route { route: r, change } => {
            let _ = write!(out, "{change:?} table {} {}/{} dev {}", r.table, r.dst, r.len, r.ifindex);
            let _ = r.gateway.map(|ip| write!(out, " via {ip}"));
            let _ = r.source.map(|ip| write!(out, " src {ip}"));
            let _ = write!(out, " metric {}", r.metric);
            write!(
                out,
                "{}{}",
                if r.is_local { " local" } else { "" },
                if r.is_partial { " partial" } else { "" }
            )
        }
        RouteEvent::Rule { rule: r, .. } => {
            let from = r.from.map_or("all".to_string(), |(ip, len)| format!("{ip}/{len}"));
            let not = if r.invert { "not " } else { "" };
            write!(out, "{}: {not}from {from} table {}", r.priority, r.table)
        }
        RouteEvent::Address { ifindex, address, len, is_removed } => {
            write!(out, "{ifindex} {address}/{len} {is_removed}")
        }
        other => write!(out, "{other:?}"),
    };
    out
}

#[test]
fn messages_of_the_kernel_are_read() {
    for (name, expected) in [
        (
            "routes_of_ipv4",
            &[
                // Not those of type broadcast, of type blackhole, or with a type of service.
                "Appended table 1000 10.6.0.0/16 dev 3 via 10.0.0.9 src 10.0.0.1 metric 0",
                "Appended table 254 10.0.0.0/24 dev 3 src 10.0.0.1 metric 0",
                "Appended table 254 10.0.1.0/24 dev 5 src 10.0.1.1 metric 0",
                "Appended table 254 10.5.0.0/16 dev 3 via 2001:cafe::1 metric 0",
                "Appended table 254 10.8.0.0/16 dev 3 via 10.0.0.9 metric 0 partial",
                "Appended table 254 10.9.0.0/16 dev 3 via 10.0.0.9 metric 50",
                "Appended table 255 10.0.0.1/32 dev 3 src 10.0.0.1 metric 0 local",
                "Appended table 255 10.0.1.1/32 dev 5 src 10.0.1.1 metric 0 local",
                "Appended table 255 127.0.0.0/8 dev 1 src 127.0.0.1 metric 0 local",
                "Appended table 255 127.0.0.1/32 dev 1 src 127.0.0.1 metric 0 local",
            ][..],
        ),
        (
            "rules_of_ipv4",
            &[
                "0: from all table 255",
                // Not the one that selects by mark.
                "100: from 10.0.0.0/24 table 1000",
                "101: not from 10.3.0.0/16 table 1000",
                "32766: from all table 254",
                "32767: from all table 253",
            ],
        ),
    ] {
        let read: Vec<String> = events_of(&corpus(name)).iter().map(brief).collect();
        assert_eq!(read, expected, "{name}");
    }
    let ipv6: Vec<String> = events_of(&corpus("routes_of_ipv6")).iter().map(brief).collect();
    for line in [
        "Appended table 254 2001:db8::/32 dev 3 via 2001:cafe::1 metric 1024",
        "Appended table 254 2001:cafe::/64 dev 3 metric 256",
        "Appended table 255 ::1/128 dev 1 metric 0 local",
    ] {
        assert!(ipv6.iter().any(|l| l == line), "{line} is not in {ipv6:#?}");
    }
    assert!(!ipv6.iter().any(|l| l.contains("ff00::/8")), "a multicast route");
    let addresses: Vec<String> = events_of(&corpus("addresses")).iter().map(brief).collect();
    assert!(addresses.iter().any(|l| l == "3 10.0.0.1/24 false"), "{addresses:#?}");
    assert!(addresses.iter().any(|l| l == "3 2001:cafe::88/64 false"), "{addresses:#?}");
}

#[test]
fn flags_tell_the_place_of_a_new_route() {
    let routes = corpus("routes_of_ipv4");
    let first = routes[..u32::from_ne_bytes(routes[..4].try_into().unwrap()) as usize].to_vec();
    for (kind, flags, expected) in [
        (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, RouteChange::Prepended),
        (libc::RTM_NEWROUTE, libc::NLM_F_CREATE, RouteChange::Prepended),
        (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, RouteChange::Appended),
        (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, RouteChange::Replaced),
        (libc::RTM_NEWROUTE, libc::NLM_F_REPLACE, RouteChange::Replaced),
        (libc::RTM_NEWROUTE, 0, RouteChange::Appended),
        (libc::RTM_DELROUTE, 0, RouteChange::Removed),
    ] {
        let mut message = first.clone();
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        let events = events_of(&message);
        let [RouteEvent::Route { change, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*change, expected, "kind {kind}, flags {flags:#x}");
    }
}

#[test]
fn messages_cut_off_or_changed_do_no_harm() {
    for name in ["routes_of_ipv4", "routes_of_ipv6", "rules_of_ipv4", "addresses"] {
        let whole = corpus(name);
        for cut in 0..whole.len() {
            crate::fuzz::route_messages(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 4, 5, 0x21, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                crate::fuzz::route_messages(&changed);
            }
        }
    }
}

#[test]
fn the_corpus_of_route_messages_is_replayed() {
    testkit::replay_corpus(FOLDER, crate::fuzz::route_messages);
}
