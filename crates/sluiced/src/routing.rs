//! [`Routing`]: routes, neighbours and listeners of tunnels in user space; the main loop owns them.
//!
//! It follows the kernel's routes, rules and addresses, a bounded part per turn, and the addresses of dummies. A dump is
//! built aside, and replaces the former tables once it is complete. Routes by command stay. Translation reads what is
//! published in [`Shared`].
//!
//! An address of a dummy is also a local route, as in OVS.

mod mirror;
#[cfg(test)]
mod tests;

use crate::reactor::Reactor;
use crate::turn::Turn;
use anyhow::{Context as _, Result};
use dpif::EgressPorts;
use flow::MacAddr;
use mio::Token;
use mirror::{Effects, Mirror};
use netdev::dummy::{Dummy, DummyPorts};
use netdev::route::{RouteEvent, RouteMonitor};
use ofproto::native::NativeTunnels;
use routing::{
    Change, Hops, InterfaceAddress, Listeners, ListeningDevice, Neighbour, Neighbours, Prefix, Route,
    RouteError, RouteKind, RoutePosition, Routes, TABLE_LOCAL, TunnelPort,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use sync::{Mutex, MutexGuard, lock};
use sys::confine::Kind;

/// Bytes of the kernel's messages per turn: three thousand routes of a dump, a thousand events.
const BYTES_PER_TURN: usize = 256 << 10;
/// Maximum time of the first dump, for which the start of the daemon waits.
const FIRST_DUMP_MS: u64 = 2000;
/// Minimum time between two dumps, and in proportion to the time of the last one.
const DUMP_PAUSE_MS: u64 = 50;
const DUMP_PAUSE_FACTOR: u64 = 4;
/// Time after a failure to read the kernel's tables.
const RETRY_MS: u64 = 1000;
/// Routes beyond which another thread drops old tables: that takes some milliseconds.
const MANY_ROUTES: usize = 10_000;
/// Time after which no translation reads a former view.
const HELD_BY_VIEWS: Duration = Duration::from_secs(1);

/// The kernel's tables.
struct Kernel {
    monitor: RouteMonitor,
    token: Token,
    mirror: Mirror,
    /// The dump in progress.
    building: Option<(Mirror, Routes)>,
    is_ready: bool,
    /// Times in milliseconds of the machine's own clock, because the other one may be stopped.
    dump_at_ms: Option<u64>,
    dump_began_ms: u64,
    not_before_ms: u64,
}

/// A dummy as last seen.
struct KnownDummy {
    dummy: Dummy,
    changes: u64,
    mac: MacAddr,
    addresses: Vec<InterfaceAddress>,
}

/// Settings of tunnels by command, beside routes and neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelSettings {
    /// Aging of neighbours.
    pub(crate) aging_ms: u64,
    /// Time between two requests for a neighbour.
    pub(crate) retrans_ms: u64,
    /// UDP source ports.
    pub(crate) egress_ports: EgressPorts,
}

/// Changes of what translations read.
pub struct RoutingUpdate {
    /// Changes of routes.
    pub routes: Vec<Change>,
    /// Listeners or settings changed.
    pub others: bool,
    /// Neighbours set by command, by bridge; `None`: several changed.
    pub neighbours: Vec<Option<(String, IpAddr)>>,
}

/// See the module.
pub struct Routing {
    neighbours: Arc<Mutex<Neighbours>>,
    /// Neighbours that were set by command; `None`: several changed.
    neighbours_changed: Vec<Option<(String, IpAddr)>>,
    egress_ports: EgressPorts,
    kernel: Option<Kernel>,
    dummies: BTreeMap<String, KnownDummy>,
    routes: Routes,
    listeners: Listeners,
    /// Changes of routes since the last update.
    changes: Vec<Change>,
    /// Devices may have other addresses or routes than the listeners.
    devices_changed: bool,
    /// Listeners or settings changed since the last update.
    is_dirty: bool,
    /// Complete dumps.
    pub dumps: u64,
}

