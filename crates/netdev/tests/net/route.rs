//! Routes, rules and addresses: the dump, and events after it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netdev::route::{KernelAction, KernelRule, RouteChange, RouteEvent, RouteMonitor, RouteType};

use crate::helpers::*;

/// The events up to the one that is `done`.
fn events_until(m: &mut RouteMonitor, done: impl Fn(&RouteEvent) -> bool) -> Vec<RouteEvent> {
    let deadline = Instant::now() + LIMIT;
    let mut all = Vec::new();
    while Instant::now() < deadline && !all.iter().any(&done) {
        let polled = m.poll(1024).unwrap();
        all.extend(polled.events);
        if !polled.more {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(all.iter().any(&done), "{all:?}");
    all
}

fn to(event: &RouteEvent, dst: &str) -> Option<RouteChange> {
    let dst: IpAddr = dst.parse().unwrap();
    match event {
        RouteEvent::Route { route, change } if route.dst == dst && route.kind == RouteType::Unicast => {
            Some(*change)
        }
        _ => None,
    }
}

fn uses(rule: &KernelRule, number: u32) -> bool {
    matches!(rule.action, KernelAction::Table { table, .. } if table == number)
}

#[test]
fn a_monitor_reads_everything_and_then_changes() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        ip("addr add 10.0.0.1/24 dev sl-a");
        ip("route add 10.9.0.0/16 via 10.0.0.9");
        let mut m = RouteMonitor::new().unwrap();
        let all = events_until(&mut m, |e| *e == RouteEvent::Complete);
        assert_eq!(all[0], RouteEvent::Begin);
        assert!(all.iter().any(|e| matches!(e, RouteEvent::Link(l) if l.name == "sl-a")));
        assert!(
            all.iter().any(|e| to(e, "10.0.0.0").is_some())
                && all.iter().any(|e| to(e, "10.9.0.0").is_some())
        );
        assert!(all.iter().any(|e| matches!(e, RouteEvent::Rule { rule, .. } if uses(rule, 254))));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let is_it = |e: &RouteEvent| matches!(e, RouteEvent::Address { address: a, .. } if (a.address, a.len) == (address, 24));
        assert!(all.iter().any(is_it));
        for (command, expected) in [
            ("route add 10.8.0.0/16 via 10.0.0.9", RouteChange::Prepended),
            ("route append 10.8.0.0/16 via 10.0.0.8", RouteChange::Appended),
            ("route replace 10.8.0.0/16 via 10.0.0.7", RouteChange::Replaced),
            ("route del 10.8.0.0/16 via 10.0.0.7", RouteChange::Removed),
        ] {
            ip(command);
            let events = events_until(&mut m, |e| to(e, "10.8.0.0").is_some());
            assert_eq!(events.iter().find_map(|e| to(e, "10.8.0.0")), Some(expected), "{command}");
        }
        ip("rule add from 10.0.0.0/24 table 1000 pref 100");
        events_until(
            &mut m,
            |e| matches!(e, RouteEvent::Rule { rule, is_removed: false } if uses(rule, 1000)),
        );
        ip("rule del pref 100");
        events_until(
            &mut m,
            |e| matches!(e, RouteEvent::Rule { rule, is_removed: true } if uses(rule, 1000)),
        );
        ip("addr del 10.0.0.1/24 dev sl-a");
        events_until(&mut m, |e| matches!(e, RouteEvent::Address { is_removed: true, .. }) && is_it(e));
        ip("link del sl-a");
        events_until(&mut m, |e| matches!(e, RouteEvent::LinkGone { .. }));
    });
}

#[test]
fn a_monitor_that_missed_events_reads_everything_again() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        ip("addr add 10.0.0.1/24 dev sl-a");
        let mut m = RouteMonitor::with_buffer(2048).unwrap();
        events_until(&mut m, |e| *e == RouteEvent::Complete);
        for i in 0..100 {
            ip(&format!("route add 10.9.{i}.0/24 dev sl-a"));
        }
        let all = events_until(&mut m, |e| *e == RouteEvent::Complete);
        assert_eq!(m.overruns(), 1);
        let begin = all.iter().position(|e| *e == RouteEvent::Begin).unwrap();
        let after = |dst: &str| all[begin..].iter().any(|e| to(e, dst).is_some());
        assert!((0..100).all(|i| after(&format!("10.9.{i}.0"))));
        assert!(!m.is_dumping());
        // The kernel drops events without an error until those that wait are read.
        ip("route add 10.10.0.0/24 dev sl-a");
        events_until(&mut m, |e| to(e, "10.10.0.0").is_some());
        assert_eq!(m.overruns(), 1);
    });
}
