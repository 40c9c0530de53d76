//! Parsing of messages about routes, rules, addresses and next-hop objects (`linux/rtnetlink.h`, `linux/fib_rules.h`,
//! `linux/if_addr.h`, `linux/nexthop.h`). All reads are bounds-checked; a message of another form is no event.

use super::{
    KernelAction, KernelAddress, KernelHop, KernelObject, KernelRoute, KernelRule, RouteChange, RouteEvent,
    RouteType,
};
use crate::link::wire::{Message, attributes, field, link_of, messages};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `struct rtmsg` and `struct fib_rule_hdr`.
pub(super) const ROUTE_HEADER_BYTES: usize = 12;
/// `struct ifaddrmsg`.
pub(super) const ADDRESS_HEADER_BYTES: usize = 8;
/// `struct nhmsg`.
pub(super) const OBJECT_HEADER_BYTES: usize = 8;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
pub(super) const RTM_GETNEXTHOP: u16 = 106;
const NEXT_HOP_BYTES: usize = 8;
/// Flag of a next hop that is not used.
const RTNH_F_DEAD: u32 = 1;

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

/// Attributes of next-hop objects.
mod nha {
    pub(super) const ID: u16 = 1;
    pub(super) const GROUP: u16 = 2;
    pub(super) const BLACKHOLE: u16 = 4;
    pub(super) const OIF: u16 = 5;
    pub(super) const GATEWAY: u16 = 6;
}

/// Attributes of rules.
mod fra {
    pub(super) const DST: u16 = 1;
    pub(super) const SRC: u16 = 2;
    pub(super) const IIFNAME: u16 = 3;
    pub(super) const GOTO: u16 = 4;
    pub(super) const PRIORITY: u16 = 6;
    pub(super) const FWMARK: u16 = 10;
    pub(super) const FLOW: u16 = 11;
    pub(super) const SUPPRESS_IFGROUP: u16 = 13;
    pub(super) const SUPPRESS_PREFIXLEN: u16 = 14;
    pub(super) const TABLE: u16 = 15;
    pub(super) const FWMASK: u16 = 16;
    pub(super) const PAD: u16 = 18;
    pub(super) const PROTOCOL: u16 = 21;
    /// Flag of a rule.
    pub(super) const INVERT: u32 = 2;
}

/// Actions of rules.
mod action {
    pub(super) const TO_TABLE: u8 = 1;
    pub(super) const GOTO: u8 = 2;
    pub(super) const NOP: u8 = 3;
    pub(super) const BLACKHOLE: u8 = 6;
    pub(super) const UNREACHABLE: u8 = 7;
    pub(super) const PROHIBIT: u8 = 8;
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
        RTM_NEWNEXTHOP => object(m).map(|(id, object)| RouteEvent::Object { id, object: Some(object) }),
        RTM_DELNEXTHOP => object_id(m).map(|id| RouteEvent::Object { id, object: None }),
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
    const FLAGS: u16 = 8;
    let header: [u8; ADDRESS_HEADER_BYTES] = field(&m.body, 0)?;
    let [family, len, flags, scope, ..] = header;
    let mut flags = u32::from(flags);
    let ifindex = u32::from_ne_bytes(field(&header, 4)?);
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(m.body.get(ADDRESS_HEADER_BYTES..)?) {
        match kind {
            LOCAL => local = ip(family, value),
            // The peer's, on a link with two ends.
            ADDRESS => other = ip(family, value),
            FLAGS => flags = number(value)?,
            _ => {}
        }
    }
    let (width, _) = family_of(family)?;
    let address = local.or(other)?;
    let is_tentative = flags & libc::IFA_F_TENTATIVE != 0 && flags & libc::IFA_F_OPTIMISTIC == 0;
    let is_unused = match address {
        IpAddr::V4(_) => flags & libc::IFA_F_SECONDARY != 0,
        IpAddr::V6(_) => is_tentative || flags & libc::IFA_F_DADFAILED != 0,
    };
    let is_deprecated = address.is_ipv6() && flags & libc::IFA_F_DEPRECATED != 0;
    let address = KernelAddress { ifindex, address, len, scope, is_unused, is_deprecated };
    let is_removed = m.kind == libc::RTM_DELADDR;
    (len <= width).then_some(RouteEvent::Address { address, is_removed })
}