impl Routing {
    /// Empty tables; with `follow_kernel` those of the kernel. Waits for the first dump, unless it takes long.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn start(follow_kernel: bool, reactor: &mut Reactor) -> Result<Routing> {
        let seed = sys::random::u64().context("no random numbers")?;
        let mut routing = Routing {
            kernel: None,
            dummies: BTreeMap::new(),
            routes: Routes::new(),
            listeners: Listeners::new(seed),
            neighbours: Arc::default(),
            neighbours_changed: Vec::new(),
            egress_ports: EgressPorts::default(),
            changes: Vec::new(),
            devices_changed: false,
            is_dirty: false,
            dumps: 0,
        };
        if follow_kernel {
            match Kernel::open(reactor) {
                Ok(kernel) => routing.kernel = Some(kernel),
                Err(e) => {
                    log::warn!(target: "route_table", "{e:#}: there are no routes but those by command")
                }
            }
            let until_ms = machine_ms() + FIRST_DUMP_MS;
            while routing.dumps == 0 && machine_ms() < until_ms && routing.follow(reactor) {}
        }
        Ok(routing)
    }

    /// The neighbours. Hold the lock for single operations.
    pub fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        lock(&self.neighbours)
    }

    /// Sets a neighbour.
    pub fn set_neighbour(&mut self, bridge: &str, ip: IpAddr, mac: MacAddr) {
        if self.neighbours().set(sys::clock::monotonic_ms(), bridge, ip, mac) {
            self.neighbours_changed.push(Some((bridge.to_string(), ip)));
        }
    }

    /// Enters a neighbour of the process to succeed.
    pub(crate) fn inherit_neighbour(&mut self, neighbour: &Neighbour) {
        if self.neighbours().inherit(sys::clock::monotonic_ms(), neighbour) {
            self.neighbours_changed.push(Some((neighbour.bridge.clone(), neighbour.ip)));
        }
    }

    /// Settings of tunnels by command, for a successor.
    pub(crate) fn tunnel_settings(&self) -> TunnelSettings {
        let (aging_ms, retrans_ms) = {
            let neighbours = self.neighbours();
            (neighbours.aging_ms(), neighbours.retrans_ms())
        };
        TunnelSettings { aging_ms, retrans_ms, egress_ports: self.egress_ports }
    }

    /// Takes over settings of the process to succeed.
    pub(crate) fn inherit_tunnel_settings(&mut self, settings: TunnelSettings) {
        {
            let mut neighbours = self.neighbours();
            neighbours.set_aging(sys::clock::monotonic_ms(), settings.aging_ms);
            neighbours.set_retrans(settings.retrans_ms);
        }
        self.set_egress_ports(settings.egress_ports);
    }

    /// Forgets all neighbours.
    pub fn flush_neighbours(&mut self) {
        if self.neighbours().flush(None) {
            self.neighbours_changed.push(None);
        }
    }

    /// UDP source ports of tunnels.
    pub fn egress_ports(&self) -> EgressPorts {
        self.egress_ports
    }

    /// Sets them.
    pub fn set_egress_ports(&mut self, ports: EgressPorts) {
        self.is_dirty |= self.egress_ports != ports;
        self.egress_ports = ports;
    }

    /// State for translations and datapaths.
    pub fn state(&self) -> (NativeTunnels, EgressPorts) {
        let (routes, listeners) = (self.routes.clone(), self.listeners.clone());
        (NativeTunnels { routes, listeners, neighbours: self.neighbours.clone() }, self.egress_ports)
    }

    /// Changes since the last call.
    pub fn take_update(&mut self) -> RoutingUpdate {
        if std::mem::take(&mut self.devices_changed) || !self.changes.is_empty() {
            self.is_dirty |= self.listen();
        }
        let routes = std::mem::take(&mut self.changes);
        let others = std::mem::take(&mut self.is_dirty);
        RoutingUpdate { routes, others, neighbours: std::mem::take(&mut self.neighbours_changed) }
    }

    /// The routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The listeners.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Routes, rules and addresses refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.routes.refused() + self.kernel.as_ref().map_or(0, |k| k.mirror.refused)
    }

    /// Handles an event of the kernel's tables; `false` for a token of others.
    pub fn event(&mut self, token: Token) -> bool {
        match &mut self.kernel {
            Some(kernel) if kernel.token == token => {
                kernel.is_ready = true;
                true
            }
            _ => false,
        }
    }

    /// Follows kernel and dummies, and removes expired neighbours.
    pub fn run(&mut self, reactor: &mut Reactor, dummies: &DummyPorts) -> Turn {
        let more = self.follow(reactor);
        self.follow_dummies(dummies);
        let (expired, next_ms) = {
            let mut neighbours = self.neighbours();
            (neighbours.expire(sys::clock::monotonic_ms()), neighbours.next_expiry_ms())
        };
        if expired {
            self.neighbours_changed.push(None);
        }
        Turn::more_if(more).and(Turn::from(next_ms))
    }

    /// Adds a route by command; see [`Routes::add_user`].
    ///
    /// # Errors
    /// As there.
    pub fn add_user_route(&mut self, route: &Route, destination: IpAddr) -> Result<(), RouteError> {
        let change = self.routes.add_user(route, destination)?;
        self.changes.push(change);
        Ok(())
    }

    /// Removes a route by command; `false` if there is none.
    pub fn remove_user_route(&mut self, table: u32, mark: u32, prefix: Prefix) -> bool {
        let change = self.routes.remove_user(table, mark, prefix);
        self.changes.extend(change);
        change.is_some()
    }

    /// Reads the kernel's tables, a part per call; `true` if there is more.
    fn follow(&mut self, reactor: &mut Reactor) -> bool {
        let Some(kernel) = &mut self.kernel else { return false };
        let now_ms = machine_ms();
        if !kernel.is_due(now_ms, reactor) {
            return false;
        }
        let polled = match kernel.monitor.poll(BYTES_PER_TURN) {
            Ok(polled) => polled,
            Err(e) => {
                log::warn!(target: "route_table", "cannot read the system's routes: {e}; trying again");
                discard(kernel.building.take());
                kernel.wait(now_ms + RETRY_MS);
                reactor.serve_in(kernel.token, RETRY_MS);
                return false;
            }
        };
        kernel.is_ready = polled.more;
        let mut effects = Effects::default();
        for event in polled.events {
            self.apply(event, &mut effects);
        }
        self.settle(effects, reactor);
        self.kernel.as_ref().is_some_and(|k| k.is_ready)
    }

    fn apply(&mut self, event: RouteEvent, effects: &mut Effects) {
        let Some(kernel) = &mut self.kernel else { return };
        let is_complete = event == RouteEvent::Complete;
        match &mut kernel.building {
            _ if event == RouteEvent::Begin => {
                discard(kernel.building.replace((Mirror::default(), Routes::new())));
                kernel.dump_began_ms = machine_ms();
            }
            Some((mirror, routes)) => mirror.apply(event, routes, &mut Effects::default()),
            None => kernel.mirror.apply(event, &mut self.routes, effects),
        }
        if is_complete && let Some((mirror, routes)) = kernel.building.take() {
            let now_ms = machine_ms();
            let took_ms = now_ms - kernel.dump_began_ms;
            kernel.not_before_ms = now_ms + DUMP_PAUSE_MS.max(took_ms * DUMP_PAUSE_FACTOR);
            kernel.mirror = mirror;
            self.dumps += 1;
            // Consequences of former events are in the dump.
            *effects = Effects::default();
            self.replace(routes);
        }
    }

    /// Carries out consequences of events.
    fn settle(&mut self, effects: Effects, reactor: &mut Reactor) {
        effects.devices.iter().for_each(|name| self.refresh_device(name));
        self.devices_changed |= !effects.devices.is_empty();
        self.changes.extend(effects.changes);
        if effects.is_stale
            && let Some(kernel) = &mut self.kernel
        {
            let now_ms = machine_ms();
            let at_ms = kernel.not_before_ms.max(now_ms);
            kernel.dump_at_ms.get_or_insert(at_ms);
            reactor.serve_in(kernel.token, at_ms - now_ms);
        }
    }

    /// Puts the routes of a dump in the place of the former ones.
    fn replace(&mut self, routes: Routes) {
        let old = std::mem::replace(&mut self.routes, routes);
        let names = self.kernel.iter().flat_map(|k| k.mirror.names().cloned());
        let names: Vec<Arc<str>> = names.chain(self.dummies.keys().map(|n| n.as_str().into())).collect();
        names.iter().for_each(|name| self.refresh_device(name));
        for (name, known) in &self.dummies {
            for route in known.local_routes(name) {
                // Refusals are counted.
                let _ = self.routes.add_cached(&route, RoutePosition::Instead);
            }
        }
        self.routes.adopt_user_routes(&old);
        self.changes = vec![Change::Everything];
        drop_aside(old);
    }

    /// Addresses and, except for loopback, Ethernet address of a device: a dummy's, or the kernel's.
    fn device(&self, name: &str) -> Option<(Option<MacAddr>, &[InterfaceAddress])> {
        if let Some(known) = self.dummies.get(name) {
            return Some((Some(known.mac), &known.addresses));
        }
        let (link, _, addresses) = self.kernel.as_ref()?.mirror.device(name)?;
        Some((link.mac.filter(|_| !link.is_loopback), addresses))
    }

    fn refresh_device(&mut self, name: &str) {
        let addresses: Vec<_> = self.device(name).map(|(_, all)| all.to_vec()).unwrap_or_default();
        // Dummies have no place in the kernel's order.
        let kernel = self.kernel.as_ref().filter(|_| !self.dummies.contains_key(name));
        let index = kernel.and_then(|k| k.mirror.device(name)).map_or(u32::MAX, |(_, index, _)| index);
        self.changes.extend(self.routes.set_addresses(name, index, &addresses));
    }

    /// Follows addresses of dummies, new and removed ones included.
    pub fn follow_dummies(&mut self, dummies: &DummyPorts) {
        let all = dummies.all();
        if !all.iter().map(Dummy::name).eq(self.dummies.keys().map(String::as_str)) {
            let names: BTreeSet<&str> = all.iter().map(Dummy::name).collect();
            let gone = self.dummies.keys().filter(|name| !names.contains(name.as_str()));
            for name in gone.cloned().collect::<Vec<_>>() {
                self.set_dummy(&name, None);
            }
        }
        for dummy in all {
            let changes = dummy.change_count();
            let known = self.dummies.get(dummy.name());
            if known.is_none_or(|k| k.changes != changes || !k.dummy.is_same(&dummy)) {
                let addresses = dummy.addresses().into_iter();
                let addresses = addresses.map(|(address, len)| InterfaceAddress::new(address, len)).collect();
                let mac = MacAddr(dummy.mac());
                let name = dummy.name().to_string();
                self.set_dummy(&name, Some(KnownDummy { dummy, changes, mac, addresses }));
            }
        }
    }

    fn set_dummy(&mut self, name: &str, known: Option<KnownDummy>) {
        let routes = |known: &Option<KnownDummy>| {
            let all = known.iter().flat_map(|known| known.local_routes(name));
            all.collect::<Vec<Route>>()
        };
        let new = routes(&known);
        let old = match known {
            Some(known) => self.dummies.insert(name.to_string(), known),
            None => self.dummies.remove(name),
        };
        for route in routes(&old).iter().filter(|route| !new.contains(route)) {
            self.changes.extend(self.routes.remove_cached(route));
        }
        for route in new {
            self.changes.extend(self.routes.add_cached(&route, RoutePosition::Instead));
        }
        self.refresh_device(name);
        self.devices_changed = true;
    }

    /// Sets the tunnel ports of all userspace datapaths. The first one of each protocol gets its packets.
    pub fn set_tunnels(&mut self, tunnels: Vec<TunnelPort>) {
        self.is_dirty |= self.listeners.set_tunnels(tunnels);
    }

    /// Listens on the addresses of the devices that have routes. Returns whether anything changed.
    fn listen(&mut self) -> bool {
        let routed = self.routes.routed_devices().map(|(name, _)| name.clone());
        let mut wanted: BTreeMap<Arc<str>, Option<ListeningDevice>> = routed
            .map(|name| {
                let device = self.device(&name).and_then(|(mac, addresses)| {
                    let addresses: Arc<[IpAddr]> = addresses.iter().map(|a| a.address).collect();
                    Some(ListeningDevice { mac: mac?, addresses })
                });
                (name, device.filter(|d| !d.addresses.is_empty()))
            })
            .collect();
        for (name, _) in self.listeners.devices() {
            wanted.entry(name.clone()).or_insert(None);
        }
        let mut changed = false;
        for (name, device) in wanted {
            changed |= self.listeners.set_device(&name, device);
        }
        changed
    }
}

