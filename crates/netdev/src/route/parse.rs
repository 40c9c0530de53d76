//! Parsing of messages about routes, rules and addresses (`linux/rtnetlink.h`, `linux/fib_rules.h`,
//! `linux/if_addr.h`). All reads are bounds-checked; a message of another form is no event.

use super::{KernelRoute, KernelRule, RouteChange, RouteEvent};
use crate::link::wire::{Message, attributes, field, link_of, messages};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `struct rtmsg` and `struct fib_rule_hdr`.
pub(super) const ROUTE_HEADER_BYTES: usize = 12;
/// `struct ifaddrmsg`.
pub(super) const ADDRESS_HEADER_BYTES: usize = 8;
const NEXT_HOP_BYTES: usize = 8;

const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;

/// Attributes of routes.
mod rta {
    pub(super) const DST: u16 = 1;
    pub(super) const OIF: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const PRIORITY: u16 = 6;
    pub(super) const PREFSRC: u16 = 7;
    pub(super) const MULTIPATH: u16 = 9;
    pub(super) const TABLE: u16 = 15;
    pub(super) const MARK: u16 = 16;
    pub(super) const VIA: u16 = 18;
    pub(super) const NH_ID: u16 = 30;
}

/// Attributes of rules.
mod fra {
    pub(super) const SRC: u16 = 2;
    pub(super) const PRIORITY: u16 = 6;
    pub(super) const FLOW: u16 = 11;
    pub(super) const SUPPRESS_IFGROUP: u16 = 13;
    pub(super) const SUPPRESS_PREFIXLEN: u16 = 14;
    pub(super) const TABLE: u16 = 15;
    pub(super) const PAD: u16 = 18;
    pub(super) const PROTOCOL: u16 = 21;
    /// Action of a rule: use its table.
    pub(super) const TO_TABLE: u8 = 1;
    /// Flag of a rule.
    pub(super) const INVERT: u32 = 2;
}

/// The events in a datagram.
pub(crate) fn events_of(bytes: &[u8]) -> Vec<RouteEvent> {
    messages(bytes).filter_map(|m| event_of(&m)).collect()
}

/// The event in a message.
pub(super) fn event_of(m: &Message) -> Option<RouteEvent> {
    match m.kind {
        libc::RTM_NEWLINK => link_of(m).map(|(info, _)| RouteEvent::Link(info)),
        libc::RTM_DELLINK => link_of(m).map(|(info, _)| RouteEvent::LinkGone { ifindex: info.ifindex }),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => address(m),
        libc::RTM_NEWRULE | libc::RTM_DELRULE => {
            Some(RouteEvent::Rule { rule: rule(&m.body)?, is_removed: m.kind == libc::RTM_DELRULE })
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            Some(RouteEvent::Route { route: route(&m.body)?, change: change_of(m) })
        }
        _ => None,
    }
}

fn change_of(m: &Message) -> RouteChange {
    let has = |flag: libc::c_int| m.flags & flag as u16 != 0;
    match m.kind {
        libc::RTM_DELROUTE => RouteChange::Removed,
        _ if has(libc::NLM_F_REPLACE) => RouteChange::Replaced,
        // Messages of a dump have neither flag.
        _ if has(libc::NLM_F_CREATE) && !has(libc::NLM_F_APPEND) => RouteChange::Prepended,
        _ => RouteChange::Appended,
    }
}

fn number(value: &[u8]) -> Option<u32> {
    field(value, 0).map(u32::from_ne_bytes)
}

/// An address of a family.
fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => field(value, 0).map(|b: [u8; 4]| Ipv4Addr::from(b).into()),
        AF_INET6 => field(value, 0).map(|b: [u8; 16]| Ipv6Addr::from(b).into()),
        _ => None,
    }
}

/// Bits of an address, and the address of all zeros.
fn family_of(family: u8) -> Option<(u8, IpAddr)> {
    match family {
        AF_INET => Some((32, Ipv4Addr::UNSPECIFIED.into())),
        AF_INET6 => Some((128, Ipv6Addr::UNSPECIFIED.into())),
        _ => None,
    }
}