/// The number of a next-hop object.
fn object_id(m: &Message) -> Option<u32> {
    let mut all = attributes(m.body.get(OBJECT_HEADER_BYTES..)?);
    all.find(|(kind, _)| *kind == nha::ID).and_then(|(_, value)| number(value))
}

/// A next-hop object and its number.
fn object(m: &Message) -> Option<(u32, KernelObject)> {
    /// `struct nexthop_grp`.
    const MEMBER_BYTES: usize = 8;
    let header: [u8; OBJECT_HEADER_BYTES] = field(&m.body, 0)?;
    let is_dead = number(&header[4..])? & RTNH_F_DEAD != 0;
    let mut hop = KernelHop { ifindex: 0, gateway: None, is_dead };
    let mut other = None;
    for (kind, value) in attributes(m.body.get(OBJECT_HEADER_BYTES..)?) {
        match kind {
            nha::OIF => hop.ifindex = number(value)?,
            nha::GATEWAY => hop.gateway = Some(ip(header[0], value)?),
            nha::BLACKHOLE => other = Some(KernelObject::Blackhole),
            nha::GROUP => {
                let members = value.chunks_exact(MEMBER_BYTES).filter_map(number);
                other = Some(KernelObject::Group(members.collect()));
            }
            _ => {}
        }
    }
    Some((object_id(m)?, other.unwrap_or(KernelObject::Hop(hop))))
}

/// A rule. Without the ones that select by group of the device, which nothing here knows.
fn rule(body: &[u8]) -> Option<KernelRule> {
    let header: [u8; ROUTE_HEADER_BYTES] = field(body, 0)?;
    let [family, dst_len, src_len, tos, table, _, _, action, ..] = header;
    let flags = number(&header[8..])?;
    let (width, all) = family_of(family)?;
    if dst_len > width || src_len > width {
        return None;
    }
    let mut rule = KernelRule {
        priority: 0,
        is_ipv4: family == AF_INET,
        from: (src_len > 0).then_some((all, src_len)),
        to: (dst_len > 0).then_some((all, dst_len)),
        mark: (0, 0),
        is_foreign: tos != 0,
        invert: flags & fra::INVERT != 0,
        action: KernelAction::Nop,
    };
    let (mut table, mut target, mut suppress_len, mut mask) = (u32::from(table), None, None, None);
    for (kind, value) in attributes(body.get(ROUTE_HEADER_BYTES..)?) {
        match kind {
            fra::SRC => rule.from = Some((ip(family, value)?, src_len)),
            fra::DST => rule.to = Some((ip(family, value)?, dst_len)),
            fra::PRIORITY => rule.priority = number(value)?,
            fra::TABLE => table = number(value)?,
            fra::GOTO => target = Some(number(value)?),
            fra::FWMARK => rule.mark.0 = number(value)?,
            fra::FWMASK => mask = Some(number(value)?),
            // -1 is none.
            fra::SUPPRESS_PREFIXLEN => suppress_len = u8::try_from(number(value)?).ok(),
            fra::IIFNAME if value == b"lo\0" => {}
            fra::SUPPRESS_IFGROUP | fra::PROTOCOL | fra::FLOW | fra::PAD => {}
            _ => rule.is_foreign = true,
        }
    }
    rule.mark.1 = mask.unwrap_or(if rule.mark.0 == 0 { 0 } else { u32::MAX });
    rule.action = match action {
        action::TO_TABLE => KernelAction::Table { table, suppress_len },
        action::GOTO => target.map_or(KernelAction::Nop, KernelAction::Goto),
        action::NOP => KernelAction::Nop,
        action::BLACKHOLE => KernelAction::Refuse(RouteType::Blackhole),
        action::UNREACHABLE => KernelAction::Refuse(RouteType::Unreachable),
        action::PROHIBIT => KernelAction::Refuse(RouteType::Prohibit),
        _ => return None,
    };
    Some(rule)
}

