//! [`Neighbours`]: Ethernet addresses of next hops by bridge and IP address, as learned or set.
//!
//! Entries expire a while after their last use. Times are milliseconds of the caller's monotonic clock.
//!
//! Hosts of the underlay announce any number of neighbours. Those that no lookup asked for are few by bridge, and the oldest
//! leaves for a new one. Those asked for stay until they expire; a full table takes a neighbour asked for in place of one that
//! is not.

use flow::MacAddr;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Maximum entries.
pub const NEIGHBOURS_MAX: usize = 65_536;
/// Maximum entries of a bridge that no lookup asked for.
pub const UNASKED_MAX: usize = 4096;
/// Maximum missing neighbours that lookups asked for, and the time that they are remembered.
const MISSING_MAX: usize = 4096;
const MISSING_MS: u64 = 10_000;
/// Default time from last use to expiry.
pub const AGING_DEFAULT_MS: u64 = 15 * 60 * 1000;
/// Maximum of that time, in seconds.
pub const AGING_MAX_S: u64 = 3600;
/// Default of the shortest time between two requests for a neighbour.
pub const RETRANS_DEFAULT_MS: u64 = 1000;
/// Maximum of that time.
pub const RETRANS_MAX_MS: u64 = AGING_MAX_S * 1000;
/// Bytes of a bridge's name that are kept, as in OVS.
const NAME_BYTES_MAX: usize = 15;
/// Entries beyond which expired ones are looked for once a second only.
const MANY: usize = 1024;

/// Source of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Command,
    Packet,
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Bridge.
    pub bridge: String,
    /// Address of the next hop.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Time until it expires; 0: it has, and is not removed yet.
    pub left_ms: u64,
    /// A lookup asked for it, or a command entered it.
    pub is_asked: bool,
}

#[derive(Debug)]
struct Entry {
    mac: MacAddr,
    expires_ms: u64,
    /// Its key in [`Neighbours::unasked`] until a lookup asks for it.
    unasked: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Neighbours {
    /// By address, then bridge: lookups need no owned name.
    entries: HashMap<IpAddr, Vec<(Box<str>, Entry)>>,
    len: usize,
    /// Entries by bridge that no lookup asked for, in order of their arrival.
    unasked: HashMap<Box<str>, BTreeMap<u64, IpAddr>>,
    arrivals: u64,
    /// Neighbours that lookups missed, by bridge, with the time until they are remembered.
    missing: HashMap<Box<str>, HashMap<IpAddr, u64>>,
    missing_len: usize,
    aging_ms: u64,
    retrans_ms: u64,
    /// No entry expires before this time.
    next_ms: u64,
    changes: u64,
    refused: u64,
    evicted: u64,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours {
            entries: HashMap::new(),
            len: 0,
            unasked: HashMap::new(),
            arrivals: 0,
            missing: HashMap::new(),
            missing_len: 0,
            aging_ms: AGING_DEFAULT_MS,
            retrans_ms: RETRANS_DEFAULT_MS,
            next_ms: u64::MAX,
            changes: 0,
            refused: 0,
            evicted: 0,
        }
    }
}

/// A bridge's name as kept.
fn kept(bridge: &str) -> &str {
    let end = (0..=bridge.len().min(NAME_BYTES_MAX)).rev().find(|end| bridge.is_char_boundary(*end));
    &bridge[..end.unwrap_or(0)]
}

impl Neighbours {
    /// No entries.
    pub fn new() -> Neighbours {
        Neighbours::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Increases with each change of a lookup's result.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Entries refused because there were too many that lookups asked for.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Entries removed for newer ones: no lookup asked for them.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn entry(&mut self, bridge: &str, ip: IpAddr) -> Option<&mut Entry> {
        let named = self.entries.get_mut(&ip)?;
        named.iter_mut().find(|(name, _)| **name == *kept(bridge)).map(|(_, entry)| entry)
    }

    /// The Ethernet address of a next hop. Postpones its expiry; a missing one is remembered as asked for.
    pub fn lookup(&mut self, now_ms: u64, bridge: &str, ip: IpAddr) -> Option<MacAddr> {
        let (ip, aging_ms) = (ip.to_canonical(), self.aging_ms);
        let Some(entry) = self.entry(bridge, ip).filter(|e| e.expires_ms > now_ms) else {
            self.miss(now_ms, bridge, ip);
            return None;
        };
        entry.expires_ms = now_ms + aging_ms;
        let mac = entry.mac;
        if let Some(arrival) = entry.unasked.take() {
            self.forget_arrival(bridge, arrival);
        }
        Some(mac)
    }

