//! [`Routes`]: see the crate. Semantics are those of OVS 3.5 (one table), with the tables and rules of 3.7.
//!
//! Within a table the route of the highest priority applies: its prefix length, plus 64 for local routes or 32 for
//! routes by command. A route of the kernel whose device has no suitable source address does not exist for lookups. The
//! source address of a route by command is chosen once, when it is added. Marks match exactly.
//!
//! Unlike OVS, of several routes of the kernel for one network that of the lowest metric applies, and lookups of IPv4
//! addresses never find routes of IPv6.

use crate::prefix::{Prefix, bits, width};
use crate::rules::{Rule, TABLE_LOCAL, standard_rules};
use crate::trie::Trie;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
    /// For an address of this machine.
    pub is_local: bool,
    /// Output device.
    pub device: Arc<str>,
    /// Next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address, if it is given.
    pub source: Option<IpAddr>,
    /// Of routes of the kernel for one network, the lowest applies.
    pub metric: u32,
}

/// Place of a new route of the kernel among others of the same network and metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Before them.
    First,
    /// After them.
    Last,
    /// Instead of the first of them.
    Instead,
}

/// An address of a device with the length of its network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub len: u8,
}

impl InterfaceAddress {
    fn network_contains(&self, other: IpAddr) -> bool {
        Prefix::new(self.address, self.len).is_some_and(|network| network.contains(other))
    }
}

/// What a lookup depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// Mark of the tunnel's packets.
    pub mark: u32,
    /// Destination.
    pub dst: IpAddr,
    /// Source, if it is fixed: an address of this machine.
    pub src: Option<IpAddr>,
}

/// Result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Output device: a bridge.
    pub device: Arc<str>,
    /// Next hop; `None` if the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub source: IpAddr,
    /// The destination is an address of this machine.
    pub is_local: bool,
}

/// A route for a list of routes.
#[derive(Clone, Debug)]
pub struct ShownRoute<'a> {
    /// Its network.
    pub prefix: Prefix,
    /// Its mark.
    pub mark: u32,
    /// Its source.
    pub origin: Origin,
    /// For an address of this machine.
    pub is_local: bool,
    /// Output device.
    pub device: &'a str,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub source: IpAddr,
}

/// Lookups that may have a new result after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Those of a destination, or a fixed source, in this network.
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
struct Entry {
    origin: Origin,
    is_local: bool,
    device: Arc<str>,
    gateway: Option<IpAddr>,
    /// Of a route by command, the chosen one.
    source: Option<IpAddr>,
    metric: u32,
}

impl Entry {
    fn of(route: &Route) -> Entry {
        Entry {
            origin: route.origin,
            is_local: route.is_local,
            device: route.device.clone(),
            gateway: route.gateway,
            source: route.source,
            metric: route.metric,
        }
    }

    fn is_user(&self) -> bool {
        self.origin == Origin::User
    }

    /// Added to the prefix length.
    fn advantage(&self) -> u8 {
        match (self.is_local, self.origin) {
            (true, _) => 64,
            (false, Origin::User) => 32,
            (false, Origin::Cached) => 0,
        }
    }

    /// Order within a network.
    fn rank(&self) -> (Reverse<u8>, u32) {
        (Reverse(self.advantage()), self.metric)
    }
}

/// The routes of a network, best first.
type Slot = Arc<[Entry]>;

#[derive(Clone, Default)]
struct Table {
    ipv4: Trie<Slot>,
    ipv6: Trie<Slot>,
}

impl Table {
    fn family(&self, is_ipv4: bool) -> &Trie<Slot> {
        if is_ipv4 { &self.ipv4 } else { &self.ipv6 }
    }

    fn family_mut(&mut self, is_ipv4: bool) -> &mut Trie<Slot> {
        if is_ipv4 { &mut self.ipv4 } else { &mut self.ipv6 }
    }
}

#[derive(Clone, Default)]
struct Device {
    addresses: Arc<[InterfaceAddress]>,
    routes: usize,
}

/// See the module.
#[derive(Clone)]
pub struct Routes {
    /// By table and mark.
    tables: imbl::OrdMap<(u32, u32), Table>,
    rules: Arc<[Rule]>,
    devices: imbl::OrdMap<Arc<str>, Device>,
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

