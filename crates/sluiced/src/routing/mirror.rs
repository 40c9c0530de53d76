//! [`Mirror`]: links, addresses and rules of the kernel, and its routes as [`Routes`]. Pure: events in, changes out.
//!
//! A change of a single route or next-hop object is carried out at once. After changes that the kernel reports in part only
//! (links, addresses and next-hop objects take routes with them; rules use other tables) everything is read again.

use flow::MacAddr;
use netdev::link::LinkInfo;
use netdev::route::{
    KernelAction, KernelAddress, KernelHop, KernelObject, KernelRoute, KernelRule, RouteChange, RouteEvent,
    RouteType,
};
use routing::{
    Change, HOPS_MAX, HopObject, Hops, InterfaceAddress, NextHop, Origin, Prefix, Route, RouteKind,
    RoutePosition, Routes, Rule, RuleAction, is_standard_table,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum rules.
pub(super) const RULES_MAX: usize = 1024;
/// Maximum addresses of a device.
pub(super) const ADDRESSES_MAX: usize = 4096;

/// A link of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) name: Arc<str>,
    pub(super) mac: Option<MacAddr>,
    pub(super) is_loopback: bool,
    is_up: bool,
    has_carrier: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Mirror {
    links: HashMap<u32, Link>,
    indices: HashMap<Arc<str>, u32>,
    addresses: HashMap<u32, Vec<InterfaceAddress>>,
    rules: Vec<Rule>,
    rules_changed: bool,
    /// Rules and addresses beyond the limits, and routes.
    pub(super) refused: u64,
}

/// Consequences of an event.
#[derive(Default, Debug)]
pub(super) struct Effects {
    /// Changes of routes.
    pub(super) changes: Vec<Change>,
    /// Devices with other addresses.
    pub(super) devices: BTreeSet<Arc<str>>,
    /// Everything must be read again.
    pub(super) is_stale: bool,
}

impl Mirror {
    /// A link, its index, and its addresses in the kernel's order.
    pub(super) fn device(&self, name: &str) -> Option<(&Link, u32, &[InterfaceAddress])> {
        let index = self.indices.get(name)?;
        Some((self.links.get(index)?, *index, self.addresses.get(index).map_or(&[], Vec::as_slice)))
    }

    /// Names of all links.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.indices.keys()
    }

    /// Carries out an event of the kernel, or an object of a dump, which never is stale.
    pub(super) fn apply(&mut self, event: RouteEvent, routes: &mut Routes, effects: &mut Effects) {
        match event {
            RouteEvent::Begin | RouteEvent::Complete => self.settle_rules(routes),
            RouteEvent::Link(info) => self.link(&info, effects),
            RouteEvent::LinkGone { ifindex } => {
                self.addresses.remove(&ifindex);
                effects.is_stale = true;
                if let Some(link) = self.links.remove(&ifindex) {
                    self.indices.remove(&link.name);
                    effects.devices.insert(link.name);
                }
            }
            RouteEvent::Address { address, is_removed } => self.address(&address, is_removed, effects),
            RouteEvent::Object { id, object } => self.object(id, object, routes, effects),
            RouteEvent::Rule { rule, is_removed } => {
                effects.is_stale = true;
                if !is_removed && self.rules.len() < RULES_MAX {
                    self.rules.extend(rule_of(&rule));
                    self.rules_changed = true;
                } else if !is_removed {
                    self.refused += 1;
                }
            }
            RouteEvent::Route { route, change } => {
                self.settle_rules(routes);
                self.route(&route, change, routes, effects);
            }
        }
    }

    /// Rules precede routes in a dump, because they tell the tables in use.
    fn settle_rules(&mut self, routes: &mut Routes) {
        if std::mem::take(&mut self.rules_changed) {
            let _all_is_new = routes.set_rules(&self.rules);
        }
    }

    fn link(&mut self, info: &LinkInfo, effects: &mut Effects) {
        let link = Link {
            name: info.name.as_str().into(),
            mac: info.mac.map(MacAddr),
            is_loopback: info.loopback,
            is_up: info.admin_up,
            has_carrier: info.lower_up,
        };
        match self.links.get(&info.ifindex) {
            Some(old) if *old == link => return,
            Some(old) => {
                // The kernel removes routes, or takes their next hops out of use and back, without telling.
                let states = |link: &Link| (link.name.clone(), link.is_up, link.has_carrier);
                effects.is_stale |= states(old) != states(&link);
                self.indices.remove(&old.name);
                effects.devices.insert(old.name.clone());
            }
            None => {}
        }
        self.indices.insert(link.name.clone(), info.ifindex);
        effects.devices.insert(link.name.clone());
        self.links.insert(info.ifindex, link);
    }

    fn address(&mut self, event: &KernelAddress, is_removed: bool, effects: &mut Effects) {
        let KernelAddress { ifindex, address, len, scope, is_unused, is_deprecated } = *event;
        let own = InterfaceAddress { address, len, scope, is_unused, is_deprecated };
        let all = self.addresses.entry(ifindex).or_default();
        let known = all.iter().position(|a| (a.address, a.len) == (address, len));
        match known {
            Some(at) if is_removed => {
                all.remove(at);
                effects.is_stale = true;
            }
            None if is_removed => effects.is_stale = true,
            Some(at) if all[at] == own => return,
            // The kernel may have moved it.
            Some(at) => {
                all[at] = own;
                effects.is_stale = true;
            }
            None if all.len() >= ADDRESSES_MAX => {
                self.refused += 1;
                return;
            }
            None => all.push(own),
        }
        effects.devices.extend(self.links.get(&ifindex).map(|link| link.name.clone()));
    }

    fn object(&mut self, id: u32, object: Option<KernelObject>, routes: &mut Routes, effects: &mut Effects) {
        // Its routes leave with it, without telling.
        effects.is_stale |= object.is_none();
        let own = match object {
            Some(KernelObject::Hop(hop)) => self.hop(&hop).map(HopObject::Hop),
            Some(KernelObject::Blackhole) => Some(HopObject::Blackhole),
            Some(KernelObject::Group(mut members)) => {
                members.truncate(HOPS_MAX);
                Some(HopObject::Group(members.into()))
            }
            None => None,
        };
        effects.changes.extend(routes.set_object(id, own));
    }

    /// A next hop by a known link.
    fn hop(&self, hop: &KernelHop) -> Option<NextHop> {
        let device = self.links.get(&hop.ifindex)?.name.clone();
        Some(NextHop { device, gateway: hop.gateway, is_dead: hop.is_dead })
    }

    fn route(
        &mut self,
        route: &KernelRoute,
        change: RouteChange,
        routes: &mut Routes,
        effects: &mut Effects,
    ) {
        if !is_standard_table(route.table) && !routes.uses_table(route.table) {
            return;
        }
        let Some(own) = self.route_of(route) else { return };
        let place = match change {
            // One of IPv6 follows its equals.
            RouteChange::Prepended if route.dst.is_ipv6() => RoutePosition::Last,
            RouteChange::Prepended => RoutePosition::First,
            RouteChange::Appended => RoutePosition::Last,
            RouteChange::Replaced => {
                // Gateways select the replaced route of IPv6.
                effects.is_stale |= route.dst.is_ipv6() && routes.equals(&own) > 1;
                RoutePosition::Instead
            }
            RouteChange::Removed => {
                let removed = routes.remove_cached(&own);
                effects.is_stale |= removed.is_none();
                effects.changes.extend(removed);
                return;
            }
        };
        // Refusals are counted.
        effects.changes.extend(routes.add_cached(&own, place));
    }

    /// A route whose links are known.
    fn route_of(&self, route: &KernelRoute) -> Option<Route> {
        let hops = match route.object {
            Some(id) => Hops::Object(id),
            None => Hops::of(route.hops.iter().take(HOPS_MAX).map(|h| self.hop(h)).collect::<Option<_>>()?),
        };
        Some(Route {
            table: route.table,
            mark: route.mark,
            prefix: Prefix::new(route.dst, route.len)?,
            origin: Origin::Cached,
            kind: kind_of(route.kind),
            hops,
            source: route.source,
            metric: route.metric,
            scope: route.scope,
        })
    }
}

fn kind_of(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::Blackhole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        RouteType::Throw => RouteKind::Throw,
    }
}

fn rule_of(rule: &KernelRule) -> Option<Rule> {
    let network = |selector: Option<_>| match selector {
        None => Some(None),
        Some((address, len)) => Prefix::new(address, len).map(Some),
    };
    let (from, to) = (network(rule.from)?, network(rule.to)?);
    let action = match rule.action {
        KernelAction::Table { table, suppress_len } => RuleAction::Table { table, suppress_len },
        KernelAction::Goto(priority) => RuleAction::Goto(priority),
        KernelAction::Nop => RuleAction::Nop,
        KernelAction::Refuse(kind) => RuleAction::Refuse(kind_of(kind)),
    };
    let KernelRule { priority, is_ipv4, mark, is_foreign, invert, .. } = *rule;
    Some(Rule { priority, is_ipv4, from, to, mark, is_foreign, invert, action })
}
