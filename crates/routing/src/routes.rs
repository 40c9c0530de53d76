//! [`Routes`]: the tables of routes, rules, addresses and next-hop objects that lookups use (`lookup`).
//!
//! Routes of the kernel apply as in Linux: the longest network, and in it the lowest metric. Among them are routes by
//! command, with the precedence of OVS: 32 is added to the length of their network, and their source address is chosen
//! once, when they are added. Marks match exactly.

use crate::hops::{HopObject, Hops, NextHop, OBJECTS_MAX};
use crate::prefix::Prefix;
use crate::rules::{Rule, standard_rules};
use crate::sources::{Borrowable, InterfaceAddress, SCOPE_UNIVERSE};
use crate::trie::Trie;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum routes.
pub const ROUTES_MAX: usize = 2_000_000;

/// Source of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The kernel, or an address of a dummy.
    Cached,
    /// A command.
    User,
}

/// Type of a route, or of the refusal by a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RouteKind {
    /// To the next hop.
    Unicast,
    /// For an address of this machine.
    Local,
    /// Discards packets.
    Blackhole,
    /// Discards packets, with an ICMP error.
    Unreachable,
    /// Discards packets, with another ICMP error.
    Prohibit,
    /// Ends the lookup in its table: the next rule applies.
    Throw,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its table.
    pub table: u32,
    /// Only for packets of exactly this mark.
    pub mark: u32,
    /// Its network.
    pub prefix: Prefix,
    /// Its source.
    pub origin: Origin,
    /// Its type.
    pub kind: RouteKind,
    /// Its next hops.
    pub hops: Hops,
    /// Source address, if it is given.
    pub source: Option<IpAddr>,
    /// Metric: the lowest applies, among routes of the kernel for one network.
    pub metric: u32,
    /// Reach of its destinations, which limits that of a source address of IPv4.
    pub scope: u8,
}

impl Route {
    /// A route of the kernel in the main table, without source address and metric.
    pub fn new(prefix: Prefix, hops: Hops) -> Route {
        Route {
            table: crate::TABLE_MAIN,
            mark: 0,
            prefix,
            origin: Origin::Cached,
            kind: RouteKind::Unicast,
            hops,
            source: None,
            metric: 0,
            scope: SCOPE_UNIVERSE,
        }
    }
}

/// Place of a new route of the kernel among others of the same network and metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoutePosition {
    /// Before them.
    First,
    /// After them.
    Last,
    /// Instead of the first of them.
    Instead,
}

/// Inputs that a lookup depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// Mark of the tunnel's packets.
    pub mark: u32,
    /// Destination.
    pub dst: IpAddr,
    /// Source, if it is fixed: an address of this machine.
    pub src: Option<IpAddr>,
}

/// A route for a list of routes.
#[derive(Clone, Debug)]
pub struct ShownRoute {
    /// Its network.
    pub prefix: Prefix,
    /// Its mark.
    pub mark: u32,
    /// Its source.
    pub origin: Origin,
    /// For an address of this machine.
    pub is_local: bool,
    /// Output device.
    pub device: Arc<str>,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub source: IpAddr,
}

/// Lookups that may have a new result after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Packets to a destination, or from a fixed source, in this network.
    Prefix(Prefix),
    /// Any.
    Everything,
}

impl Change {
    /// Whether this lookup may have a new result.
    pub fn may_affect(&self, query: &Query) -> bool {
        match self {
            Change::Prefix(p) => p.contains(query.dst) || query.src.is_some_and(|src| p.contains(src)),
            Change::Everything => true,
        }
    }
}

/// Reason why a route was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    /// The device has no address in the network of destination or gateway, or not the requested one.
    #[error("the device has no source address for it; add an address of its network to the device")]
    NoSource,
    /// [`ROUTES_MAX`] is reached.
    #[error("there are {ROUTES_MAX} routes, the most")]
    Full,
}

/// A route within its network: all but its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) origin: Origin,
    pub(crate) kind: RouteKind,
    pub(crate) hops: Hops,
    /// The chosen source of a route by command.
    pub(crate) source: Option<IpAddr>,
    metric: u32,
    pub(crate) scope: u8,
}

