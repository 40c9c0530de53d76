//! IP fragments before tracking: [`Ipf`] holds the fragments of a datagram until all have arrived. The caller then
//! tracks the whole datagram and sends the fragments on as they arrived ([`Reassembled`]).
//!
//! Behaviour, defaults and counters are those of OVS. In addition:
//! - If all places are taken, a port that holds less than an equal share of them takes those of a datagram of the port
//!   that holds most (see `places`). Fragments without end on one port thus do not keep out those of others.
//! - Overlap is exact: OVS misses a fragment that covers another one wholly, and one beyond the end of the datagram.
//!   Two last fragments of a datagram with different ends contradict each other; OVS forwards both.
//! - A last fragment without payload completes its datagram in any order of arrival; OVS refuses it after the byte
//!   before it.
//!
//! Callers: all forwarding threads. A fragment takes short locks: its input port's count; then the shard of its
//! datagram's hash and, inside it, counts. Fragments leave a shard and give their places back under the shard's lock: a
//! thread that searches the shards finds the fragments that hold the places, except those on their way. No lock covers
//! all datagrams. Only a fragment that takes the place of another port examines all ports with fragments and, in the
//! worst case, all held datagrams.
//! Memory: `max_fragments` values `T`, a list of at least one of them each.
//!
//! Omissions: fragments of one datagram may differ in their input port and in header fields beside the addresses; the
//! headers of the first one count (OVS does the same). A datagram of IPv6 with a jumbo payload is invalid.

mod header;
mod pieces;
mod places;
mod reassembled;
#[cfg(test)]
mod tests;

use crate::key::KeyHash;
use dpif::{CtAddresses, FragmentCounts, FragmentList, FragmentState, FragmentStatus};
use hashbrown::HashTable;
use header::{Fragment, Key};
use packet::Packet;
use pieces::{Piece, Pieces};
use places::Places;
use std::collections::BTreeMap;
use sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Mutex, MutexGuard, Ordering, lock};

pub use reassembled::Reassembled;

/// A fragment whose datagram is not complete expires after this time from the datagram's first one on.
pub const TIMEOUT_MS: u64 = 15_000;
/// Fragments that are still held so long after their time count as purged.
const PURGE_AFTER_MS: u64 = 10_000;
/// Default of [`Ipf::set_max_fragments`].
pub const MAX_FRAGMENTS_DEFAULT: u32 = 1000;
/// Its greatest value.
pub const MAX_FRAGMENTS_LIMIT: u32 = 5000;
/// Smallest value of [`Ipf::set_min_fragment_bytes`].
pub const MIN_FRAGMENT_LIMIT_BYTES: u32 = 400;
/// Its default for IPv4.
pub const MIN_FRAGMENT_V4_BYTES: u32 = 1200;
/// Its default for IPv6.
pub const MIN_FRAGMENT_V6_BYTES: u32 = 1280;
const SHARDS: usize = 16;
/// Searches of one fragment for a place at most: other threads may end the datagrams of the debtor first.
const SEARCHES_MAX: usize = 3;

/// A packet held here, with anything that its holder needs to send it on.
pub trait HeldFragment: Send {
    /// The packet.
    fn packet(&self) -> &Packet;
    /// The packet, writable.
    fn packet_mut(&mut self) -> &mut Packet;
    /// Frame offset of its IP header.
    fn l3(&self) -> usize;
    /// Whether that header is one of IPv6, by the EtherType.
    fn is_v6(&self) -> bool;
    /// Datapath number of its input port.
    fn port(&self) -> u32;
    /// Its recirculation id.
    fn recirc_id(&self) -> u32;
}