impl Kernel {
    fn open(reactor: &mut Reactor) -> Result<Kernel> {
        let monitor = RouteMonitor::new()?;
        let token = reactor.watch(monitor.fd())?;
        Ok(Kernel {
            monitor,
            token,
            mirror: Mirror::default(),
            building: None,
            is_ready: true,
            dump_at_ms: None,
            dump_began_ms: 0,
            not_before_ms: 0,
        })
    }

    /// Whether there is anything to read, or a dump is due.
    fn is_due(&mut self, now_ms: u64, reactor: &mut Reactor) -> bool {
        match self.dump_at_ms {
            Some(at_ms) if at_ms <= now_ms => {
                self.dump_at_ms = None;
                self.monitor.dump_again();
                true
            }
            // Woken early: by an event, whose turn served the timer's token too.
            Some(at_ms) => {
                reactor.serve_in(self.token, at_ms - now_ms);
                self.is_ready
            }
            None => self.is_ready,
        }
    }

    /// Reads nothing before that time.
    fn wait(&mut self, until_ms: u64) {
        self.is_ready = false;
        self.dump_at_ms = Some(until_ms);
        self.not_before_ms = until_ms;
    }
}

impl KnownDummy {
    /// The local routes of its addresses.
    fn local_routes(&self, name: &str) -> impl Iterator<Item = Route> {
        let hops = Hops::one(name, None);
        self.addresses.iter().filter_map(move |a| {
            Some(Route {
                table: TABLE_LOCAL,
                kind: RouteKind::Local,
                source: Some(a.address),
                ..Route::new(Prefix::new(a.address, a.len)?, hops.clone())
            })
        })
    }
}

/// Drops an unfinished dump.
fn discard(building: Option<(Mirror, Routes)>) {
    if let Some((_, routes)) = building {
        drop_aside(routes);
    }
}

/// Drops large tables on a thread of their own, once views that hold them are gone.
fn drop_aside(old: Routes) {
    if old.len() <= MANY_ROUTES {
        return;
    }
    let work = move || {
        sys::confine::enter(Kind::Background, &[]);
        std::thread::sleep(HELD_BY_VIEWS);
        drop(old);
    };
    // Without a thread they are dropped here.
    let _ = std::thread::Builder::new().name("reclaim".to_string()).spawn(work);
}

fn machine_ms() -> u64 {
    sys::clock::machine_us() / 1000
}