    /// Sets the addresses of a device, in the order in which equally good ones are chosen. `None` if nothing changed.
    pub fn set_addresses(&mut self, device: &str, addresses: &[InterfaceAddress]) -> Option<Change> {
        let old = self.devices.get(device);
        if old.map_or(&[][..], |d| &d.addresses) == addresses {
            return None;
        }
        let routes = old.map_or(0, |d| d.routes);
        self.put_device(device.into(), Device { addresses: addresses.into(), routes });
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

    /// Sets the rules besides the standard ones. `None` if nothing changed.
    pub fn set_rules(&mut self, rules: &[Rule]) -> Option<Change> {
        let mut all = standard_rules();
        all.extend(rules.iter().filter(|r| !all.contains(r)).cloned().collect::<Vec<_>>());
        all.sort_by_key(|rule| rule.priority);
        if all == *self.rules {
            return None;
        }
        self.rules = all.into();
        Some(Change::Everything)
    }

    /// The rules, the standard ones included, in the order in which they apply.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether a rule uses a table.
    pub fn uses_table(&self, table: u32) -> bool {
        self.rules.iter().any(|rule| rule.table == table)
    }

    /// Adds a route by command, instead of one of the same network and mark. `destination` is the address as given,
    /// from which the source address follows.
    ///
    /// # Errors
    /// There is no source address, or no room.
    pub fn add_user(&mut self, route: &Route, destination: IpAddr) -> Result<Change, RouteError> {
        let mut entry = Entry { origin: Origin::User, is_local: false, metric: 0, ..Entry::of(route) };
        entry.source = Some(self.source_of(&entry, destination.to_canonical()).ok_or(RouteError::NoSource)?);
        self.put((route.table, route.mark), route.prefix, entry, Place::Instead)?;
        Ok(Change::Prefix(route.prefix))
    }

    /// Removes a route by command. `None` if there is none.
    pub fn remove_user(&mut self, table: u32, mark: u32, prefix: Prefix) -> Option<Change> {
        self.users.remove(&(table, mark, prefix));
        self.retain(table, mark, prefix, |e| !e.is_user())
    }

    /// Adds a route of the kernel, or of a dummy. An equal one moves.
    ///
    /// # Errors
    /// There is no room.
    pub fn add_cached(&mut self, route: &Route, place: Place) -> Result<Change, RouteError> {
        let entry = Entry { origin: Origin::Cached, ..Entry::of(route) };
        self.put((route.table, route.mark), route.prefix, entry, place)?;
        Ok(Change::Prefix(route.prefix))
    }

    /// Removes a route of the kernel, or of a dummy. `None` if there is none that is equal.
    pub fn remove_cached(&mut self, route: &Route) -> Option<Change> {
        let entry = Entry { origin: Origin::Cached, ..Entry::of(route) };
        self.retain(route.table, route.mark, route.prefix, |e| *e != entry)
    }

    fn put(&mut self, key: (u32, u32), prefix: Prefix, entry: Entry, place: Place) -> Result<(), RouteError> {
        let is_ipv4 = prefix.address().is_ipv4();
        let table = self.tables.get(&key).map(|t| t.family(is_ipv4));
        let old = table.and_then(|t| t.get(prefix.bits(), prefix.len())).cloned().unwrap_or_default();
        let rank = entry.rank();
        let first = old.iter().position(|e| e.rank() == rank).filter(|_| place == Place::Instead);
        let stays = |(at, e): &(usize, &Entry)| first != Some(*at) && **e != entry;
        let mut new: Vec<Entry> = old.iter().enumerate().filter(stays).map(|(_, e)| e.clone()).collect();
        if self.len + new.len() + 1 > ROUTES_MAX + old.len() {
            self.refused += 1;
            return Err(RouteError::Full);
        }
        if entry.is_user() {
            self.users.insert((key.0, key.1, prefix));
        }
        let at = match place {
            Place::First | Place::Instead => new.partition_point(|e| e.rank() < rank),
            Place::Last => new.partition_point(|e| e.rank() <= rank),
        };
        new.insert(at, entry);
        self.replace(key, prefix, &old, new);
        Ok(())
    }

    fn retain(
        &mut self,
        table: u32,
        mark: u32,
        prefix: Prefix,
        stays: impl Fn(&Entry) -> bool,
    ) -> Option<Change> {
        let trie = self.tables.get(&(table, mark))?.family(prefix.address().is_ipv4());
        let old = trie.get(prefix.bits(), prefix.len())?.clone();
        let new: Vec<Entry> = old.iter().filter(|e| stays(e)).cloned().collect();
        if new.len() == old.len() {
            return None;
        }
        self.replace((table, mark), prefix, &old, new);
        Some(Change::Prefix(prefix))
    }

    fn replace(&mut self, key: (u32, u32), prefix: Prefix, old: &[Entry], new: Vec<Entry>) {
        self.len = self.len - old.len() + new.len();
        let same = |(a, b): (&Entry, &Entry)| a.device == b.device;
        if old.len() != new.len() || !old.iter().zip(&new).all(same) {
            new.iter().for_each(|e| self.count_device(&e.device, 1));
            old.iter().for_each(|e| self.count_device(&e.device, -1));
        }
        let table = self.tables.entry(key).or_default();
        let trie = table.family_mut(prefix.address().is_ipv4());
        trie.update(prefix.bits(), prefix.len(), |slot| *slot = (!new.is_empty()).then(|| new.into()));
        if table.ipv4.is_empty() && table.ipv6.is_empty() {
            self.tables.remove(&key);
        }
    }

    /// The source address of a route for a destination: the given one, if the device has it in the network of
    /// destination or gateway; otherwise the device's address of the smallest network that contains one of them.
    fn source_of(&self, entry: &Entry, destination: IpAddr) -> Option<IpAddr> {
        let addresses = &self.devices.get(&entry.device)?.addresses;
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
        choose(destination).or_else(|| choose(entry.gateway?))
    }

    fn resolved(&self, entry: &Entry, network: IpAddr) -> Option<IpAddr> {
        match entry.origin {
            Origin::User => entry.source,
            Origin::Cached => self.source_of(entry, network),
        }
    }

    /// The route of one table.
    fn best_in(&self, table: u32, mark: u32, dst: IpAddr) -> Option<Hop> {
        let trie = self.tables.get(&(table, mark))?.family(dst.is_ipv4());
        let mut found: Vec<(u8, u8, u128, &Entry)> = Vec::new();
        trie.covering(bits(dst), width(dst), |bits, len, slot| {
            found.extend(slot.iter().map(|e| (len + e.advantage(), len, bits, e)));
        });
        // Stable: of one network the best stays first.
        found.sort_by_key(|(priority, len, ..)| Reverse((*priority, *len)));
        found.into_iter().find_map(|(_, len, bits, entry)| {
            let network = Prefix::of_bits(bits, len, dst.is_ipv4()).address();
            Some(Hop {
                device: entry.device.clone(),
                gateway: entry.gateway,
                source: self.resolved(entry, network)?,
                is_local: entry.is_local,
            })
        })
    }

    /// The next hop of packets; `None` if there is no route, or the given source is not an address of this
    /// machine and of the destination's family.
    pub fn lookup(&self, query: &Query) -> Option<Hop> {
        let dst = query.dst.to_canonical();
        let src = query.src.map(|src| src.to_canonical());
        if let Some(src) = src {
            if src.is_ipv4() != dst.is_ipv4() {
                return None;
            }
            self.best_in(TABLE_LOCAL, query.mark, src).filter(|hop| hop.is_local)?;
        }
        let unspecified = match dst {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = src.unwrap_or(unspecified);
        let rules = self.rules.iter().filter(|rule| rule.matches(from));
        let mut hop = rules.into_iter().find_map(|rule| self.best_in(rule.table, query.mark, dst))?;
        if let Some(src) = src {
            hop.source = src;
        }
        Some(hop)
    }

    /// Tables with routes, in order of their numbers.
    pub fn tables(&self) -> Vec<u32> {
        let mut tables: Vec<u32> = self.tables.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        tables
    }

    /// The routes of a table that lookups may find, by mark, family and network; the best of a network first.
    pub fn shown(&self, table: u32) -> impl Iterator<Item = ShownRoute<'_>> {
        let families = self.tables.range((table, 0)..=(table, u32::MAX));
        let families = families.flat_map(|((_, mark), t)| [(*mark, true, &t.ipv4), (*mark, false, &t.ipv6)]);
        families.flat_map(move |(mark, is_ipv4, trie)| {
            trie.iter().flat_map(move |(bits, len, slot)| {
                let prefix = Prefix::of_bits(bits, len, is_ipv4);
                let shown = move |e: &'_ Entry| self.resolved(e, prefix.address());
                // Of routes of one rank only the first applies.
                let firsts = slot.chunk_by(|a, b| a.advantage() == b.advantage());
                let firsts = firsts.filter_map(move |e| e.iter().find_map(|e| Some((e, shown(e)?))));
                firsts.map(move |(e, source)| ShownRoute {
                    prefix,
                    mark,
                    origin: e.origin,
                    is_local: e.is_local,
                    device: &e.device,
                    gateway: e.gateway,
                    source,
                })
            })
        })
    }

    /// Takes over the routes by command of an earlier value, with their source addresses.
    pub fn adopt_user_routes(&mut self, old: &Routes) {
        for (table, mark, prefix) in &old.users {
            let trie = old.tables.get(&(*table, *mark)).map(|t| t.family(prefix.address().is_ipv4()));
            let slot = trie.and_then(|t| t.get(prefix.bits(), prefix.len()));
            for entry in slot.into_iter().flat_map(|slot| slot.iter()).filter(|e| e.is_user()) {
                // They have room: they were counted before.
                let _ = self.put((*table, *mark), *prefix, entry.clone(), Place::Instead);
            }
        }
    }
}
