//! Entry points for fuzzing: any bytes in, no panic out.

use crate::link::{counters_of, links_of};
use crate::route::{RouteEvent, events_of};

/// Any bytes as rtnetlink messages about links.
pub fn link_messages(bytes: &[u8]) {
    for link in links_of(bytes) {
        // Parsed names end at a zero byte.
        assert!(!link.name.contains('\0') && !link.kind.contains('\0'));
    }
    for (ifindex, _) in counters_of(bytes) {
        assert!(bytes.windows(4).any(|b| b == ifindex.to_ne_bytes()));
    }
}

/// Any bytes as rtnetlink messages about routes, rules, addresses and next-hop objects.
pub fn route_messages(bytes: &[u8]) {
    for event in events_of(bytes) {
        let width = |ip: std::net::IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        match event {
            RouteEvent::Route { route, .. } => {
                assert!(route.len <= width(route.dst));
                assert!(route.source.is_none_or(|ip| ip.is_ipv4() == route.dst.is_ipv4()));
            }
            RouteEvent::Address { address, .. } => assert!(address.len <= width(address.address)),
            RouteEvent::Rule { rule, .. } => {
                assert!([rule.from, rule.to].into_iter().flatten().all(|(ip, len)| len <= width(ip)));
            }
            _ => {}
        }
    }
}

/// Any bytes as rtnetlink messages about disciplines and classes.
pub fn tc_messages(bytes: &[u8]) {
    for [hfsc, _] in crate::tc::classes_of(bytes) {
        assert!(hfsc.min_rate.max(hfsc.max_rate) <= u32::MAX.into() && hfsc.burst == 0);
    }
}