impl Entry {
    fn of(route: &Route) -> Entry {
        let Route { origin, kind, source, metric, scope, .. } = *route;
        Entry { origin, kind, hops: route.hops.clone(), source, metric, scope }
    }

    fn is_user(&self) -> bool {
        self.origin == Origin::User
    }

    /// Added to the prefix length.
    pub(crate) fn advantage(&self) -> u8 {
        if self.is_user() { 32 } else { 0 }
    }

    /// Order within a network.
    fn rank(&self) -> (Reverse<u8>, u32) {
        (Reverse(self.advantage()), self.metric)
    }

    /// Whether all is equal but the states of next hops.
    fn is_same(&self, other: &Entry) -> bool {
        self.is_like(other) && self.source == other.source && self.hops.is_same(&other.hops)
    }

    /// Whether both may be parts of one route with several next hops.
    fn is_like(&self, other: &Entry) -> bool {
        (self.origin, self.kind, self.metric) == (other.origin, other.kind, other.metric)
    }
}

/// The routes of a network, best first.
type Slot = Arc<[Entry]>;

#[derive(Clone, Default)]
pub(crate) struct Table {
    ipv4: Trie<Slot>,
    ipv6: Trie<Slot>,
}

impl Table {
    pub(crate) fn family(&self, is_ipv4: bool) -> &Trie<Slot> {
        if is_ipv4 { &self.ipv4 } else { &self.ipv6 }
    }

    fn family_mut(&mut self, is_ipv4: bool) -> &mut Trie<Slot> {
        if is_ipv4 { &mut self.ipv4 } else { &mut self.ipv6 }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Device {
    pub(crate) addresses: Arc<[InterfaceAddress]>,
    /// Its place in the order of devices.
    index: u32,
    routes: usize,
}

/// See the module.
#[derive(Clone)]
pub struct Routes {
    /// By table and mark.
    pub(crate) tables: imbl::OrdMap<(u32, u32), Table>,
    pub(crate) rules: Arc<[Rule]>,
    pub(crate) devices: imbl::OrdMap<Arc<str>, Device>,
    pub(crate) borrowable: Borrowable,
    pub(crate) objects: imbl::OrdMap<u32, HopObject>,
    /// Table, mark and network of each route by command.
    users: imbl::OrdSet<(u32, u32, Prefix)>,
    len: usize,
    refused: u64,
}

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            tables: imbl::OrdMap::new(),
            rules: standard_rules().into(),
            devices: imbl::OrdMap::new(),
            borrowable: Borrowable::default(),
            objects: imbl::OrdMap::new(),
            users: imbl::OrdSet::new(),
            len: 0,
            refused: 0,
        }
    }
}

impl Routes {
    /// No routes, and the standard rules.
    pub fn new() -> Routes {
        Routes::default()
    }

    /// Number of routes, those without a source address included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether results depend on marks: some route has one.
    pub fn uses_marks(&self) -> bool {
        self.tables.keys().any(|(_, mark)| *mark != 0)
    }

    /// Whether it has no route.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Routes refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sets the addresses of a device, in the order in which equally good ones are chosen. `index` orders devices.
    /// `None` if nothing changed.
    pub fn set_addresses(
        &mut self,
        device: &str,
        index: u32,
        addresses: &[InterfaceAddress],
    ) -> Option<Change> {
        let old = self.devices.get(device).cloned().unwrap_or_default();
        if *old.addresses == *addresses && (old.index == index || addresses.is_empty()) {
            return None;
        }
        let name: Arc<str> = device.into();
        self.borrowable.set((old.index, name.clone()), &[]);
        self.borrowable.set((index, name.clone()), addresses);
        self.put_device(name, Device { addresses: addresses.into(), index, routes: old.routes });
        Some(Change::Everything)
    }

