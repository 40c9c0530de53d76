//! Lookups: rules in their order, and in each table the longest network, as in Linux.
//!
//! A route whose next hops are all dead is passed over. A route that refuses packets ends the lookup, and one of type
//! `throw` the table. The first next hop in use applies.
//!
//! Unlike Linux, the tables `local` and `main` are never one: a route of the former applies before a longer one of the
//! latter.

use crate::hops::{HopObject, Hops, NextHop};
use crate::prefix::{Prefix, bits, width};
use crate::routes::{Entry, Origin, Query, RouteKind, Routes};
use crate::rules::{RuleAction, TABLE_LOCAL};
use crate::sources;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Output device: a bridge, or a port of one.
    pub device: Arc<str>,
    /// Next hop; `None` if the destination itself is on the link. May be of IPv6 for a destination of IPv4.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub source: IpAddr,
    /// Source address of requests for the next hop's Ethernet address, of its family.
    pub asks_from: IpAddr,
    /// The destination is an address of this machine.
    pub is_local: bool,
}

/// Reason why there is no next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoute {
    /// No route covers the destination.
    Missing,
    /// The source is no address of this machine, or of another family than the destination.
    ForeignSource,
    /// A route refuses its packets.
    Route {
        /// Its table.
        table: u32,
        /// Its network.
        prefix: Prefix,
        /// Its type.
        kind: RouteKind,
    },
    /// A rule does.
    Rule {
        /// Its priority.
        priority: u32,
        /// Its reason.
        kind: RouteKind,
    },
    /// This machine has no source address for a route.
    NoSource {
        /// Its table.
        table: u32,
        /// Its network.
        prefix: Prefix,
    },
}

/// Reason why a route that covers the destination was left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The links of all its next hops are down.
    Dead,
    /// Its next-hop object does not exist.
    NoObject,
    /// It is of type `throw`.
    Throw,
    /// The rule of this priority leaves out short networks.
    Suppressed(u32),
}

/// A route that covers the destination and was left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Its table.
    pub table: u32,
    /// Its network.
    pub prefix: Prefix,
    /// The reason.
    pub why: Why,
}

/// A next hop in use, and source addresses, if there are any.
pub(crate) struct Chosen {
    pub(crate) device: Arc<str>,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) source: Option<IpAddr>,
    /// With a gateway of another family.
    asks_from: Option<IpAddr>,
}

/// Why an entry has no next hop.
pub(crate) enum Unusable {
    LeftOut(Why),
    Refuses(RouteKind),
}

/// A table, and how a rule uses it.
struct Search {
    table: u32,
    priority: u32,
    suppress_len: Option<u8>,
}

impl Routes {
    /// The next hop of packets.
    ///
    /// # Errors
    /// There is none, for the reason given.
    pub fn lookup(&self, query: &Query) -> Result<Hop, NoRoute> {
        self.search(query, &mut |_| {})
    }

    /// The next hop of packets, and the routes that were left out, in order.
    pub fn explain(&self, query: &Query) -> (Result<Hop, NoRoute>, Vec<LeftOut>) {
        let mut left_out = Vec::new();
        let found = self.search(query, &mut |route| left_out.push(route));
        (found, left_out)
    }

    fn search(&self, query: &Query, left_out: &mut dyn FnMut(LeftOut)) -> Result<Hop, NoRoute> {
        let dst = query.dst.to_canonical();
        let src = query.src.map(|src| src.to_canonical());
        let query = Query { dst, src, ..*query };
        if let Some(src) = src {
            let own = Query { dst: src, ..query };
            let local = Search { table: TABLE_LOCAL, priority: 0, suppress_len: None };
            let is_own = src.is_ipv4() == dst.is_ipv4()
                && self.in_table(&local, &own, &mut |_| {})?.is_some_and(|hop| hop.is_local);
            if !is_own {
                return Err(NoRoute::ForeignSource);
            }
        }
        let from = src.unwrap_or(unspecified(dst));
        let mut rules = self.rules.iter();
        while let Some(rule) = rules.next() {
            if !rule.matches(query.mark, from, dst) {
                continue;
            }
            match rule.action {
                RuleAction::Nop => {}
                RuleAction::Goto(priority) => {
                    let rest = rules.as_slice();
                    let target =
                        rest.iter().position(|r| (r.priority, r.is_ipv4) == (priority, rule.is_ipv4));
                    // Without its target the rule does nothing.
                    rules = rest[target.unwrap_or(0)..].iter();
                }
                RuleAction::Refuse(kind) => return Err(NoRoute::Rule { priority: rule.priority, kind }),
                RuleAction::Table { table, suppress_len } => {
                    let search = Search { table, priority: rule.priority, suppress_len };
                    if let Some(hop) = self.in_table(&search, &query, left_out)? {
                        return Ok(hop);
                    }
                }
            }
        }
        Err(NoRoute::Missing)
    }