fn type_of(kind: u8) -> Option<RouteType> {
    Some(match kind {
        libc::RTN_UNICAST => RouteType::Unicast,
        libc::RTN_LOCAL => RouteType::Local,
        libc::RTN_BLACKHOLE => RouteType::Blackhole,
        libc::RTN_UNREACHABLE => RouteType::Unreachable,
        libc::RTN_PROHIBIT => RouteType::Prohibit,
        libc::RTN_THROW => RouteType::Throw,
        _ => return None,
    })
}

/// The route of a message; `None` for one of another type.
fn route(body: &[u8]) -> Option<KernelRoute> {
    let header: [u8; ROUTE_HEADER_BYTES] = field(body, 0)?;
    let [family, len, src_len, tos, table, _, scope, kind, ..] = header;
    let flags = number(&header[8..])?;
    let (width, all) = family_of(family)?;
    let kind = type_of(kind)?;
    let is_cloned = flags & libc::RTM_F_CLONED != 0;
    if is_cloned || tos != 0 || src_len != 0 || len > width {
        return None;
    }
    let mut route = KernelRoute {
        table: table.into(),
        kind,
        dst: all,
        len,
        hops: Vec::new(),
        object: None,
        source: None,
        mark: 0,
        metric: 0,
        scope,
    };
    let mut hop = KernelHop { ifindex: 0, gateway: None, is_dead: flags & RTNH_F_DEAD != 0 };
    for (kind, value) in attributes(body.get(ROUTE_HEADER_BYTES..)?) {
        match kind {
            rta::DST => route.dst = ip(family, value)?,
            rta::PREFSRC => route.source = Some(ip(family, value)?),
            rta::TABLE => route.table = number(value)?,
            rta::PRIORITY => route.metric = number(value)?,
            rta::MARK => route.mark = number(value)?,
            rta::MULTIPATH => route.hops = next_hops(family, value)?,
            rta::NH_ID => route.object = Some(number(value)?),
            _ => next_hop(family, kind, value, &mut hop)?,
        }
    }
    if !matches!(kind, RouteType::Unicast | RouteType::Local) {
        // IPv6 ones name loopback.
        route.hops.clear();
        return Some(route);
    }
    if hop.ifindex != 0 && route.hops.is_empty() {
        route.hops.push(hop);
    }
    (!route.hops.is_empty() || route.object.is_some()).then_some(route)
}

/// An attribute of a next hop.
fn next_hop(family: u8, kind: u16, value: &[u8], hop: &mut KernelHop) -> Option<()> {
    match kind {
        rta::OIF => hop.ifindex = number(value)?,
        rta::GATEWAY => hop.gateway = Some(ip(family, value)?),
        // A gateway of another family than the destination: `struct rtvia`.
        rta::VIA => hop.gateway = Some(ip(u16::from_ne_bytes(field(value, 0)?) as u8, value.get(2..)?)?),
        _ => {}
    }
    Some(())
}

/// Several next hops: each is a `struct rtnexthop` and its attributes, aligned to four bytes.
fn next_hops(family: u8, mut value: &[u8]) -> Option<Vec<KernelHop>> {
    let mut hops = Vec::new();
    while !value.is_empty() {
        let len = usize::from(u16::from_ne_bytes(field(value, 0)?));
        let flags = u32::from(*value.get(2)?);
        let ifindex = number(value.get(4..)?)?;
        let mut hop = KernelHop { ifindex, gateway: None, is_dead: flags & RTNH_F_DEAD != 0 };
        for (kind, value) in attributes(value.get(NEXT_HOP_BYTES..len)?).filter(|(kind, _)| *kind != rta::OIF)
        {
            next_hop(family, kind, value, &mut hop)?;
        }
        hops.push(hop);
        value = value.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(hops)
}