/// Reason why a packet is not held. Each goes on at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not a fragment, or one that is a whole datagram (IPv6): track it as it is.
    NotFragment,
    /// Lengths contradict each other, or it is a large segment: goes on with `ct_state` +inv+trk.
    Invalid,
    /// The checksum of the IPv4 header is wrong: goes on as an invalid one.
    BadChecksum,
    /// Reassembly of its family is disabled: goes on with +inv+trk, as any fragment that is not reassembled.
    Disabled,
    /// Not the last fragment, and smaller than the minimum: goes on with +inv+trk.
    TooSmall,
    /// Has bytes that another fragment had, or contradicts the end of its datagram: goes on with +inv+trk. The others
    /// stay held.
    Overlap,
    /// All places are taken, and its input port has its share of them: goes on with +inv+trk.
    TooMany,
    /// Its datagram already has as many fragments as it can have, or exceeds 65,535 bytes: goes on with +inv+trk.
    ListFull,
}

/// Result for a fragment.
pub enum Taken<T> {
    /// It waits for the others.
    Held,
    /// It was the last one missing.
    Complete(Box<Reassembled<T>>),
    /// It is not held.
    Refused(T, Refusal),
}

/// A setting is out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange;

/// Settings and counters of an address family.
struct Family {
    enabled: AtomicBool,
    min_bytes: AtomicUsize,
    accepted: AtomicU64,
    completed: AtomicU64,
    expired: AtomicU64,
    too_small: AtomicU64,
    overlapped: AtomicU64,
    purged: AtomicU64,
    too_many: AtomicU64,
    evicted: AtomicU64,
    bad_checksum: AtomicU64,
}

impl Family {
    fn new(min_bytes: u32) -> Family {
        Family {
            enabled: AtomicBool::new(true),
            min_bytes: AtomicUsize::new(min_bytes as usize),
            accepted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            too_small: AtomicU64::new(0),
            overlapped: AtomicU64::new(0),
            purged: AtomicU64::new(0),
            too_many: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            bad_checksum: AtomicU64::new(0),
        }
    }

    fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    fn min_bytes(&self) -> u32 {
        self.min_bytes.load(Ordering::Relaxed) as u32
    }

    fn count(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::TooSmall => &self.too_small,
            Refusal::Overlap => &self.overlapped,
            Refusal::TooMany | Refusal::ListFull => &self.too_many,
            Refusal::BadChecksum => &self.bad_checksum,
            Refusal::NotFragment | Refusal::Invalid | Refusal::Disabled => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> FragmentCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FragmentCounts {
            enabled: self.enabled(),
            min_bytes: self.min_bytes(),
            accepted: read(&self.accepted),
            completed: read(&self.completed),
            expired: read(&self.expired),
            too_small: read(&self.too_small),
            overlapped: read(&self.overlapped),
            purged: read(&self.purged),
            too_many: read(&self.too_many),
            evicted: read(&self.evicted),
            bad_checksum: read(&self.bad_checksum),
        }
    }
}

/// Time of expiry and a number, by which a shard orders its datagrams.
type Deadline = (u64, u64);

/// The held fragments of one datagram.
struct List<T> {
    key: Key,
    pieces: Pieces,
    /// In order of arrival.
    held: Vec<T>,
    deadline: Deadline,
    /// It exceeds the size of a datagram.
    failed: bool,
}

impl<T> List<T> {
    fn state(&self) -> FragmentState {
        match self.pieces.ends() {
            _ if self.failed => FragmentState::Failed,
            (true, true) => FragmentState::FirstAndLast,
            (true, false) => FragmentState::First,
            (false, true) => FragmentState::Last,
            (false, false) => FragmentState::Other,
        }
    }
}

/// The datagrams of one part of the hash values.
struct Shard<T> {
    hash: KeyHash,
    lists: HashTable<List<T>>,
    deadlines: BTreeMap<Deadline, Key>,
    /// Number of datagrams so far.
    datagrams: u64,
}

/// See the module.
pub struct Ipf<T: HeldFragment> {
    hash: KeyHash,
    shards: Box<[CachePadded<Mutex<Shard<T>>>]>,
    places: Places,
    v4: Family,
    v6: Family,
    /// Turn of the shards in expiry and eviction.
    turn: AtomicUsize,
}

