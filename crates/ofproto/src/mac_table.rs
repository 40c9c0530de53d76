//! Which port each MAC address of each VLAN was last seen on (IEEE 802.1D §7.8, 7.9).
//!
//! Bounded: above the limit the learned entry that was used longest ago goes. Time comes from the caller.

use crate::ports::BundleId;
use flow::MacAddr;
use std::collections::{BTreeMap, HashMap};

/// Default of `mac-aging-time`.
pub const DEFAULT_IDLE_S: u32 = 300;
/// Default of `mac-table-size`.
pub const DEFAULT_MAX_ENTRIES: usize = 8192;

/// One learned (or static) address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// VLAN, 0 for none.
    pub vlan: u16,
    /// Address.
    pub mac: MacAddr,
    /// Where it is.
    pub bundle: BundleId,
    /// When it was last seen; `None` for a static entry, which never ages.
    pub seen_ms: Option<u64>,
    order: u64,
}

/// Counters since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacStats {
    /// Addresses learned.
    pub learned: u64,
    /// Addresses that aged out.
    pub expired: u64,
    /// Addresses pushed out by others.
    pub evicted: u64,
    /// Addresses that moved to another port.
    pub moved: u64,
}

/// The table of one bridge.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<(u16, MacAddr), MacEntry>,
    by_age: BTreeMap<u64, (u16, MacAddr)>,
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
            next_order: 0,
            idle_s: DEFAULT_IDLE_S,
            max_entries: DEFAULT_MAX_ENTRIES,
            stats: MacStats::default(),
        }
    }
}

/// What learning an address did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// Nothing that a translation could depend on changed.
    Refreshed,
    /// The address is new, or on another port than before: translations must be checked again.
    Changed,
}

impl MacTable {
    /// Sets aging time (seconds) and size; entries beyond the size go.
    pub fn configure(&mut self, idle_s: u32, max_entries: usize) {
        self.idle_s = idle_s.max(1);
        self.max_entries = max_entries.clamp(1, 1_000_000);
        while self.entries.len() > self.max_entries && self.evict_oldest() {}
    }

    /// Aging time in seconds.
    pub fn idle_s(&self) -> u32 {
        self.idle_s
    }

    /// The most entries that fit.
    pub fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// What is known of `mac` of `vlan`.
    pub fn entry(&self, vlan: u16, mac: MacAddr) -> Option<&MacEntry> {
        self.entries.get(&(vlan, mac))
    }

    /// Where `mac` of `vlan` is.
    pub fn lookup(&self, vlan: u16, mac: MacAddr) -> Option<BundleId> {
        self.entries.get(&(vlan, mac)).map(|e| e.bundle)
    }

    /// Whether a packet from `mac` on `bundle` would change the table in a way that matters to translations.
    pub fn would_change(&self, vlan: u16, mac: MacAddr, bundle: BundleId) -> bool {
        !mac.is_multicast()
            && self.entries.get(&(vlan, mac)).is_none_or(|e| e.bundle != bundle && e.seen_ms.is_some())
    }

    /// Learns that `mac` of `vlan` is on `bundle`. Multicast sources are not learned; static entries do not move.
    pub fn learn(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId, now_ms: u64) -> Learned {
        if mac.is_multicast() {
            return Learned::Refreshed;
        }
        let order = self.next_order;
        self.next_order += 1;
        let key = (vlan, mac);
        if let Some(e) = self.entries.get_mut(&key) {
            let Some(seen_ms) = e.seen_ms else { return Learned::Refreshed };
            if now_ms < seen_ms {
                // Counters of an older time, pushed late, say nothing new.
                return Learned::Refreshed;
            }
            let moved = e.bundle != bundle;
            self.by_age.remove(&e.order);
            self.by_age.insert(order, key);
            (e.order, e.seen_ms, e.bundle) = (order, Some(now_ms), bundle);
            if moved {
                self.stats.moved += 1;
                return Learned::Changed;
            }
            return Learned::Refreshed;
        }
        if self.entries.len() >= self.max_entries && !self.evict_oldest() {
            return Learned::Refreshed;
        }
        let entry = MacEntry { vlan, mac, bundle, seen_ms: Some(now_ms), order };
        self.by_age.insert(order, key);
        self.entries.insert(key, entry);
        self.stats.learned += 1;
        Learned::Changed
    }

    /// Refreshes an entry for traffic that the datapath handled, if it still is on `bundle`.
    pub fn refresh(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId, used_ms: u64) {
        let Some(e) = self.entries.get_mut(&(vlan, mac)).filter(|e| e.bundle == bundle) else { return };
        let Some(seen_ms) = e.seen_ms.as_mut() else { return };
        if used_ms > *seen_ms {
            *seen_ms = used_ms;
            self.by_age.remove(&e.order);
            e.order = self.next_order;
            self.by_age.insert(e.order, (vlan, e.mac));
            self.next_order += 1;
        }
    }

    /// Adds a static entry, which never ages or moves. `false` when the table is full of static entries.
    pub fn add_static(&mut self, vlan: u16, mac: MacAddr, bundle: BundleId) -> bool {
        self.remove(vlan, mac);
        if self.entries.len() >= self.max_entries && !self.evict_oldest() {
            return false;
        }
        let entry = MacEntry { vlan, mac, bundle, seen_ms: None, order: self.next_order };
        self.next_order += 1;
        self.entries.insert((vlan, mac), entry);
        true
    }

    /// Removes an entry; whether there was one.
    pub fn remove(&mut self, vlan: u16, mac: MacAddr) -> bool {
        let Some(e) = self.entries.remove(&(vlan, mac)) else { return false };
        self.by_age.remove(&e.order);
        true
    }

    /// Forgets all learned addresses (of one bundle, if given). Whether there were any.
    pub fn flush(&mut self, bundle: Option<BundleId>) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, e| e.seen_ms.is_none() || bundle.is_some_and(|b| b != e.bundle));
        self.by_age.retain(|_, key| self.entries.contains_key(key));
        self.entries.len() != before
    }

    /// Forgets everything about a bundle, static entries too. Whether there was anything.
    pub fn forget_bundle(&mut self, bundle: BundleId) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, e| e.bundle != bundle);
        self.by_age.retain(|_, key| self.entries.contains_key(key));
        self.entries.len() != before
    }

    /// Removes entries that were not seen for the aging time. Whether any went.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let idle_ms = u64::from(self.idle_s) * 1000;
        let mut any = false;
        while let Some((_, key)) = self.by_age.first_key_value().map(|(o, k)| (*o, *k)) {
            let seen_ms = self.entries[&key].seen_ms.unwrap_or(u64::MAX);
            if seen_ms.saturating_add(idle_ms) > now_ms {
                break;
            }
            self.remove(key.0, key.1);
            self.stats.expired += 1;
            any = true;
        }
        any
    }

    /// All entries: those first that were added, or seen last, longest ago.
    pub fn entries(&self) -> Vec<&MacEntry> {
        let mut all: Vec<_> = self.entries.values().collect();
        all.sort_by_key(|e| e.order);
        all
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn evict_oldest(&mut self) -> bool {
        let Some((_, key)) = self.by_age.pop_first() else { return false };
        self.entries.remove(&key);
        self.stats.evicted += 1;
        true
    }
}

#[cfg(test)]
mod tests;