    /// Adds, changes or removes (`None`) a next-hop object. `None` if nothing changed, or there is no room.
    pub fn set_object(&mut self, id: u32, object: Option<HopObject>) -> Option<Change> {
        let old = self.objects.get(&id).cloned();
        if old == object {
            return None;
        }
        if old.is_none() && self.objects.len() >= OBJECTS_MAX {
            self.refused += 1;
            return None;
        }
        let device = |object: &Option<HopObject>| match object {
            Some(HopObject::Hop(hop)) => Some(hop.device.clone()),
            _ => None,
        };
        device(&object).iter().for_each(|name| self.count_device(name, 1));
        device(&old).iter().for_each(|name| self.count_device(name, -1));
        match object {
            Some(object) => self.objects.insert(id, object),
            None => self.objects.remove(&id),
        };
        Some(Change::Everything)
    }

    fn put_device(&mut self, name: Arc<str>, device: Device) {
        match device.routes == 0 && device.addresses.is_empty() {
            true => self.devices.remove(&name),
            false => self.devices.insert(name, device),
        };
    }

    fn count_device(&mut self, name: &Arc<str>, change: isize) {
        let mut device = self.devices.get(name).cloned().unwrap_or_default();
        device.routes = device.routes.saturating_add_signed(change);
        self.put_device(name.clone(), device);
    }

    /// Devices with a route, and their addresses.
    pub fn routed_devices(&self) -> impl Iterator<Item = (&Arc<str>, &[InterfaceAddress])> {
        self.devices.iter().filter(|(_, d)| d.routes > 0).map(|(name, d)| (name, &*d.addresses))
    }

