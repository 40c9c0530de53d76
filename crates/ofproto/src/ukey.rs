//! Installed flows as known to the slow path: one [`Ukey`] per megaflow and forwarding thread.
//!
//! States only move forward (see [`UkeyState`]). The table is sharded with a lock per shard; no packet thread takes
//! one. Statistics of a megaflow are cumulative in the datapath; the ukey stores those pushed to rules.

use crate::cache::XlateCache;
use crate::changes::Lookups;
use dpif::actions::{Sample, Userspace};
use dpif::{DpAction, FlowStats, PmdId, UserCookie};
use flow::{DpPort, PackedFlow, RecircId, Ufid};
use hashbrown::HashTable;
use rapidhash::RapidHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 256;
/// Flows examined by one slice of a walk over all of them.
const WALK_FLOWS: usize = 2048;

/// Life cycle of an installed flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UkeyState {
    /// The put was sent.
    Visible,
    /// The datapath has it.
    Operational,
    /// The delete was sent.
    Evicting,
}

/// One installed flow.
#[derive(Debug)]
pub struct Ukey {
    /// The packet it was made from, and its mask.
    pub flow: PackedFlow,
    /// Its datapath actions.
    pub actions: Arc<[DpAction]>,
    /// Effects of its packets.
    pub cache: XlateCache,
    /// Effects of its packets until the datapath has the actions of the next change, oldest first: changes are under way.
    pub before: Option<Box<VecDeque<XlateCache>>>,
    /// Lookups of its translation.
    pub lookups: Lookups,
    /// Frozen states referenced by its actions.
    pub recircs: Box<[RecircId]>,
    /// Epoch of its translation.
    pub epoch: u64,
    /// Statistics pushed so far.
    pub pushed: FlowStats,
    /// Time of creation.
    pub created_ms: u64,
    /// The last dump that showed it.
    pub dump_seq: u64,
    /// State.
    pub state: UkeyState,
}

impl Ukey {
    /// Time of its last known packet, or of its creation.
    pub fn last_ms(&self) -> u64 {
        self.pushed.used_ms.max(self.created_ms)
    }

    /// Whether it was idle for the first of these times; with an `excess` of flows, whatever it was. A flow of sessions stays
    /// for the second one, for its packets are rare, and a miss may have to wait.
    pub fn is_over(&self, [idle_ms, longest_ms]: [u64; 2], excess: bool, now_ms: u64) -> bool {
        let is_idle = |ms: u64| self.last_ms().saturating_add(ms) <= now_ms;
        if self.serves_sessions() { is_idle(longest_ms) } else { excess || is_idle(idle_ms) }
    }

    /// Whether control packets of link protocols may pass through it: to their session, or out of a tunnel.
    fn serves_sessions(&self) -> bool {
        fn serves(action: &DpAction) -> bool {
            if let DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons })) = action {
                return dpif::slow_path::has_link(*reasons);
            }
            // With a meter of the slow path.
            if let DpAction::Sample(Sample { actions, .. }) = action {
                return actions.iter().any(serves);
            }
            matches!(action, DpAction::TnlPop(_))
        }
        self.actions.iter().any(serves)
    }

    /// Statistics since the last push; marks them pushed. If a datapath's counters went back, starts anew. Those read
    /// before the pushed ones, whose answer came later, change nothing.
    pub fn take_delta(&mut self, now: &FlowStats) -> (u64, u64) {
        if now.packets < self.pushed.packets && now.used_ms <= self.pushed.used_ms {
            return (0, 0);
        }
        let packets = now.packets.saturating_sub(self.pushed.packets);
        let bytes = now.bytes.saturating_sub(self.pushed.bytes);
        self.pushed = *now;
        (packets, bytes)
    }
}

/// An entry of a shard: the name beside the flow, so that neither a search nor growth reads flows, nor a search for
/// idle ones reads others.
struct Entry {
    ufid: Ufid,
    pmd: PmdId,
    /// [`Ukey::last_ms`].
    last_ms: u64,
    ukey: Box<Ukey>,
}

type Shard = HashTable<Entry>;