    fn miss(&mut self, now_ms: u64, bridge: &str, ip: IpAddr) {
        if self.missing_len >= MISSING_MAX {
            self.missing.retain(|_, all| {
                all.retain(|_, until_ms| *until_ms > now_ms);
                !all.is_empty()
            });
            self.missing_len = self.missing.values().map(HashMap::len).sum();
        }
        if self.missing_len < MISSING_MAX {
            let bridge = kept(bridge);
            if !self.missing.contains_key(bridge) {
                self.missing.insert(bridge.into(), HashMap::new());
            }
            let all = self.missing.get_mut(bridge);
            let is_new = all.is_some_and(|all| all.insert(ip, now_ms + MISSING_MS).is_none());
            self.missing_len += usize::from(is_new);
        }
    }

    /// Whether a lookup missed it lately. Forgets that.
    fn was_missed(&mut self, now_ms: u64, bridge: &str, ip: IpAddr) -> bool {
        let Some(all) = self.missing.get_mut(bridge) else { return false };
        let until_ms = all.remove(&ip);
        if all.is_empty() {
            self.missing.remove(bridge);
        }
        self.missing_len -= usize::from(until_ms.is_some());
        until_ms.is_some_and(|until_ms| until_ms > now_ms)
    }

    fn forget_arrival(&mut self, bridge: &str, arrival: u64) {
        if let Some(arrivals) = self.unasked.get_mut(kept(bridge)) {
            arrivals.remove(&arrival);
            if arrivals.is_empty() {
                self.unasked.remove(kept(bridge));
            }
        }
    }

    /// Removes the oldest entry of a bridge that no lookup asked for.
    fn evict(&mut self, bridge: &str) -> bool {
        let oldest = self.unasked.get(bridge).and_then(|arrivals| arrivals.first_key_value());
        let Some((arrival, ip)) = oldest.map(|(arrival, ip)| (*arrival, *ip)) else { return false };
        self.forget_arrival(bridge, arrival);
        if let Some(named) = self.entries.get_mut(&ip) {
            named.retain(|(name, _)| **name != *bridge);
            if named.is_empty() {
                self.entries.remove(&ip);
            }
        }
        self.len -= 1;
        self.evicted += 1;
        true
    }

    /// Makes room for an entry. Walks over bridges with entries that no lookup asked for if the table is full.
    fn make_room(&mut self, bridge: &str, is_asked: bool) -> bool {
        let own = self.unasked.get(bridge).map_or(0, BTreeMap::len);
        if !is_asked && own >= UNASKED_MAX {
            return self.evict(bridge);
        }
        if self.len < NEIGHBOURS_MAX {
            return true;
        }
        let most = self.unasked.iter().max_by_key(|(_, arrivals)| arrivals.len());
        most.map(|(name, _)| name.clone()).is_some_and(|name| self.evict(&name))
    }

    /// Enters a next hop, or changes its address. It counts as asked for. Returns whether lookups have a new result.
    pub fn set(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr) -> bool {
        let changed = self.enter(now_ms, bridge, ip, mac, Source::Command);
        self.lookup(now_ms, bridge, ip);
        changed
    }

    /// Enters a next hop as learned from a packet. Returns whether lookups have a new result.
    pub fn learn(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr) -> bool {
        self.enter(now_ms, bridge, ip, mac, Source::Packet)
    }

    /// Enters a next hop of another process, with the rest of its time. Returns whether lookups have a new result.
    pub fn inherit(&mut self, now_ms: u64, n: &Neighbour) -> bool {
        if n.left_ms == 0 {
            return false;
        }
        let source = if n.is_asked { Source::Command } else { Source::Packet };
        let changed = self.enter(now_ms, &n.bridge, n.ip, n.mac, source);
        let expires_ms = now_ms + n.left_ms.min(self.aging_ms);
        if let Some(entry) = self.entry(&n.bridge, n.ip.to_canonical()) {
            entry.expires_ms = expires_ms;
        }
        self.next_ms = self.next_ms.min(expires_ms);
        changed
    }

