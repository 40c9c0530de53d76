//! [`Mirror`]: links, addresses and rules of the kernel, and its routes as [`Routes`]. Pure: events in, changes out.
//!
//! A change of a single route is carried out at once. After changes that the kernel reports in part only (a link that
//! goes down or away takes routes with it; rules; routes with several next hops) everything is read again.

use flow::MacAddr;
use netdev::link::LinkInfo;
use netdev::route::{KernelRoute, KernelRule, RouteChange, RouteEvent};
use routing::{Change, InterfaceAddress, Origin, Place, Prefix, Route, Routes, Rule, is_standard_table};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum rules besides the standard ones.
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
    /// A link, and its addresses in the kernel's order.
    pub(super) fn device(&self, name: &str) -> Option<(&Link, &[InterfaceAddress])> {
        let index = self.indices.get(name)?;
        Some((self.links.get(index)?, self.addresses.get(index).map_or(&[], Vec::as_slice)))
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
            RouteEvent::Address { ifindex, address, len, is_removed } => {
                self.address(ifindex, InterfaceAddress { address, len }, is_removed, effects);
            }
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
        };
        match self.links.get(&info.ifindex) {
            Some(old) if *old == link => return,
            Some(old) => {
                effects.is_stale |= old.name != link.name || old.is_up && !link.is_up;
                self.indices.remove(&old.name);
                effects.devices.insert(old.name.clone());
            }
            None => {}
        }
        self.indices.insert(link.name.clone(), info.ifindex);
        effects.devices.insert(link.name.clone());
        self.links.insert(info.ifindex, link);
    }

    fn address(&mut self, ifindex: u32, address: InterfaceAddress, is_removed: bool, effects: &mut Effects) {
        let all = self.addresses.entry(ifindex).or_default();
        match is_removed {
            true => {
                all.retain(|a| *a != address);
                effects.is_stale = true;
            }
            false if all.contains(&address) => return,
            false if all.len() >= ADDRESSES_MAX => {
                self.refused += 1;
                return;
            }
            false => all.push(address),
        }
        effects.devices.extend(self.links.get(&ifindex).map(|link| link.name.clone()));
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
        let Some(link) = self.links.get(&route.ifindex) else { return };
        let Some(own) = route_of(route, &link.name) else { return };
        effects.is_stale |= route.is_partial;
        let place = match change {
            RouteChange::Prepended => Place::First,
            RouteChange::Appended => Place::Last,
            RouteChange::Replaced => Place::Instead,
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
}

fn rule_of(rule: &KernelRule) -> Option<Rule> {
    let from = match rule.from {
        None => None,
        Some((address, len)) => Some(Prefix::new(address, len)?),
    };
    let KernelRule { priority, is_ipv4, invert, table, .. } = *rule;
    Some(Rule { priority, is_ipv4, from, invert, table })
}

fn route_of(route: &KernelRoute, device: &Arc<str>) -> Option<Route> {
    Some(Route {
        table: route.table,
        mark: route.mark,
        prefix: Prefix::new(route.dst, route.len)?,
        origin: Origin::Cached,
        is_local: route.is_local,
        device: device.clone(),
        gateway: route.gateway,
        source: route.source,
        metric: route.metric,
    })
}