/// Hashes names, which datapaths choose at random but users may not.
fn hash_of(ufid: Ufid) -> u64 {
    let folded = (ufid.0 ^ ufid.0 >> 64) as u64;
    let spread = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

fn shard_of(hash: u64) -> usize {
    // Other bits than those used by a hash table.
    (hash >> 24) as usize % SHARDS
}

/// A position in a walk over all flows, which is done in slices to share the processor. Flows added or removed
/// meanwhile may be missed; the others are visited once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk(usize);

/// Flows of each port, and the used part of the ports' shares.
#[derive(Default)]
struct Shares {
    by_port: RapidHashMap<DpPort, u64>,
    share: u64,
    /// Sum over ports of their flows, each up to `share`.
    taken: u64,
}

impl Shares {
    fn count(&mut self, port: DpPort, more: bool) {
        let n = self.by_port.entry(port).or_default();
        if more {
            *n += 1;
            self.taken += u64::from(*n <= self.share);
        } else {
            self.taken -= u64::from(*n <= self.share && *n > 0);
            *n = n.saturating_sub(1);
            if *n == 0 {
                self.by_port.remove(&port);
            }
        }
    }

    fn set_share(&mut self, share: u64) {
        if self.share != share {
            self.share = share;
            self.taken = self.by_port.values().map(|n| *n.min(&share)).sum();
        }
    }
}

/// Part of the flow limit reserved for ports with few flows, in percent.
pub const KEPT_FOR_PORTS_PERCENT: u64 = 25;

/// The guaranteed flows of each of `ports` ports, with [`KEPT_FOR_PORTS_PERCENT`] reserved. Packets without an input
/// port count as a port.
pub fn port_share(flow_limit: u64, ports: u64) -> u64 {
    share_of(flow_limit, ports, KEPT_FOR_PORTS_PERCENT)
}

fn share_of(flow_limit: u64, ports: u64, percent: u64) -> u64 {
    (flow_limit.saturating_mul(percent) / 100).checked_div(ports).unwrap_or(0)
}

/// All installed flows of a backer.
pub struct Ukeys {
    shards: Vec<Mutex<Shard>>,
    count: AtomicU64,
    shares: Mutex<Shares>,
    deferred: Mutex<Deferred>,
}

/// Frozen states of removed flows whose packets may still be in flight: two generations; each turn releases the
/// older one.
#[derive(Default)]
struct Deferred {
    young: Vec<RecircId>,
    old: Vec<RecircId>,
}

impl Default for Ukeys {
    fn default() -> Ukeys {
        Ukeys {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicU64::new(0),
            shares: Mutex::default(),
            deferred: Mutex::default(),
        }
    }
}

/// Flow limits.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Total flows.
    pub flow_limit: u64,
    /// Number of ports that share the reserved part.
    pub ports: u64,
    /// Percentage of the limit reserved for ports with few flows.
    pub kept_percent: u64,
}

impl Shares {
    /// Whether a port may have one more flow beside `all`.
    fn has_room(&mut self, port: DpPort, all: u64, room: &Room) -> bool {
        if all >= room.flow_limit {
            return false;
        }
        let share = share_of(room.flow_limit, room.ports, room.kept_percent);
        self.set_share(share);
        let kept = (share * room.ports).saturating_sub(self.taken);
        let own = self.by_port.get(&port).copied().unwrap_or(0);
        own < share || all.saturating_add(kept) < room.flow_limit
    }
}

