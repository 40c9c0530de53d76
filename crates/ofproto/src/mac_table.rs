//! MAC learning table of a bridge, by VLAN (IEEE 802.1D §7.8, 7.9).
//!
//! Bounded: above the limit, the port with the most addresses loses its oldest one, so that a flood on one port evicts
//! no address of the others. As in OVS, static addresses count and are evicted like learned ones. Time comes from the
//! caller.

use crate::ids::BundleId;
use flow::MacAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Default of `mac-aging-time`.
pub const DEFAULT_IDLE_S: u32 = 300;
/// Default of `mac-table-size`.
pub const DEFAULT_MAX_ENTRIES: usize = 8192;

/// Time for which an address is held at its port, as in OVS.
pub const HELD_MS: u64 = 5000;

/// One learned (or static) address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// VLAN, 0 for none.
    pub vlan: u16,
    /// Address.
    pub mac: MacAddr,
    /// Its bundle.
    pub bundle: BundleId,
    /// Time last seen; `None` for a static entry, which never ages.
    pub seen_ms: Option<u64>,
    /// Until then, gratuitous ARP by a bond is a reflection.
    held_until_ms: u64,
    order: u64,
}

/// Counters since creation of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacStats {
    /// Addresses learned.
    pub learned: u64,
    /// Addresses that aged out.
    pub expired: u64,
    /// Addresses evicted by others.
    pub evicted: u64,
    /// Addresses that moved to another port.
    pub moved: u64,
}

/// VLAN and address.
type Key = (u16, MacAddr);

/// The addresses of one port, at least one: least recently seen or added first.
type PortMacs = BTreeMap<u64, Key>;

/// The table of one bridge.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<Key, MacEntry>,
    /// Learned entries of all ports, least recently seen first.
    by_age: BTreeMap<u64, Key>,
    ports: HashMap<BundleId, PortMacs>,
    /// Ports by number of addresses.
    by_size: BTreeSet<(usize, BundleId)>,
    next_order: u64,
    idle_s: u32,
    max_entries: usize,
    /// Counters.
    pub stats: MacStats,
}

impl Default for MacTable {
    fn default() -> MacTable {
        MacTable {
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            ports: HashMap::new(),
            by_size: BTreeSet::new(),
            next_order: 0,
            idle_s: DEFAULT_IDLE_S,
            max_entries: DEFAULT_MAX_ENTRIES,
            stats: MacStats::default(),
        }
    }
}

/// Result of learning an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// No change relevant to translations.
    Refreshed,
    /// The address is new, or moved from another port: translations must be checked again.
    Changed,
}

impl MacTable {
    /// Sets aging time (seconds) and size. As in OVS, entries beyond the size expire, the oldest of all ports first.
    pub fn configure(&mut self, idle_s: u32, max_entries: usize) {
        self.idle_s = idle_s.max(1);
        self.max_entries = max_entries.clamp(1, 1_000_000);
        let excess = self.entries.len().saturating_sub(self.max_entries);
        if excess == 0 {
            return;
        }
        let keys: Vec<Key> = self.entries().iter().take(excess).map(|e| (e.vlan, e.mac)).collect();
        for key in keys {
            self.take(key);
            self.stats.expired += 1;
        }
    }

    /// Aging time in seconds.
    pub fn idle_s(&self) -> u32 {
        self.idle_s
    }

    /// Maximum number of entries.
    pub fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// The entry of `mac` in `vlan`.
    pub fn entry(&self, vlan: u16, mac: MacAddr) -> Option<&MacEntry> {
        self.entries.get(&(vlan, mac))
    }

    /// The bundle of `mac` in `vlan`.
    pub fn lookup(&self, vlan: u16, mac: MacAddr) -> Option<BundleId> {
        self.entries.get(&(vlan, mac)).map(|e| e.bundle)
    }

    /// Whether a packet from `mac` on `bundle` would change the table in a way relevant to translations.
    pub fn would_change(&self, vlan: u16, mac: MacAddr, bundle: BundleId) -> bool {
        !mac.is_multicast()
            && self.entries.get(&(vlan, mac)).is_none_or(|e| e.bundle != bundle && e.seen_ms.is_some())
    }

    /// Learns that `mac` of `vlan` is on `bundle`. Multicast sources are not learned; static entries do not move.
    pub fn learn(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId, now_ms: u64) -> Learned {
        if mac.is_multicast() {
            return Learned::Refreshed;
        }
        let key = (vlan, mac);
        if let Some(e) = self.entries.get(&key) {
            // Statistics pushed late do not override newer state.
            if e.seen_ms.is_none_or(|seen_ms| now_ms < seen_ms) {
                return Learned::Refreshed;
            }
            let moved = e.bundle != bundle;
            let held_until_ms = if moved { 0 } else { e.held_until_ms };
            self.take(key);
            self.put(key, bundle, Some(now_ms));
            self.hold_until(key, held_until_ms);
            self.stats.moved += u64::from(moved);
            return if moved { Learned::Changed } else { Learned::Refreshed };
        }
        self.make_room();
        self.put(key, bundle, Some(now_ms));
        self.stats.learned += 1;
        Learned::Changed
    }

    /// A host told its address by ARP at a port that is no bond: for [`HELD_MS`] the same from a bond is a reflection.
    pub fn hold(&mut self, vlan: u16, mac: MacAddr, now_ms: u64) {
        self.hold_until((vlan, mac), now_ms.saturating_add(HELD_MS));
    }