fn address(m: &Message) -> Option<RouteEvent> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let header: [u8; ADDRESS_HEADER_BYTES] = field(&m.body, 0)?;
    let [family, len, ..] = header;
    let ifindex = u32::from_ne_bytes(field(&header, 4)?);
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(m.body.get(ADDRESS_HEADER_BYTES..)?) {
        match kind {
            LOCAL => local = ip(family, value),
            // The peer's, on a link with two ends.
            ADDRESS => other = ip(family, value),
            _ => {}
        }
    }
    let (width, _) = family_of(family)?;
    let address = local.or(other)?;
    let is_removed = m.kind == libc::RTM_DELADDR;
    (len <= width).then_some(RouteEvent::Address { ifindex, address, len, is_removed })
}

/// A rule that selects by source address only, and uses a table.
fn rule(body: &[u8]) -> Option<KernelRule> {
    let header: [u8; ROUTE_HEADER_BYTES] = field(body, 0)?;
    let [family, dst_len, src_len, tos, table, _, _, action, ..] = header;
    let flags = number(&header[8..])?;
    let (width, all) = family_of(family)?;
    if action != fra::TO_TABLE || dst_len != 0 || tos != 0 || src_len > width {
        return None;
    }
    let mut rule = KernelRule {
        priority: 0,
        is_ipv4: family == AF_INET,
        from: (src_len > 0).then_some((all, src_len)),
        invert: flags & fra::INVERT != 0,
        table: table.into(),
    };
    for (kind, value) in attributes(body.get(ROUTE_HEADER_BYTES..)?) {
        match kind {
            fra::SRC => rule.from = Some((ip(family, value)?, src_len)),
            fra::PRIORITY => rule.priority = number(value)?,
            fra::TABLE => rule.table = number(value)?,
            fra::SUPPRESS_IFGROUP | fra::SUPPRESS_PREFIXLEN if number(value)? == u32::MAX => {}
            fra::PROTOCOL | fra::FLOW | fra::PAD => {}
            // It selects by something else too.
            _ => return None,
        }
    }
    Some(rule)
}

/// The route of a message; `None` for one of another type.
fn route(body: &[u8]) -> Option<KernelRoute> {
    let header: [u8; ROUTE_HEADER_BYTES] = field(body, 0)?;
    let [family, len, src_len, tos, table, _, scope, kind, ..] = header;
    let flags = number(&header[8..])?;
    let (width, all) = family_of(family)?;
    let is_local = kind == libc::RTN_LOCAL;
    let is_usable = is_local || kind == libc::RTN_UNICAST;
    let is_cloned = flags & libc::RTM_F_CLONED != 0;
    if !is_usable || is_cloned || scope == libc::RT_SCOPE_NOWHERE || tos != 0 || src_len != 0 || len > width {
        return None;
    }
    let mut route = KernelRoute {
        table: table.into(),
        is_local,
        dst: all,
        len,
        ifindex: 0,
        gateway: None,
        source: None,
        mark: 0,
        metric: 0,
        is_partial: false,
    };
    for (kind, value) in attributes(body.get(ROUTE_HEADER_BYTES..)?) {
        match kind {
            rta::DST => route.dst = ip(family, value)?,
            rta::PREFSRC => route.source = Some(ip(family, value)?),
            rta::TABLE => route.table = number(value)?,
            rta::PRIORITY => route.metric = number(value)?,
            rta::MARK => route.mark = number(value)?,
            rta::MULTIPATH => {
                route.is_partial = true;
                first_next_hop(family, value, &mut route)?;
            }
            rta::NH_ID => route.is_partial = true,
            _ => next_hop(family, kind, value, &mut route)?,
        }
    }
    (route.ifindex != 0).then_some(route)
}

/// An attribute of a next hop.
fn next_hop(family: u8, kind: u16, value: &[u8], route: &mut KernelRoute) -> Option<()> {
    match kind {
        rta::OIF => route.ifindex = number(value)?,
        rta::GATEWAY => route.gateway = Some(ip(family, value)?),
        // Of another family than the destination: `struct rtvia`.
        rta::VIA => route.gateway = Some(ip(u16::from_ne_bytes(field(value, 0)?) as u8, value.get(2..)?)?),
        _ => {}
    }
    Some(())
}

/// The first of several next hops: `struct rtnexthop` and its attributes.
fn first_next_hop(family: u8, value: &[u8], route: &mut KernelRoute) -> Option<()> {
    let len = usize::from(u16::from_ne_bytes(field(value, 0)?));
    route.ifindex = number(value.get(4..)?)?;
    for (kind, value) in attributes(value.get(NEXT_HOP_BYTES..len)?).filter(|(kind, _)| *kind != rta::OIF) {
        next_hop(family, kind, value, route)?;
    }
    Some(())
}