    fn enter(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr, source: Source) -> bool {
        let (ip, expires_ms) = (ip.to_canonical(), now_ms + self.aging_ms);
        let changed = if let Some(entry) = self.entry(bridge, ip) {
            let is_live = entry.expires_ms > now_ms;
            entry.expires_ms = expires_ms;
            std::mem::replace(&mut entry.mac, mac) != mac || !is_live
        } else {
            let bridge = kept(bridge);
            let is_asked = self.was_missed(now_ms, bridge, ip) || source == Source::Command;
            if !self.make_room(bridge, is_asked) {
                self.refused += 1;
                return false;
            }
            let unasked = (!is_asked).then_some(self.arrivals);
            if let Some(arrival) = unasked {
                self.arrivals += 1;
                self.unasked.entry(bridge.into()).or_default().insert(arrival, ip);
            }
            self.entries.entry(ip).or_default().push((bridge.into(), Entry { mac, expires_ms, unasked }));
            self.len += 1;
            true
        };
        self.changes += u64::from(changed);
        self.next_ms = self.next_ms.min(expires_ms);
        changed
    }

    /// Removes expired entries. Returns whether there were any. Examines all entries if some may have expired: at most
    /// once a second while there are many.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        if now_ms < self.next_ms {
            return false;
        }
        let removed = self.retain(|_, entry| entry.expires_ms > now_ms);
        let all = self.entries.values().flatten();
        let next_ms = all.map(|(_, e)| e.expires_ms).min().unwrap_or(u64::MAX);
        self.next_ms = if self.len > MANY { next_ms.max(now_ms + 1000) } else { next_ms };
        removed
    }

    /// Time of the next expiry, if any. It may be early.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        (self.len > 0).then_some(self.next_ms)
    }

    /// Removes the entries of a bridge, or all. Returns whether there were any.
    pub fn flush(&mut self, bridge: Option<&str>) -> bool {
        self.retain(|name, _| bridge.is_some_and(|b| name != kept(b)))
    }

    fn retain(&mut self, stays: impl Fn(&str, &Entry) -> bool) -> bool {
        let before = self.len;
        let (unasked, len) = (&mut self.unasked, &mut self.len);
        self.entries.retain(|_, named| {
            named.retain(|(name, entry)| {
                let stays = stays(name, entry);
                *len -= usize::from(!stays);
                if !stays && let Some((arrival, arrivals)) = entry.unasked.zip(unasked.get_mut(name)) {
                    arrivals.remove(&arrival);
                }
                stays
            });
            !named.is_empty()
        });
        self.unasked.retain(|_, arrivals| !arrivals.is_empty());
        let removed = self.len < before;
        self.changes += u64::from(removed);
        removed
    }

    /// Time from last use to expiry.
    pub fn aging_ms(&self) -> u64 {
        self.aging_ms
    }

    /// Sets it. Existing entries expire no later than that from now.
    pub fn set_aging(&mut self, now_ms: u64, aging_ms: u64) {
        self.aging_ms = aging_ms;
        let latest_ms = now_ms + aging_ms;
        for (_, entry) in self.entries.values_mut().flatten() {
            entry.expires_ms = entry.expires_ms.min(latest_ms);
        }
        self.next_ms = self.next_ms.min(latest_ms);
    }

    /// Shortest time between two requests for a neighbour.
    pub fn retrans_ms(&self) -> u64 {
        self.retrans_ms
    }

    /// Sets it.
    pub fn set_retrans(&mut self, retrans_ms: u64) {
        self.retrans_ms = retrans_ms;
    }

    /// All entries, by address and bridge.
    pub fn list(&self, now_ms: u64) -> Vec<Neighbour> {
        let all =
            self.entries.iter().flat_map(|(ip, named)| named.iter().map(move |(name, e)| (ip, name, e)));
        let mut all: Vec<Neighbour> = all
            .map(|(ip, name, entry)| Neighbour {
                bridge: name.to_string(),
                ip: *ip,
                mac: entry.mac,
                left_ms: entry.expires_ms.saturating_sub(now_ms),
                is_asked: entry.unasked.is_none(),
            })
            .collect();
        all.sort_by(|a, b| (a.ip, &a.bridge).cmp(&(b.ip, &b.bridge)));
        all
    }
}