impl<T: HeldFragment> Ipf<T> {
    /// An empty one with OVS's defaults. `seed` keeps senders from directing all datagrams to one shard.
    pub fn new(seed: u64) -> Ipf<T> {
        let hash = KeyHash::new(seed);
        let shard = || Shard { hash, lists: HashTable::new(), deadlines: BTreeMap::new(), datagrams: 0 };
        Ipf {
            hash,
            shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(shard()))).collect(),
            places: Places::new(MAX_FRAGMENTS_DEFAULT as usize),
            v4: Family::new(MIN_FRAGMENT_V4_BYTES),
            v6: Family::new(MIN_FRAGMENT_V6_BYTES),
            turn: AtomicUsize::new(0),
        }
    }

    fn family(&self, v6: bool) -> &Family {
        if v6 { &self.v6 } else { &self.v4 }
    }

    /// Enables or disables reassembly of a family. Held fragments stay, and expire.
    pub fn set_enabled(&self, v6: bool, enabled: bool) {
        self.family(v6).enabled.store(enabled, Ordering::Relaxed);
    }

    /// Sets the minimum bytes, from the IP header on, of fragments that are not the last one.
    ///
    /// # Errors
    /// Less than [`MIN_FRAGMENT_LIMIT_BYTES`].
    pub fn set_min_fragment_bytes(&self, v6: bool, bytes: u32) -> Result<(), OutOfRange> {
        if bytes < MIN_FRAGMENT_LIMIT_BYTES {
            return Err(OutOfRange);
        }
        self.family(v6).min_bytes.store(bytes as usize, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the maximum of held fragments of both families. Those beyond it stay.
    ///
    /// # Errors
    /// More than [`MAX_FRAGMENTS_LIMIT`].
    pub fn set_max_fragments(&self, max: u32) -> Result<(), OutOfRange> {
        if max > MAX_FRAGMENTS_LIMIT {
            return Err(OutOfRange);
        }
        self.places.set_max(max as usize);
        Ok(())
    }

    /// Number of held fragments.
    pub fn len(&self) -> usize {
        self.places.taken()
    }

    /// Whether none is held: a read of one number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Settings and counters.
    pub fn status(&self) -> FragmentStatus {
        let (v4, v6) = (self.v4.counts(), self.v6.counts());
        FragmentStatus { max: self.places.max() as u32, held: self.len() as u32, v4, v6 }
    }

    /// All datagrams with held fragments, in no particular order.
    pub fn lists(&self) -> Vec<FragmentList> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).lists.iter().map(describe));
        }
        all
    }

    /// Takes a fragment of connection zone `zone`, for a packet whose key has fragment bits. Appends to `evicted` those
    /// that lose their places to it; the caller drops them.
    pub fn take(&self, fragment: T, zone: u16, now_ms: u64, evicted: &mut Vec<T>) -> Taken<T> {
        let (v6, port) = (fragment.is_v6(), fragment.port());
        let family = self.family(v6);
        let parsed = match self.admit(&fragment, zone, evicted) {
            Ok(parsed) => parsed,
            Err(refusal) => {
                family.count(refusal);
                return Taken::Refused(fragment, refusal);
            }
        };
        let hash = parsed.key.hash(&self.hash);
        let mut shard = self.shard(hash);
        let list_max = list_max(v6, family.min_bytes());
        let taken = shard.add(hash, &parsed, fragment, list_max, now_ms);
        match &taken {
            Taken::Held => _ = family.accepted.fetch_add(1, Ordering::Relaxed),
            Taken::Complete(complete) => {
                family.accepted.fetch_add(1, Ordering::Relaxed);
                family.completed.fetch_add(complete.fragments.len() as u64, Ordering::Relaxed);
                complete.fragments.iter().for_each(|f| self.places.give_back(f.port()));
            }
            Taken::Refused(_, refusal) => {
                self.places.give_back(port);
                family.count(*refusal);
            }
        }
        taken
    }

    /// The fragment, if it may be held; takes a place for it.
    fn admit(&self, fragment: &T, zone: u16, evicted: &mut Vec<T>) -> Result<Fragment, Refusal> {
        let v6 = fragment.is_v6();
        let family = self.family(v6);
        if !self.v4.enabled() && !self.v6.enabled() {
            return Err(Refusal::Disabled);
        }
        let mut parsed = header::parse(fragment.packet(), fragment.l3(), v6)?;
        parsed.key.zone = zone;
        parsed.key.recirc_id = fragment.recirc_id();
        if !parsed.last && parsed.l3_bytes < family.min_bytes() {
            return Err(Refusal::TooSmall);
        }
        if !family.enabled() {
            return Err(Refusal::Disabled);
        }
        if self.place(fragment.port(), evicted) { Ok(parsed) } else { Err(Refusal::TooMany) }
    }

    /// Takes a place for a fragment of `port`, if necessary from another port.
    fn place(&self, port: u32, evicted: &mut Vec<T>) -> bool {
        for _ in 0..SEARCHES_MAX {
            if self.places.take(port) {
                return true;
            }
            let Some(debtor) = self.places.debtor(port) else { break };
            if self.evict(debtor, port, evicted) {
                return true;
            }
        }
        self.places.take(port)
    }

    /// Ends an old datagram with a fragment of `debtor`, whose place `port` gets; whether there was one.
    fn evict(&self, debtor: u32, port: u32, evicted: &mut Vec<T>) -> bool {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        for i in 0..SHARDS {
            let mut shard = lock(&self.shards[start.wrapping_add(i) % SHARDS]);
            let Some(list) = shard.evicted(debtor) else { continue };
            self.family(list.key.v6).evicted.fetch_add(list.held.len() as u64, Ordering::Relaxed);
            self.places.pass_on(debtor, port);
            let one = list.held.iter().position(|f| f.port() == debtor);
            let others = list.held.iter().enumerate().filter(|(n, _)| Some(*n) != one);
            others.for_each(|(_, f)| self.places.give_back(f.port()));
            evicted.extend(list.held);
            return true;
        }
        false
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<T>> {
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Removes datagrams whose time is over, until their fragments number `at_most` or none is left; the caller drops
    /// them. (OVS 3.1 sends them on, untracked, behind the next packet that it tracks, of any port and zone.) Call it
    /// regularly, again at once if the result has `at_most` fragments or more; a slice exceeds it by less than one
    /// datagram's fragments.
    pub fn expire(&self, now_ms: u64, at_most: usize) -> Vec<T> {
        let mut expired = Vec::new();
        if self.is_empty() {
            return expired;
        }
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        for i in 0..SHARDS {
            let mut shard = lock(&self.shards[start.wrapping_add(i) % SHARDS]);
            while expired.len() < at_most
                && let Some(list) = shard.expired(now_ms)
            {
                let family = self.family(list.key.v6);
                let late = now_ms >= list.deadline.0.saturating_add(PURGE_AFTER_MS);
                let counter = if late { &family.purged } else { &family.expired };
                counter.fetch_add(list.held.len() as u64, Ordering::Relaxed);
                list.held.iter().for_each(|f| self.places.give_back(f.port()));
                expired.extend(list.held);
            }
        }
        expired
    }
}

impl<T: HeldFragment> Shard<T> {
    /// Adds a fragment to its datagram, of at most `list_max` fragments.
    fn add(&mut self, hash: u64, parsed: &Fragment, fragment: T, list_max: usize, now_ms: u64) -> Taken<T> {
        if self.lists.find(hash, |l| l.key == parsed.key).is_none() {
            self.begin(hash, parsed.key, now_ms);
        }
        let Ok(mut entry) = self.lists.find_entry(hash, |l| l.key == parsed.key) else {
            return Taken::Refused(fragment, Refusal::ListFull);
        };
        let list = entry.get_mut();
        if list.failed || list.pieces.len() >= list_max {
            return Taken::Refused(fragment, Refusal::ListFull);
        }
        let Fragment { start, end, payload, last, .. } = *parsed;
        let piece = Piece { start, end, arrived: list.held.len() as u32, payload };
        if list.pieces.add(piece, last).is_err() {
            return Taken::Refused(fragment, Refusal::Overlap);
        }
        list.held.push(fragment);
        if list.pieces.complete().is_none() {
            return Taken::Held;
        }
        match complete(list) {
            Some(complete) => {
                let (list, _) = entry.remove();
                self.deadlines.remove(&list.deadline);
                Taken::Complete(complete)
            }
            None => {
                list.failed = true;
                Taken::Held
            }
        }
    }

    fn begin(&mut self, hash: u64, key: Key, now_ms: u64) {
        let deadline = (now_ms.saturating_add(TIMEOUT_MS), self.datagrams);
        self.datagrams += 1;
        self.deadlines.insert(deadline, key);
        let list = List { key, pieces: Pieces::default(), held: Vec::new(), deadline, failed: false };
        self.lists.insert_unique(hash, list, |l| l.key.hash(&self.hash));
    }

    /// Removes a datagram whose time is over.
    fn expired(&mut self, now_ms: u64) -> Option<List<T>> {
        let (deadline, key) = self.deadlines.first_key_value().filter(|(deadline, _)| deadline.0 < now_ms)?;
        self.remove(*deadline, *key)
    }

    /// Removes the oldest datagram with a fragment of `port`.
    fn evicted(&mut self, port: u32) -> Option<List<T>> {
        let is_of_port = |key: &Key| {
            let list = self.lists.find(key.hash(&self.hash), |l| l.key == *key);
            list.is_some_and(|l| l.held.iter().any(|f| f.port() == port))
        };
        let (deadline, key) = self.deadlines.iter().find(|(_, key)| is_of_port(key))?;
        self.remove(*deadline, *key)
    }

    fn remove(&mut self, deadline: Deadline, key: Key) -> Option<List<T>> {
        self.deadlines.remove(&deadline);
        let entry = self.lists.find_entry(key.hash(&self.hash), |l| l.key == key).ok()?;
        Some(entry.remove().0)
    }
}

/// The datagram of a list that has all its fragments, which it gives away; `None`: it is too large.
fn complete<T: HeldFragment>(list: &mut List<T>) -> Option<Box<Reassembled<T>>> {
    let pieces = list.pieces.in_order();
    let order: Vec<&T> = pieces.iter().filter_map(|p| list.held.get(p.arrived as usize)).collect();
    let head = order.first()?;
    let first = header::parse(head.packet(), head.l3(), head.is_v6()).ok()?;
    let whole = reassembled::join(&first, pieces, &order)?;
    let mut held: Vec<Option<T>> = std::mem::take(&mut list.held).into_iter().map(Some).collect();
    let fragments = pieces.iter().filter_map(|p| held.get_mut(p.arrived as usize)?.take()).collect();
    Some(Box::new(Reassembled::new(whole, &first, fragments)))
}

/// Maximum fragments of a datagram, as OVS derives it from the minimum size. For IPv6, with its headers of any length,
/// only the places limit them.
fn list_max(v6: bool, min_bytes: u32) -> usize {
    const HEADER_MAX_BYTES: u32 = 60;
    if v6 {
        usize::from(u16::MAX)
    } else {
        (65535 - HEADER_MAX_BYTES).div_ceil(min_bytes - HEADER_MAX_BYTES) as usize
    }
}

fn describe<T>(list: &List<T>) -> FragmentList {
    let Key { src, dst, id, recirc_id, zone, proto, v6 } = list.key;
    let v4 = |[a, b, c, d, ..]: [u8; 16]| [a, b, c, d].into();
    FragmentList {
        addresses: match v6 {
            true => CtAddresses::V6 { src: src.into(), dst: dst.into() },
            false => CtAddresses::V4 { src: v4(src), dst: v4(dst) },
        },
        recirc_id,
        ip_id: id,
        zone,
        proto,
        fragments: list.pieces.len() as u32,
        state: list.state(),
    }
}
