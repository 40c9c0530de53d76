//! Limits: how many connections exist in all, by zone and by input port.
//!
//! A quarter of all places is kept for ports with few connections, in equal shares, as misses and flows are shared: a port
//! that opens connections without end fills the other places only. A port below its share always gets a place. Counts are
//! exact: a place is taken before the connection exists, and returned if it does not come to be.

use sync::{AtomicU32, Ordering};

/// Connections by default, as in Open vSwitch.
pub const CONNECTIONS_MAX_DEFAULT: u32 = 3_000_000;
/// Part of all places kept for ports with few connections.
const KEPT_PERCENT: u64 = 25;
const ZONES: usize = 1 << 16;
/// Input ports with higher numbers share a count.
const PORTS: usize = 1 << 16;
/// "No limit of its own".
const NONE: u32 = u32::MAX;

/// Reason for a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// All places are taken, or kept for others.
    Full,
    /// The zone is at its limit.
    Zone,
}

/// See the module.
pub(crate) struct Limits {
    max: AtomicU32,
    all: AtomicU32,
    zones: Box<[AtomicU32]>,
    zone_limits: Box<[AtomicU32]>,
    default_limit: AtomicU32,
    ports: Box<[AtomicU32]>,
    /// Ports that share the kept places.
    sharing: AtomicU32,
    /// Highest port number with a connection so far, plus one.
    highest: AtomicU32,
}

fn counters(n: usize, value: u32) -> Box<[AtomicU32]> {
    (0..n).map(|_| AtomicU32::new(value)).collect()
}

impl Limits {
    pub(crate) fn new() -> Limits {
        Limits {
            max: AtomicU32::new(CONNECTIONS_MAX_DEFAULT),
            all: AtomicU32::new(0),
            zones: counters(ZONES, 0),
            zone_limits: counters(ZONES, NONE),
            default_limit: AtomicU32::new(NONE),
            ports: counters(PORTS, 0),
            sharing: AtomicU32::new(1),
            highest: AtomicU32::new(0),
        }
    }

    fn port(&self, port: u32) -> &AtomicU32 {
        &self.ports[(port as usize).min(PORTS - 1)]
    }

    /// Takes a place for a connection.
    pub(crate) fn take(&self, zone: u16, port: u32) -> Result<(), Refusal> {
        let of_zone = &self.zones[usize::from(zone)];
        let limit = self.zone_limit(zone).unwrap_or(NONE);
        if of_zone.fetch_add(1, Ordering::Relaxed) >= limit {
            of_zone.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::Zone);
        }
        let max = self.max();
        let all = self.all.fetch_add(1, Ordering::Relaxed);
        let of_port = self.port(port);
        let own = of_port.fetch_add(1, Ordering::Relaxed);
        if own == 0 {
            self.highest.fetch_max(port.min(PORTS as u32 - 1) + 1, Ordering::Relaxed);
        }
        if all >= max || !self.has_room(u64::from(max), u64::from(all), u64::from(own)) {
            self.give_back(zone, port);
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Whether a port with `own` connections may have one more among `all`.
    fn has_room(&self, max: u64, all: u64, own: u64) -> bool {
        let kept = max * KEPT_PERCENT / 100;
        if all < max - kept {
            return true;
        }
        let sharing = u64::from(self.sharing.load(Ordering::Relaxed).max(1));
        let share = kept / sharing;
        if own < share {
            return true;
        }
        // Nearly full: the rest of the shares of ports below theirs stays free.
        let highest = self.highest.load(Ordering::Relaxed) as usize;
        let counts = self.ports[..highest].iter().map(|n| u64::from(n.load(Ordering::Relaxed)));
        let taken: u64 = counts.map(|n| n.min(share)).sum();
        all + (share * sharing).saturating_sub(taken) < max
    }

    /// Returns a place.
    pub(crate) fn give_back(&self, zone: u16, port: u32) {
        self.zones[usize::from(zone)].fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
        self.port(port).fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections of all zones.
    pub(crate) fn count(&self) -> u32 {
        self.all.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Number of ports that share the kept places.
    pub(crate) fn set_sharing(&self, ports: u32) {
        self.sharing.store(ports, Ordering::Relaxed);
    }

    /// Connections of a zone.
    pub(crate) fn of_zone(&self, zone: u16) -> u32 {
        self.zones[usize::from(zone)].load(Ordering::Relaxed)
    }

    /// Connections that a port's packets began.
    pub(crate) fn of_port(&self, port: u32) -> u32 {
        self.port(port).load(Ordering::Relaxed)
    }

    /// The limit of a zone: its own or the default.
    pub(crate) fn zone_limit(&self, zone: u16) -> Option<u32> {
        self.own_limit(zone).or_else(|| self.default_limit()).filter(|limit| *limit != 0)
    }

    pub(crate) fn own_limit(&self, zone: u16) -> Option<u32> {
        Some(self.zone_limits[usize::from(zone)].load(Ordering::Relaxed)).filter(|limit| *limit != NONE)
    }

    pub(crate) fn default_limit(&self) -> Option<u32> {
        Some(self.default_limit.load(Ordering::Relaxed)).filter(|limit| *limit != NONE)
    }

    /// Sets or removes the limit of a zone; without a zone, that of all zones without their own. 0 is no limit.
    pub(crate) fn set_limit(&self, zone: Option<u16>, limit: Option<u32>) {
        let slot = zone.map_or(&self.default_limit, |zone| &self.zone_limits[usize::from(zone)]);
        slot.store(limit.map_or(NONE, |limit| limit.min(NONE - 1)), Ordering::Relaxed);
    }

    /// Zones with a limit of their own.
    pub(crate) fn limited_zones(&self) -> impl Iterator<Item = u16> + '_ {
        (0..=u16::MAX).filter(|zone| self.own_limit(*zone).is_some())
    }
}

#[cfg(test)]
mod tests;
