//! Routes, routing policy rules and addresses of the kernel (rtnetlink(7)).
//!
//! A [`RouteMonitor`] reads all of them, and then their changes, without blocking: its owner polls it, and each poll
//! reads a bounded number of bytes. If the kernel drops events because they are not read fast enough, or a dump was
//! interrupted by changes, the monitor reads everything again.
//!
//! Only unicast and local routes of IPv4 and IPv6 are reported. Not here: the meaning of a route, and the tables of the
//! owner (`sluiced::routing`).

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

/// A route of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRoute {
    /// Its table.
    pub table: u32,
    /// To an address of this machine (`RTN_LOCAL`).
    pub is_local: bool,
    /// Its network.
    pub dst: IpAddr,
    /// Bits of its network.
    pub len: u8,
    /// Index of the output device.
    pub ifindex: u32,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Only for packets of this mark.
    pub mark: u32,
    /// Priority: the lowest applies.
    pub metric: u32,
    /// It has more next hops than this one, or a next hop object: single changes are not reported as such.
    pub is_partial: bool,
}

/// A rule of the routing policy that selects by source address only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRule {
    /// Lower ones apply first.
    pub priority: u32,
    /// For IPv4, else for IPv6.
    pub is_ipv4: bool,
    /// Source addresses and their common bits; `None` for all.
    pub from: Option<(IpAddr, u8)>,
    /// Matches all other source addresses instead.
    pub invert: bool,
    /// The table.
    pub table: u32,
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
    /// An address of a device.
    Address {
        /// Index of the device.
        ifindex: u32,
        /// The address.
        address: IpAddr,
        /// Bits of its network.
        len: u8,
        /// Whether it was removed.
        is_removed: bool,
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
        /// What happened to it.
        change: RouteChange,
    },
}