    /// The next hop by one table; `None`: the next rule applies.
    fn in_table(
        &self,
        search: &Search,
        query: &Query,
        left_out: &mut dyn FnMut(LeftOut),
    ) -> Result<Option<Hop>, NoRoute> {
        let (table, dst) = (search.table, query.dst);
        let Some(tries) = self.tables.get(&(table, query.mark)) else { return Ok(None) };
        let mut found: Vec<(u8, u8, u128, &Entry)> = Vec::new();
        tries.family(dst.is_ipv4()).covering(bits(dst), width(dst), |bits, len, slot| {
            found.extend(slot.iter().map(|e| (len + e.advantage(), len, bits, e)));
        });
        // Stable: of one network the best stays first.
        found.sort_by_key(|(priority, len, ..)| Reverse((*priority, *len)));
        for (_, len, bits, entry) in found {
            let prefix = Prefix::of_bits(bits, len, dst.is_ipv4());
            let hop = match self.first_hop(entry, dst) {
                Ok(hop) => hop,
                Err(Unusable::Refuses(kind)) => return Err(NoRoute::Route { table, prefix, kind }),
                Err(Unusable::LeftOut(why)) => {
                    left_out(LeftOut { table, prefix, why });
                    if why == Why::Throw {
                        return Ok(None);
                    }
                    continue;
                }
            };
            if search.suppress_len.is_some_and(|suppressed| len <= suppressed) {
                left_out(LeftOut { table, prefix, why: Why::Suppressed(search.priority) });
                return Ok(None);
            }
            let source = query.src.or(hop.source).ok_or(NoRoute::NoSource { table, prefix })?;
            return Ok(Some(Hop {
                device: hop.device,
                gateway: hop.gateway,
                source,
                asks_from: hop.asks_from.unwrap_or(source),
                is_local: entry.kind == RouteKind::Local,
            }));
        }
        Ok(None)
    }

    /// The first next hop in use of a route to a destination, with source addresses.
    pub(crate) fn first_hop(&self, entry: &Entry, dst: IpAddr) -> Result<Chosen, Unusable> {
        match entry.kind {
            RouteKind::Throw => return Err(Unusable::LeftOut(Why::Throw)),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
                return Err(Unusable::Refuses(entry.kind));
            }
            RouteKind::Unicast | RouteKind::Local => {}
        }
        let NextHop { device, gateway, .. } = self.hop_in_use(&entry.hops)?;
        let source = match (entry.source, entry.kind) {
            (None, RouteKind::Local) => Some(dst),
            (None, _) if entry.origin == Origin::Cached => {
                self.source_by_kernel(device, *gateway, dst, entry.scope)
            }
            (given, _) => given,
        };
        let other_family = gateway.filter(|next| next.is_ipv4() != dst.is_ipv4());
        let asks_from = other_family
            .map(|next| self.source_by_kernel(device, None, next, entry.scope).unwrap_or(unspecified(next)));
        Ok(Chosen { device: device.clone(), gateway: *gateway, source, asks_from })
    }

    fn source_by_kernel(
        &self,
        device: &str,
        gateway: Option<IpAddr>,
        dst: IpAddr,
        scope: u8,
    ) -> Option<IpAddr> {
        let own = self.devices.get(device).map_or(&[][..], |d| &*d.addresses);
        match dst {
            IpAddr::V4(_) => sources::of_ipv4(own, &self.borrowable, gateway, scope),
            IpAddr::V6(dst) => sources::of_ipv6(own, &self.borrowable, dst),
        }
    }

    fn hop_in_use<'a>(&'a self, hops: &'a Hops) -> Result<&'a NextHop, Unusable> {
        let Hops::Object(id) = hops else {
            return hops.own().iter().find(|hop| !hop.is_dead).ok_or(Unusable::LeftOut(Why::Dead));
        };
        let missing = || Unusable::LeftOut(Why::NoObject);
        let in_use = |object: &'a HopObject| match object {
            HopObject::Hop(hop) if !hop.is_dead => Ok(hop),
            HopObject::Hop(_) => Err(Unusable::LeftOut(Why::Dead)),
            HopObject::Blackhole => Err(Unusable::Refuses(RouteKind::Blackhole)),
            // A group has no groups.
            HopObject::Group(_) => Err(missing()),
        };
        match self.objects.get(id).ok_or_else(missing)? {
            HopObject::Group(members) => {
                let objects = members.iter().filter_map(|id| self.objects.get(id));
                let mut result = Err(missing());
                for object in objects {
                    result = in_use(object);
                    if result.is_ok() {
                        break;
                    }
                }
                result
            }
            object => in_use(object),
        }
    }
}

/// The address of all zeros, of the same family.
fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