    fn hold_until(&mut self, key: Key, until_ms: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.held_until_ms = entry.held_until_ms.max(until_ms);
        }
    }

    /// Whether gratuitous ARP of an address from a bond is a reflection.
    pub fn is_held(&self, vlan: u16, mac: MacAddr, now_ms: u64) -> bool {
        self.entries.get(&(vlan, mac)).is_some_and(|e| now_ms < e.held_until_ms)
    }

    /// Refreshes an entry for traffic handled by the datapath, if it is still on `bundle`.
    pub fn refresh(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId, used_ms: u64) {
        let key = (vlan, mac);
        let Some(e) = self.entries.get(&key).filter(|e| e.bundle == bundle) else { return };
        if e.seen_ms.is_some_and(|seen_ms| used_ms > seen_ms) {
            let held_until_ms = e.held_until_ms;
            self.take(key);
            self.put(key, bundle, Some(used_ms));
            self.hold_until(key, held_until_ms);
        }
    }

    /// Adds a static entry, which never ages or moves.
    pub fn add_static(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId) {
        self.remove(vlan, mac);
        self.make_room();
        self.put((vlan, mac), bundle, None);
    }

    /// Removes an entry; returns whether it existed.
    pub fn remove(&mut self, vlan: u16, mac: MacAddr) -> bool {
        self.take((vlan, mac))
    }

    /// Flushes all learned addresses (of one bundle, if given). Returns whether any existed.
    pub fn flush(&mut self, bundle: Option<BundleId>) -> bool {
        let is_learned = |key: &Key| self.entries[key].seen_ms.is_some();
        let keys: Vec<Key> = match bundle {
            Some(b) => {
                let of_port = self.ports.get(&b).into_iter().flat_map(BTreeMap::values);
                of_port.filter(|key| is_learned(key)).copied().collect()
            }
            None => self.by_age.values().copied().collect(),
        };
        keys.iter().for_each(|key| _ = self.take(*key));
        !keys.is_empty()
    }

    /// Moves the entries of a bundle to another one. Returns whether any existed.
    pub fn move_bundle(&mut self, from: BundleId, to: BundleId) -> bool {
        if from == to {
            return false;
        }
        let keys: Vec<Key> = self.ports.get(&from).into_iter().flat_map(BTreeMap::values).copied().collect();
        for key in &keys {
            let seen_ms = self.entries[key].seen_ms;
            self.take(*key);
            self.put(*key, to, seen_ms);
        }
        !keys.is_empty()
    }

    /// Removes all entries of a bundle, static ones included, and returns their VLANs and addresses.
    pub fn forget_bundle(&mut self, bundle: BundleId) -> Vec<(u16, MacAddr)> {
        let keys: Vec<Key> =
            self.ports.get(&bundle).into_iter().flat_map(BTreeMap::values).copied().collect();
        keys.iter().for_each(|key| _ = self.take(*key));
        keys
    }

    /// Removes entries beyond the aging time. Returns whether any existed.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let idle_ms = u64::from(self.idle_s) * 1000;
        let mut any = false;
        while let Some((_, key)) = self.by_age.first_key_value().map(|(o, k)| (*o, *k)) {
            let seen_ms = self.entries[&key].seen_ms.unwrap_or(u64::MAX);
            if seen_ms.saturating_add(idle_ms) > now_ms {
                break;
            }
            self.take(key);
            self.stats.expired += 1;
            any = true;
        }
        any
    }

    /// All entries, least recently added or seen first.
    pub fn entries(&self) -> Vec<&MacEntry> {
        let mut all: Vec<_> = self.entries.values().collect();
        all.sort_by_key(|e| e.order);
        all
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a new entry.
    fn put(&mut self, key: Key, bundle: BundleId, seen_ms: Option<u64>) {
        let order = self.next_order;
        self.next_order += 1;
        self.entries
            .insert(key, MacEntry { vlan: key.0, mac: key.1, bundle, seen_ms, held_until_ms: 0, order });
        if seen_ms.is_some() {
            self.by_age.insert(order, key);
        }
        let port = self.ports.entry(bundle).or_default();
        let size = port.len();
        port.insert(order, key);
        self.by_size.remove(&(size, bundle));
        self.by_size.insert((size + 1, bundle));
    }

    /// Removes an entry; returns whether it existed.
    fn take(&mut self, key: Key) -> bool {
        let Some(e) = self.entries.remove(&key) else { return false };
        self.by_age.remove(&e.order);
        let Some(port) = self.ports.get_mut(&e.bundle) else { return true };
        let size = port.len();
        port.remove(&e.order);
        self.by_size.remove(&(size, e.bundle));
        if size > 1 {
            self.by_size.insert((size - 1, e.bundle));
        } else {
            self.ports.remove(&e.bundle);
        }
        true
    }

    /// In a full table, evicts the least recently seen address of the port with the most addresses.
    fn make_room(&mut self) {
        while self.entries.len() >= self.max_entries {
            let Some((_, bundle)) = self.by_size.last() else { return };
            let Some((_, key)) = self.ports.get(bundle).and_then(BTreeMap::first_key_value) else { return };
            self.take(*key);
            self.stats.evicted += 1;
        }
    }
}

#[cfg(test)]
mod tests;
