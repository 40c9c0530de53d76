//! Limits: how many connections exist in all, by zone and by input port.
//!
//! A quarter of all places is kept for ports with few connections, in equal shares, as misses and flows are shared: a port
//! that opens connections without end fills the other places only. A port below its share always gets a place. Counts are
//! exact: a place is taken before the connection exists, and returned if it does not come to be.

use crate::zones::{NO_LIMIT, Zone, Zones, load_limit, store_limit};
use dpif::{CtRefusal, CtZoneCounts};
use sync::{AtomicU32, Ordering};

/// Connections by default, as in Open vSwitch.
pub const CONNECTIONS_MAX_DEFAULT: u32 = 3_000_000;
/// Part of all places kept for ports with few connections.
const KEPT_PERCENT: u64 = 25;
/// Connections of another process beyond the maximum, with an eighth of it.
const BEYOND: u32 = 1024;
/// Input ports with higher numbers share a count.
const PORTS: usize = 1 << 16;

/// See the module.
pub(crate) struct Limits {
    max: AtomicU32,
    all: AtomicU32,
    zones: Zones,
    default_limit: AtomicU32,
    ports: Box<[AtomicU32]>,
    /// Ports that share the kept places.
    sharing: AtomicU32,
    /// Highest port number with a connection so far, plus one.
    highest: AtomicU32,
}

impl Limits {
    pub(crate) fn new() -> Limits {
        Limits {
            max: AtomicU32::new(CONNECTIONS_MAX_DEFAULT),
            all: AtomicU32::new(0),
            zones: Zones::new(),
            default_limit: AtomicU32::new(NO_LIMIT),
            ports: (0..PORTS).map(|_| AtomicU32::new(0)).collect(),
            sharing: AtomicU32::new(1),
            highest: AtomicU32::new(0),
        }
    }

    fn port(&self, port: u32) -> &AtomicU32 {
        &self.ports[(port as usize).min(PORTS - 1)]
    }

    /// Takes a place for a connection. The caller counts refusals.
    pub(crate) fn take(&self, zone: u16, port: u32) -> Result<(), CtRefusal> {
        let of_zone = self.zones.used(zone);
        of_zone.take(self.limit_of(of_zone))?;
        let max = self.max();
        let all = self.all.fetch_add(1, Ordering::Relaxed);
        let of_port = self.port(port);
        let own = of_port.fetch_add(1, Ordering::Relaxed);
        if own == 0 {
            self.highest.fetch_max(port.min(PORTS as u32 - 1) + 1, Ordering::Relaxed);
        }
        if all >= max || !self.has_room(u64::from(max), u64::from(all), u64::from(own)) {
            self.give_back(zone, port);
            return Err(if all >= max { CtRefusal::Full } else { CtRefusal::PortShare });
        }
        Ok(())
    }

    /// Takes a place for a connection that another process had, whatever the limit of its zone. Some beyond the maximum
    /// have one: their places may belong to connections that have ended there. `false`: there is none.
    pub(crate) fn take_anyway(&self, zone: u16, port: u32) -> bool {
        self.zones.used(zone).take_anyway();
        let all = self.all.fetch_add(1, Ordering::Relaxed);
        if self.port(port).fetch_add(1, Ordering::Relaxed) == 0 {
            self.highest.fetch_max(port.min(PORTS as u32 - 1) + 1, Ordering::Relaxed);
        }
        let max = self.max();
        let has_place = all < max.saturating_add(max / 8).saturating_add(BEYOND);
        if !has_place {
            self.give_back(zone, port);
        }
        has_place
    }

    /// Returns a place of a connection that is not created, and counts the refusal.
    pub(crate) fn refuse(&self, zone: u16, port: u32, why: CtRefusal) {
        self.give_back(zone, port);
        self.count_refused(zone, why);
    }

    pub(crate) fn count_refused(&self, zone: u16, why: CtRefusal) {
        self.zones.used(zone).count_refused(why);
    }

    /// Counts a new connection; before any thread can end it.
    pub(crate) fn count_created(&self, zone: u16) {
        self.zones.used(zone).count_created();
    }

    /// Returns the place of a connection that has ended, and counts it.
    pub(crate) fn end(&self, zone: u16, port: u32) {
        self.give_back(zone, port);
        self.zones.used(zone).count_ended();
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
        self.zones.used(zone).give_back();
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
        self.zones.get(zone).map_or(0, Zone::connections)
    }

    /// Connections that a port's packets began.
    pub(crate) fn of_port(&self, port: u32) -> u32 {
        self.port(port).load(Ordering::Relaxed)
    }

    /// The limit of a zone: its own, or the default unless that is 0. As in Open vSwitch 3.5, an own limit of 0 refuses
    /// every connection, and a default of 0 none.
    fn limit_of(&self, zone: &Zone) -> Option<u32> {
        zone.limit().or_else(|| self.default_limit().filter(|limit| *limit != 0))
    }

    pub(crate) fn own_limit(&self, zone: u16) -> Option<u32> {
        self.zones.get(zone).and_then(Zone::limit)
    }

    pub(crate) fn default_limit(&self) -> Option<u32> {
        load_limit(&self.default_limit)
    }

    /// Sets or removes the limit of a zone; without a zone, that of all zones without their own, where 0 is no limit.
    pub(crate) fn set_limit(&self, zone: Option<u16>, limit: Option<u32>) {
        match zone {
            Some(zone) => self.zones.used(zone).set_limit(limit),
            None => store_limit(&self.default_limit, limit),
        }
    }

    /// Zones with a limit of their own.
    pub(crate) fn limited_zones(&self) -> impl Iterator<Item = u16> + '_ {
        self.zones.iter().filter(|(_, zone)| zone.limit().is_some()).map(|(n, _)| n)
    }

    /// Zones that had a connection or a refusal, in order.
    pub(crate) fn used_zones(&self) -> impl Iterator<Item = CtZoneCounts> + '_ {
        self.zones.iter().filter_map(|(number, zone)| self.counts_of(number, zone))
    }

    /// A zone, unless it never had a connection or a refusal.
    pub(crate) fn used_zone(&self, zone: u16) -> Option<CtZoneCounts> {
        self.counts_of(zone, self.zones.get(zone)?)
    }

    fn counts_of(&self, number: u16, zone: &Zone) -> Option<CtZoneCounts> {
        Some(CtZoneCounts { zone: number, limit: self.limit_of(zone), counts: zone.counts()? })
    }
}

#[cfg(test)]
mod tests;