impl Ukeys {
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(hash)])
    }

    /// The one of `n` revalidator threads responsible for the flow of that name.
    pub(crate) fn thread_of(ufid: Ufid, n: usize) -> usize {
        shard_of(hash_of(ufid)) % n
    }

    /// Number of flows of each of `n` revalidator threads.
    pub fn lens(&self, n: usize) -> Vec<usize> {
        let mut lens = vec![0; n];
        self.shards.iter().enumerate().for_each(|(i, shard)| lens[i % n] += lock(shard).len());
        lens
    }

    /// Number of flows installed or being installed.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of flows of a port.
    pub fn port_len(&self, port: DpPort) -> u64 {
        lock(&self.shares).by_port.get(&port).copied().unwrap_or(0)
    }

    /// Reserves a place for a flow of a port: up to its share in any case, beyond it from the part not reserved for
    /// others. So a port with many flows does not exclude others. [`Ukeys::fill`] fills the place.
    #[must_use]
    pub fn reserve(&self, port: DpPort, room: &Room) -> bool {
        let mut shares = lock(&self.shares);
        let has_room = shares.has_room(port, self.len(), room);
        if has_room {
            shares.count(port, true);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Adds a flow in its reserved place; if the name exists, returns the flow and frees the place.
    pub fn fill(&self, ufid: Ufid, pmd: PmdId, ukey: Ukey) -> Result<(), Box<Ukey>> {
        let hash = hash_of(ufid);
        let port = ukey.flow.in_port();
        let entry = Entry { ufid, pmd, last_ms: ukey.last_ms(), ukey: Box::new(ukey) };
        let mut shard = self.shard(hash);
        if shard.find(hash, |e| e.ufid == ufid && e.pmd == pmd).is_some() {
            drop(shard);
            self.free([port].into_iter());
            return Err(entry.ukey);
        }
        shard.insert_unique(hash, entry, |e| hash_of(e.ufid));
        Ok(())
    }

    /// Adds a flow regardless of the limit; returns it if the name exists.
    pub fn insert(&self, ufid: Ufid, pmd: PmdId, ukey: Ukey) -> Result<(), Box<Ukey>> {
        lock(&self.shares).count(ukey.flow.in_port(), true);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.fill(ufid, pmd, ukey)
    }

    /// Frees the places of flows of these ports.
    fn free(&self, ports: impl Iterator<Item = DpPort>) {
        let mut shares = lock(&self.shares);
        for port in ports {
            shares.count(port, false);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a flow.
    pub fn remove(&self, ufid: Ufid, pmd: PmdId) -> Option<Ukey> {
        let hash = hash_of(ufid);
        let mut shard = self.shard(hash);
        let found = shard.find_entry(hash, |e| e.ufid == ufid && e.pmd == pmd).ok()?;
        let (entry, _) = found.remove();
        drop(shard);
        self.free([entry.ukey.flow.in_port()].into_iter());
        Some(*entry.ukey)
    }

    /// Runs a closure on a flow, if it exists, under its shard's lock.
    pub fn with<R>(&self, ufid: Ufid, pmd: PmdId, f: impl FnOnce(&mut Ukey) -> R) -> Option<R> {
        let hash = hash_of(ufid);
        let mut shard = self.shard(hash);
        let entry = shard.find_mut(hash, |e| e.ufid == ufid && e.pmd == pmd)?;
        let result = f(&mut entry.ukey);
        entry.last_ms = entry.ukey.last_ms();
        Some(result)
    }

    /// Keeps ids for a while after the end of their flow or packet, for packets between two passes.
    pub fn defer_release(&self, ids: &[RecircId]) {
        if !ids.is_empty() {
            lock(&self.deferred).young.extend_from_slice(ids);
        }
    }

    /// Ends a turn of the revalidator: returns the ids to release now.
    pub fn take_deferred(&self) -> Vec<RecircId> {
        let mut d = lock(&self.deferred);
        let young = std::mem::take(&mut d.young);
        std::mem::replace(&mut d.old, young)
    }

    /// One slice of a walk over all flows, a shard at a time under its lock. Returns the position to resume; `None`
    /// at the end.
    fn walk(&self, from: Walk, mut f: impl FnMut(&mut Shard)) -> Option<Walk> {
        let mut seen = 0;
        for n in from.0..SHARDS {
            let mut shard = lock(&self.shards[n]);
            seen += shard.len();
            f(&mut shard);
            if seen >= WALK_FLOWS && n + 1 < SHARDS {
                return Some(Walk(n + 1));
            }
        }
        None
    }

    /// Visits some of the flows. Returns the position to resume; `None` at the end.
    pub fn each(&self, from: Walk, mut f: impl FnMut(Ufid, PmdId, &mut Ukey)) -> Option<Walk> {
        self.walk(from, |shard| shard.iter_mut().for_each(|e| f(e.ufid, e.pmd, &mut e.ukey)))
    }

    /// Visits some of the flows whose last packet is not later than the given time. Returns the position to resume;
    /// `None` at the end.
    pub fn each_idle(
        &self,
        from: Walk,
        since_ms: u64,
        mut f: impl FnMut(Ufid, PmdId, &mut Ukey),
    ) -> Option<Walk> {
        self.walk(from, |shard| {
            let idle = shard.iter_mut().filter(|e| e.last_ms <= since_ms);
            idle.for_each(|e| f(e.ufid, e.pmd, &mut e.ukey));
        })
    }

    /// Visits some flows, removes those that satisfy `gone`, and returns them with the position to resume; `None` at
    /// the end.
    pub fn sweep(
        &self,
        from: Walk,
        mut gone: impl FnMut(Ufid, PmdId, &mut Ukey) -> bool,
    ) -> (Vec<Ukey>, Option<Walk>) {
        let mut out: Vec<Ukey> = Vec::new();
        let next = self.walk(from, |shard| {
            out.extend(shard.extract_if(|e| gone(e.ufid, e.pmd, &mut e.ukey)).map(|e| *e.ukey));
        });
        self.free(out.iter().map(|k| k.flow.in_port()));
        (out, next)
    }
}
