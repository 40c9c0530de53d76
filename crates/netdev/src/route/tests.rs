//! Parsing of what Linux 6.18 sent (`corpus/route_messages`), and of changed messages.

use super::{RouteChange, RouteEvent, RouteType, events_of};
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
            let kind = match r.kind {
                RouteType::Unicast => String::new(),
                kind => format!("{kind:?} ").to_lowercase(),
            };
            let _ = write!(out, "{change:?} {kind}table {} {}/{}", r.table, r.dst, r.len);
            for hop in &r.hops {
                let _ = write!(out, " dev {}", hop.ifindex);
                let _ = hop.gateway.map(|ip| write!(out, " via {ip}"));
                let _ = if hop.is_dead { write!(out, " dead") } else { Ok(()) };
            }
            let _ = r.object.map(|id| write!(out, " nhid {id}"));
            let _ = r.source.map(|ip| write!(out, " src {ip}"));
            write!(out, " metric {} scope {}", r.metric, r.scope)
        }
        RouteEvent::Rule { rule: r, .. } => {
            let network = |n: Option<(_, _)>| n.map_or("all".to_string(), |(ip, len)| format!("{ip}/{len}"));
            let not = if r.invert { "not " } else { "" };
            let (from, to) = (network(r.from), network(r.to));
            let _ = write!(out, "{}: {not}from {from} to {to} mark {:?} {:?}", r.priority, r.mark, r.action);
            if r.is_foreign { write!(out, " foreign") } else { Ok(()) }
        }
        RouteEvent::Address { address: a, is_removed } => {
            write!(out, "{} {}/{} {is_removed}", a.ifindex, a.address, a.len)
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
                // Not those of type broadcast, or with a type of service.
                "Appended table 1000 10.6.0.0/16 dev 3 via 10.0.0.9 src 10.0.0.1 metric 0 scope 0",
                "Appended table 254 10.0.0.0/24 dev 3 src 10.0.0.1 metric 0 scope 253",
                "Appended table 254 10.0.1.0/24 dev 5 src 10.0.1.1 metric 0 scope 253",
                "Appended table 254 10.5.0.0/16 dev 3 via 2001:cafe::1 metric 0 scope 0",
                "Appended blackhole table 254 10.7.0.0/16 metric 0 scope 0",
                "Appended table 254 10.8.0.0/16 dev 3 via 10.0.0.9 dev 5 via 10.0.1.9 metric 0 scope 0",
                "Appended table 254 10.9.0.0/16 dev 3 via 10.0.0.9 metric 50 scope 0",
                "Appended local table 255 10.0.0.1/32 dev 3 src 10.0.0.1 metric 0 scope 254",
                "Appended local table 255 10.0.1.1/32 dev 5 src 10.0.1.1 metric 0 scope 254",
                "Appended local table 255 127.0.0.0/8 dev 1 src 127.0.0.1 metric 0 scope 254",
                "Appended local table 255 127.0.0.1/32 dev 1 src 127.0.0.1 metric 0 scope 254",
            ][..],
        ),
        (
            "rules_of_ipv4",
            &[
                "0: from all to all mark (0, 0) Table { table: 255, suppress_len: None }",
                "100: from 10.0.0.0/24 to all mark (0, 0) Table { table: 1000, suppress_len: None }",
                "101: not from 10.3.0.0/16 to all mark (0, 0) Table { table: 1000, suppress_len: None }",
                "102: from all to all mark (5, 4294967295) Table { table: 1000, suppress_len: None }",
                "32766: from all to all mark (0, 0) Table { table: 254, suppress_len: None }",
                "32767: from all to all mark (0, 0) Table { table: 253, suppress_len: None }",
            ],
        ),
    ] {
        let read: Vec<String> = events_of(&corpus(name)).iter().map(brief).collect();
        assert_eq!(read, expected, "{name}");
    }
    let ipv6: Vec<String> = events_of(&corpus("routes_of_ipv6")).iter().map(brief).collect();
    for line in [
        "Appended table 254 2001:db8::/32 dev 3 via 2001:cafe::1 metric 1024 scope 0",
        "Appended table 254 2001:cafe::/64 dev 3 metric 256 scope 0",
        "Appended local table 255 ::1/128 dev 1 metric 0 scope 0",
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
