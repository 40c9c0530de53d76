//! [`Shared`]: the tables as the owner (the main loop) publishes them, and as translation reads them.

use crate::listeners::Listeners;
use crate::neighbours::Neighbours;
use crate::routes::{Change, Query, Routes};
use std::sync::Arc;
use sync::{AtomicU32, Mutex, MutexGuard, Ordering, Snapshot, lock};

/// Changes that a reader can catch up with; after more of them every lookup counts as affected.
pub const LOG_MAX: usize = 64;
/// Default range of UDP source ports of tunnels' packets.
pub const EGRESS_PORTS_DEFAULT: (u16, u16) = (32_768, 61_000);

/// Routes and listeners of one time.
#[derive(Clone)]
pub struct RoutingTables {
    /// Routes, and addresses of devices.
    pub routes: Routes,
    /// Local addresses and tunnel ports.
    pub listeners: Listeners,
    version: u64,
    /// The latest changes of routes, with the version that each led to, oldest first.
    log: Arc<[(u64, Change)]>,
}

impl RoutingTables {
    /// No routes and no listeners. `seed` keys hashes.
    pub fn new(seed: u64) -> RoutingTables {
        let (routes, listeners) = (Routes::new(), Listeners::new(seed));
        RoutingTables { routes, listeners, version: 0, log: Arc::default() }
    }

    /// Increases with each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a lookup of that version may have a new result. Costs at most [`LOG_MAX`] comparisons.
    pub fn may_differ_since(&self, version: u64, query: &Query) -> bool {
        if version >= self.version {
            return false;
        }
        // A full log may have lost a newer change than that version.
        let is_complete =
            self.log.len() < LOG_MAX || self.log.first().is_some_and(|(v, _)| *v <= version + 1);
        let newer = self.log.iter().filter(|(v, _)| *v > version);
        !is_complete || newer.into_iter().any(|(_, change)| change.may_affect(query))
    }

    /// The next version: these routes and listeners, after these changes of routes.
    #[must_use]
    pub fn next(&self, routes: &Routes, listeners: &Listeners, changes: &[Change]) -> RoutingTables {
        let version = self.version + 1;
        let log = match changes.len() > LOG_MAX / 2 {
            true => [(version, Change::Everything)].into(),
            false => {
                let all = self.log.iter().copied().chain(changes.iter().map(|c| (version, *c)));
                let excess = (self.log.len() + changes.len()).saturating_sub(LOG_MAX);
                all.skip(excess).collect()
            }
        };
        RoutingTables { routes: routes.clone(), listeners: listeners.clone(), version, log }
    }
}

/// See the module. The main loop publishes; handlers and the revalidator read.
pub struct Shared {
    tables: Snapshot<RoutingTables>,
    neighbours: Mutex<Neighbours>,
    /// Range of UDP source ports: the lowest in the high half.
    egress_ports: AtomicU32,
}

impl Shared {
    /// Empty tables. `seed` keys hashes.
    pub fn new(seed: u64) -> Shared {
        let (low, high) = EGRESS_PORTS_DEFAULT;
        Shared {
            tables: Snapshot::new(RoutingTables::new(seed)),
            neighbours: Mutex::default(),
            egress_ports: AtomicU32::new(u32::from(low) << 16 | u32::from(high)),
        }
    }

    /// Routes and listeners of now. Never waits.
    pub fn tables(&self) -> Arc<RoutingTables> {
        self.tables.load()
    }

    /// Publishes routes and listeners. There is one writer.
    pub fn publish(&self, tables: Arc<RoutingTables>) {
        self.tables.store(tables);
    }

    /// The neighbours. Hold the lock for single operations.
    pub fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        lock(&self.neighbours)
    }

    /// Increases with each change of routes, listeners or neighbours: then flows of tunnels need revalidation.
    pub fn version(&self) -> u64 {
        self.tables().version() + self.neighbours().changes()
    }

    /// Lowest and highest UDP source port of tunnels' packets.
    pub fn egress_ports(&self) -> (u16, u16) {
        let both = self.egress_ports.load(Ordering::Relaxed);
        ((both >> 16) as u16, both as u16)
    }

    /// Sets them, in either order.
    pub fn set_egress_ports(&self, one: u16, other: u16) {
        let both = u32::from(one.min(other)) << 16 | u32::from(one.max(other));
        self.egress_ports.store(both, Ordering::Relaxed);
    }
}
