//! Routes, next-hop objects, routing policy rules and addresses of the kernel (rtnetlink(7)).
//!
//! A [`RouteMonitor`] reads all of them, and then their changes, without blocking: its owner polls it, and each poll
//! reads a bounded number of bytes. If the kernel drops events because they are not read fast enough, or a dump was
//! interrupted by changes, the monitor reads everything again.
//!
//! Routes of IPv4 and IPv6 are reported, except those of broadcast, anycast and multicast, of a type of service, and of a
//! source. Not here: the meaning of a route, and the tables of the owner (`sluiced::routing`).

mod monitor;
mod parse;
#[cfg(test)]
mod tests;

use crate::link::LinkInfo;
use std::net::IpAddr;

pub use monitor::{EVENT_BYTES, Polled, RouteMonitor};
pub(crate) use parse::events_of;

/// Type of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteChange {
    /// Added before others of the same network and metric.
    Prepended,
    /// Added after them; in a dump each one.
    Appended,
    /// Added instead of the first of them.
    Replaced,
    /// Removed.
    Removed,
}

/// Type of a route (`RTN_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of ip-route(8)")]
pub enum RouteType {
    Unicast,
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
    Throw,
}

/// A next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelHop {
    /// Index of the output device.
    pub ifindex: u32,
    /// Next hop; `None` if the destination is on the link. May be of IPv6 for a route of IPv4.
    pub gateway: Option<IpAddr>,
    /// Not used: its link is down.
    pub is_dead: bool,
}

/// A route of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRoute {
    /// Its table.
    pub table: u32,
    /// Its type.
    pub kind: RouteType,
    /// Its network.
    pub dst: IpAddr,
    /// Bits of its network.
    pub len: u8,
    /// Its next hops, in the kernel's order.
    pub hops: Vec<KernelHop>,
    /// The next-hop object whose next hops it uses.
    pub object: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Only for packets of this mark.
    pub mark: u32,
    /// Priority: the lowest applies.
    pub metric: u32,
    /// Reach of its destinations (`rt_scope_t`).
    pub scope: u8,
}

/// A next-hop object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelObject {
    /// A next hop.
    Hop(KernelHop),
    /// Discards packets.
    Blackhole,
    /// The objects of these numbers.
    Group(Vec<u32>),
}

/// An address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelAddress {
    /// Index of the device.
    pub ifindex: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub len: u8,
    /// Its reach (`rt_scope_t`).
    pub scope: u8,
    /// Not used as a source by itself: of IPv4 a secondary one, of IPv6 one that is tentative or a duplicate.
    pub is_unused: bool,
    /// Others are preferred.
    pub is_deprecated: bool,
}

/// Action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelAction {
    /// Use a table.
    Table {
        /// The table.
        table: u32,
        /// Its routes of networks of this length or shorter do not apply.
        suppress_len: Option<u8>,
    },
    /// Go on at the rule of this priority.
    Goto(u32),
    /// Go on to the next rule.
    Nop,
    /// Refuse, as a route of this type.
    Refuse(RouteType),
}

/// A rule of the routing policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRule {
    /// Lower ones apply first.
    pub priority: u32,
    /// For IPv4, else for IPv6.
    pub is_ipv4: bool,
    /// Source addresses and their common bits; `None` for all.
    pub from: Option<(IpAddr, u8)>,
    /// Prefix of destinations.
    pub to: Option<(IpAddr, u8)>,
    /// Value and mask of the mark; the mask 0 for all.
    pub mark: (u32, u32),
    /// It selects by something that packets of this machine without a socket lack: an input device other than loopback, an
    /// output device, a type of service, a user, or transport ports.
    pub is_foreign: bool,
    /// Matches all others instead.
    pub invert: bool,
    /// Its action.
    pub action: KernelAction,
}

/// An event, or an object of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteEvent {
    /// A dump begins: forget all that is known. All objects follow.
    Begin,
    /// The dump is complete.
    Complete,
    /// A new or changed link.
    Link(LinkInfo),
    /// A deleted link.
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// A new, changed or removed address.
    Address {
        /// The address.
        address: KernelAddress,
        /// Whether it was removed.
        is_removed: bool,
    },
    /// A new or changed next-hop object.
    Object {
        /// Its number.
        id: u32,
        /// The object; `None` if it was removed.
        object: Option<KernelObject>,
    },
    /// A rule.
    Rule {
        /// The rule.
        rule: KernelRule,
        /// Whether it was removed.
        is_removed: bool,
    },
    /// A route.
    Route {
        /// The route.
        route: KernelRoute,
        /// Its change.
        change: RouteChange,
    },
}