    /// Sets the rules. A family without any has the standard ones. `None` if nothing changed.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Option<Change> {
        let has = |is_ipv4| rules.iter().any(|rule| rule.is_ipv4 == is_ipv4);
        let mut all = standard_rules();
        all.retain(|rule| !has(rule.is_ipv4));
        all.extend_from_slice(rules);
        all.sort_by_key(|rule| rule.priority);
        if all == *self.rules {
            return None;
        }
        self.rules = all.into();
        Some(Change::Everything)
    }

    /// The rules in the order in which they apply.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether a rule uses a table.
    pub fn uses_table(&self, table: u32) -> bool {
        self.rules.iter().any(|rule| rule.table() == Some(table))
    }

    /// Adds a route by command, instead of one of the same network and mark. `destination` is the address as given,
    /// from which the source address follows.
    ///
    /// # Errors
    /// There is no source address, or no room.
    pub fn add_user(&mut self, route: &Route, destination: IpAddr) -> Result<Change, RouteError> {
        let kind = RouteKind::Unicast;
        let mut entry = Entry { origin: Origin::User, kind, metric: 0, ..Entry::of(route) };
        let source = self.source_by_command(&entry, destination.to_canonical());
        entry.source = Some(source.ok_or(RouteError::NoSource)?);
        self.put((route.table, route.mark), route.prefix, entry, RoutePosition::Instead)?;
        Ok(Change::Prefix(route.prefix))
    }

    /// Removes a route by command. `None` if there is none.
    pub fn remove_user(&mut self, table: u32, mark: u32, prefix: Prefix) -> Option<Change> {
        self.users.remove(&(table, mark, prefix));
        self.change_network(table, mark, prefix, |slot| slot.retain(|e| !e.is_user()))
    }

    /// Adds a route of the kernel, or of a dummy. An equal one moves. One of IPv6 takes the place of those whose next
    /// hops are all among its own: the kernel reports a route with each of its next hops.
    ///
    /// # Errors
    /// There is no room.
    pub fn add_cached(&mut self, route: &Route, place: RoutePosition) -> Result<Change, RouteError> {
        let entry = Entry { origin: Origin::Cached, ..Entry::of(route) };
        if !route.prefix.address().is_ipv4() && matches!(entry.hops, Hops::Many(_)) {
            let is_part =
                |e: &Entry| e.is_like(&entry) && !e.hops.own().is_empty() && e.hops.are_within(&entry.hops);
            self.change_slot(route, |slot| slot.retain(|e| !is_part(e)));
        }
        self.put((route.table, route.mark), route.prefix, entry, place)?;
        Ok(Change::Prefix(route.prefix))
    }

    /// Removes a route of the kernel, or of a dummy; of one of IPv6 with further next hops, only these. `None` if there is
    /// none.
    pub fn remove_cached(&mut self, route: &Route) -> Option<Change> {
        let entry = Entry { origin: Origin::Cached, ..Entry::of(route) };
        let removed = self.change_slot(route, |slot| slot.retain(|e| !e.is_same(&entry)));
        if removed.is_some() || route.prefix.address().is_ipv4() {
            return removed;
        }
        self.change_slot(route, |slot| {
            for e in slot.iter_mut().filter(|e| e.is_like(&entry)) {
                if let Some(rest) = e.hops.without(&entry.hops) {
                    e.hops = rest;
                    break;
                }
            }
        })
    }

    /// Number of routes of the kernel for one network with one metric.
    pub fn equals(&self, route: &Route) -> usize {
        let table = self.tables.get(&(route.table, route.mark));
        let trie = table.map(|t| t.family(route.prefix.address().is_ipv4()));
        let slot = trie.and_then(|t| t.get(route.prefix.bits(), route.prefix.len()));
        slot.map_or(0, |s| s.iter().filter(|e| !e.is_user() && e.metric == route.metric).count())
    }

    fn put(
        &mut self,
        key: (u32, u32),
        prefix: Prefix,
        entry: Entry,
        place: RoutePosition,
    ) -> Result<(), RouteError> {
        let is_ipv4 = prefix.address().is_ipv4();
        let table = self.tables.get(&key).map(|t| t.family(is_ipv4));
        let old = table.and_then(|t| t.get(prefix.bits(), prefix.len())).cloned().unwrap_or_default();
        let rank = entry.rank();
        let first = old.iter().position(|e| e.rank() == rank).filter(|_| place == RoutePosition::Instead);
        let stays = |(at, e): &(usize, &Entry)| {
            first != Some(*at) && !(e.origin == entry.origin && e.is_same(&entry))
        };
        let mut new: Vec<Entry> = old.iter().enumerate().filter(stays).map(|(_, e)| e.clone()).collect();
        if self.len + new.len() + 1 > ROUTES_MAX + old.len() {
            self.refused += 1;
            return Err(RouteError::Full);
        }
        if entry.is_user() {
            self.users.insert((key.0, key.1, prefix));
        }
        let at = match place {
            RoutePosition::First | RoutePosition::Instead => new.partition_point(|e| e.rank() < rank),
            RoutePosition::Last => new.partition_point(|e| e.rank() <= rank),
        };
        new.insert(at, entry);
        self.replace(key, prefix, &old, new);
        Ok(())
    }

    /// Changes the routes of a route's network. `None` if it has none, or nothing changed.
    fn change_slot(&mut self, route: &Route, change: impl FnOnce(&mut Vec<Entry>)) -> Option<Change> {
        let (table, mark, prefix) = (route.table, route.mark, route.prefix);
        self.change_network(table, mark, prefix, change)
    }

    fn change_network(
        &mut self,
        table: u32,
        mark: u32,
        prefix: Prefix,
        change: impl FnOnce(&mut Vec<Entry>),
    ) -> Option<Change> {
        let trie = self.tables.get(&(table, mark))?.family(prefix.address().is_ipv4());
        let old = trie.get(prefix.bits(), prefix.len())?.clone();
        let mut new = old.to_vec();
        change(&mut new);
        if *new == *old {
            return None;
        }
        self.replace((table, mark), prefix, &old, new);
        Some(Change::Prefix(prefix))
    }

    fn replace(&mut self, key: (u32, u32), prefix: Prefix, old: &[Entry], new: Vec<Entry>) {
        self.len = self.len - old.len() + new.len();
        let same = |(a, b): (&Entry, &Entry)| a.hops.is_same(&b.hops);
        if old.len() != new.len() || !old.iter().zip(&new).all(same) {
            let devices = |all: &[Entry]| {
                let hops = all.iter().flat_map(|e| e.hops.own());
                hops.map(|hop| hop.device.clone()).collect::<Vec<_>>()
            };
            devices(&new).iter().for_each(|name| self.count_device(name, 1));
            devices(old).iter().for_each(|name| self.count_device(name, -1));
        }
        let table = self.tables.entry(key).or_default();
        let trie = table.family_mut(prefix.address().is_ipv4());
        trie.update(prefix.bits(), prefix.len(), |slot| *slot = (!new.is_empty()).then(|| new.into()));
        if table.ipv4.is_empty() && table.ipv6.is_empty() {
            self.tables.remove(&key);
        }
    }

    /// The source address of a route by command: the given one, if the device has it in the network of destination or
    /// gateway; otherwise the device's address of the smallest network that contains one of them.
    fn source_by_command(&self, entry: &Entry, destination: IpAddr) -> Option<IpAddr> {
        let NextHop { device, gateway, .. } = entry.hops.own().first()?;
        let addresses = &self.devices.get(device)?.addresses;
        let choose = |near: IpAddr| match entry.source {
            Some(source) => {
                addresses.iter().any(|a| a.address == source && a.network_contains(near)).then_some(source)
            }
            None => {
                let near = addresses.iter().filter(|a| a.network_contains(near));
                // The first of the longest.
                near.rev().max_by_key(|a| a.len).map(|a| a.address)
            }
        };
        choose(destination).or_else(|| choose((*gateway)?))
    }

    /// Tables with routes, in order of their numbers.
    pub fn tables(&self) -> Vec<u32> {
        let mut tables: Vec<u32> = self.tables.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        tables
    }

    /// The routes of a table that lookups may find, by mark, family and network; the best of a network first.
    pub fn shown(&self, table: u32) -> impl Iterator<Item = ShownRoute> {
        let families = self.tables.range((table, 0)..=(table, u32::MAX));
        let families = families.flat_map(|((_, mark), t)| [(*mark, true, &t.ipv4), (*mark, false, &t.ipv6)]);
        families.flat_map(move |(mark, is_ipv4, trie)| {
            trie.iter().flat_map(move |(bits, len, slot)| {
                let prefix = Prefix::of_bits(bits, len, is_ipv4);
                let shown = move |e: &'_ Entry| self.first_hop(e, prefix.address()).ok();
                // Only the first route of one rank applies.
                let firsts = slot.chunk_by(|a, b| a.advantage() == b.advantage());
                let firsts = firsts.filter_map(move |e| e.iter().find_map(|e| Some((e, shown(e)?))));
                firsts.filter_map(move |(e, hop)| {
                    let (device, gateway, source) = (hop.device, hop.gateway, hop.source?);
                    let (origin, is_local) = (e.origin, e.kind == RouteKind::Local);
                    Some(ShownRoute { prefix, mark, origin, is_local, device, gateway, source })
                })
            })
        })
    }

    /// Entries by command, with their tables and prefixes.
    fn user_entries(&self) -> impl Iterator<Item = ((u32, u32), Prefix, &Entry)> {
        self.users.iter().flat_map(|&(table, mark, prefix)| {
            let trie = self.tables.get(&(table, mark)).map(|t| t.family(prefix.address().is_ipv4()));
            let slot = trie.and_then(|t| t.get(prefix.bits(), prefix.len()));
            let own = slot.into_iter().flat_map(|slot| slot.iter()).filter(|e| e.is_user());
            own.map(move |entry| ((table, mark), prefix, entry))
        })
    }

    /// The routes by command.
    pub fn by_command(&self) -> impl Iterator<Item = Route> {
        self.user_entries().map(|((table, mark), prefix, entry)| {
            let Entry { origin, kind, source, metric, scope, .. } = *entry;
            Route { table, mark, prefix, origin, kind, hops: entry.hops.clone(), source, metric, scope }
        })
    }

    /// Takes over the routes by command of an earlier value, with their source addresses.
    pub fn adopt_user_routes(&mut self, old: &Routes) {
        for (table, prefix, entry) in old.user_entries() {
            // They have room: they were counted before.
            let _ = self.put(table, prefix, entry.clone(), RoutePosition::Instead);
        }
    }
}
