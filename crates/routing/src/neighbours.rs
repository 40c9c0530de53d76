//! [`Neighbours`]: Ethernet addresses of next hops by bridge and IP address, as learned or set.
//!
//! Entries expire a while after their last use. Times are milliseconds of the caller's monotonic clock.

use flow::MacAddr;
use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum entries.
pub const NEIGHBOURS_MAX: usize = 65_536;
/// Default time from last use to expiry.
pub const AGING_DEFAULT_MS: u64 = 15 * 60 * 1000;
/// Maximum of that time, in seconds.
pub const AGING_MAX_S: u64 = 3600;
/// Bytes of a bridge's name that are kept, as in OVS.
const NAME_BYTES_MAX: usize = 15;
/// Entries beyond which expired ones are looked for once a second only.
const MANY: usize = 1024;

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Bridge.
    pub bridge: String,
    /// Address of the next hop.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Expired already, but not removed yet.
    pub is_stale: bool,
}

#[derive(Debug)]
struct Entry {
    mac: MacAddr,
    expires_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Neighbours {
    /// By address, then bridge: lookups need no owned name.
    entries: HashMap<IpAddr, Vec<(Box<str>, Entry)>>,
    len: usize,
    aging_ms: u64,
    /// No entry expires before this time.
    next_ms: u64,
    changes: u64,
    refused: u64,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours {
            entries: HashMap::new(),
            len: 0,
            aging_ms: AGING_DEFAULT_MS,
            next_ms: u64::MAX,
            changes: 0,
            refused: 0,
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

    /// Entries refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn entry(&mut self, bridge: &str, ip: IpAddr) -> Option<&mut Entry> {
        let named = self.entries.get_mut(&ip)?;
        named.iter_mut().find(|(name, _)| **name == *kept(bridge)).map(|(_, entry)| entry)
    }

    /// The Ethernet address of a next hop. Postpones its expiry.
    pub fn lookup(&mut self, now_ms: u64, bridge: &str, ip: IpAddr) -> Option<MacAddr> {
        let aging_ms = self.aging_ms;
        let entry = self.entry(bridge, ip.to_canonical()).filter(|e| e.expires_ms > now_ms)?;
        entry.expires_ms = now_ms + aging_ms;
        Some(entry.mac)
    }

    /// Enters a next hop, or changes its address. Returns whether lookups have a new result.
    pub fn set(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr) -> bool {
        self.enter(now_ms, bridge, ip, mac, true)
    }

    /// Enters a next hop as learned from a packet. A known one keeps its address unless `may_replace`: a repeated
    /// translation of an old packet must not. Returns whether lookups have a new result.
    pub fn learn(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr, may_replace: bool) -> bool {
        self.enter(now_ms, bridge, ip, mac, may_replace)
    }

    fn enter(&mut self, now_ms: u64, bridge: &str, ip: IpAddr, mac: MacAddr, may_replace: bool) -> bool {
        let (ip, expires_ms) = (ip.to_canonical(), now_ms + self.aging_ms);
        let is_full = self.len >= NEIGHBOURS_MAX;
        let changed = match self.entry(bridge, ip) {
            Some(entry) => {
                let is_live = entry.expires_ms > now_ms;
                let replaced = entry.mac != mac && (may_replace || !is_live);
                if replaced {
                    entry.mac = mac;
                }
                entry.expires_ms = expires_ms;
                replaced || !is_live
            }
            None if is_full => {
                self.refused += 1;
                return false;
            }
            None => {
                let entry = Entry { mac, expires_ms };
                self.entries.entry(ip).or_default().push((kept(bridge).into(), entry));
                self.len += 1;
                true
            }
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
        self.entries.retain(|_, named| {
            named.retain(|(name, entry)| stays(name, entry));
            !named.is_empty()
        });
        self.len = self.entries.values().map(Vec::len).sum();
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

    /// All entries, by address and bridge.
    pub fn list(&self, now_ms: u64) -> Vec<Neighbour> {
        let all =
            self.entries.iter().flat_map(|(ip, named)| named.iter().map(move |(name, e)| (ip, name, e)));
        let mut all: Vec<Neighbour> = all
            .map(|(ip, name, entry)| Neighbour {
                bridge: name.to_string(),
                ip: *ip,
                mac: entry.mac,
                is_stale: entry.expires_ms <= now_ms,
            })
            .collect();
        all.sort_by(|a, b| (a.ip, &a.bridge).cmp(&(b.ip, &b.bridge)));
        all
    }
}
