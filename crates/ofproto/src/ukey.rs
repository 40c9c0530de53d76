//! Installed flows as the slow path knows them: one [`Ukey`] per megaflow and forwarding thread.
//!
//! States only move forward (see [`UkeyState`]). The table is cut into shards with a lock each; no packet thread takes
//! one. Statistics of a megaflow are cumulative in the datapath; what was pushed to rules stands here.

use crate::xlate::XlateCache;
use dpif::{DpAction, FlowStats, PmdId};
use flow::{DpPort, PackedFlow, RecircId, Ufid};
use hashbrown::HashTable;
use rapidhash::RapidHashMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 256;
/// Flows that one of the walks over all of them looks at before others have their turn.
const WALK_FLOWS: usize = 2048;

/// Life of an installed flow.
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
    /// The packet it was made from, and which bits count.
    pub flow: PackedFlow,
    /// What the datapath does.
    pub actions: Arc<[DpAction]>,
    /// What its packets cause.
    pub cache: XlateCache,
    /// Frozen states that its actions name.
    pub recircs: Box<[RecircId]>,
    /// Epoch of its translation.
    pub epoch: u64,
    /// Statistics pushed so far.
    pub pushed: FlowStats,
    /// When it was made.
    pub created_ms: u64,
    /// The dump that saw it last.
    pub dump_seq: u64,
    /// State.
    pub state: UkeyState,
}

impl Ukey {
    /// When it had its last packet, as far as it is known, or was made.
    pub fn last_ms(&self) -> u64 {
        self.pushed.used_ms.max(self.created_ms)
    }

    /// What came since the last push; marks it pushed. A datapath whose counters went back starts anew.
    pub fn take_delta(&mut self, now: &FlowStats) -> (u64, u64) {
        let packets = now.packets.saturating_sub(self.pushed.packets);
        let bytes = now.bytes.saturating_sub(self.pushed.bytes);
        self.pushed = *now;
        (packets, bytes)
    }
}

/// A place in a shard: the name beside the flow, so that neither a search nor growth looks at flows, nor a search for idle ones
/// at others.
struct Entry {
    ufid: Ufid,
    pmd: PmdId,
    /// [`Ukey::last_ms`].
    last_ms: u64,
    ukey: Box<Ukey>,
}

type Shard = HashTable<Entry>;

/// Spreads names, which datapaths choose at random but users need not.
fn hash_of(ufid: Ufid) -> u64 {
    let folded = (ufid.0 ^ ufid.0 >> 64) as u64;
    let spread = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

fn shard_of(hash: u64) -> usize {
    // Other bits than those that a table looks at.
    (hash >> 24) as usize % SHARDS
}

/// A place in a walk over all flows, which is done in parts so that the walker's processor serves others meanwhile. Flows
/// that come or go meanwhile may or may not be seen; the others are, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk(usize);

/// Flows of each port, and how much of the ports' shares they take up.
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

/// What part of the flow limit is kept for ports that have few flows, in percent.
pub const KEPT_FOR_PORTS_PERCENT: u64 = 25;

/// The flows that each of `ports` ports may have whatever the others have, when [`KEPT_FOR_PORTS_PERCENT`] are kept. What no
/// port received counts as a port.
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

/// Frozen states whose flow is gone while packets may still be on their way to them: two generations, the older one is
/// let go at the next turn.
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

/// How many flows there may be.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Flows in all.
    pub flow_limit: u64,
    /// Ports that share what is kept of that.
    pub ports: u64,
    /// Of the limit so many percent are kept for ports that have few flows.
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

    /// The one of `n` revalidator threads that works on the flows of that name.
    pub(crate) fn thread_of(ufid: Ufid, n: usize) -> usize {
        shard_of(hash_of(ufid)) % n
    }

    /// Number of flows of each of `n` revalidator threads.
    pub fn lens(&self, n: usize) -> Vec<usize> {
        let mut lens = vec![0; n];
        self.shards.iter().enumerate().for_each(|(i, shard)| lens[i % n] += lock(shard).len());
        lens
    }

    /// Number of flows installed or on their way.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of flows of a port.
    pub fn port_len(&self, port: DpPort) -> u64 {
        lock(&self.shares).by_port.get(&port).copied().unwrap_or(0)
    }

    /// Takes a place for a flow of a port, if it may have one more: up to its share in any case, beyond it of what is not
    /// kept for others. So a port that makes many flows does not keep others from having theirs. The place is filled by
    /// [`Ukeys::fill`].
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

    /// Adds a flow in the place that was taken for it, unless one of that name is there; gives it back then, and the place is
    /// free.
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

    /// Adds a flow whatever the limit, unless one of that name is there; gives it back then.
    pub fn insert(&self, ufid: Ufid, pmd: PmdId, ukey: Ukey) -> Result<(), Box<Ukey>> {
        lock(&self.shares).count(ukey.flow.in_port(), true);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.fill(ufid, pmd, ukey)
    }

    /// Places of flows of these ports are free again.
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

    /// Works on a flow, if it is there, under its shard's lock.
    pub fn with<R>(&self, ufid: Ufid, pmd: PmdId, f: impl FnOnce(&mut Ukey) -> R) -> Option<R> {
        let hash = hash_of(ufid);
        let mut shard = self.shard(hash);
        let entry = shard.find_mut(hash, |e| e.ufid == ufid && e.pmd == pmd)?;
        let result = f(&mut entry.ukey);
        entry.last_ms = entry.ukey.last_ms();
        Some(result)
    }

    /// Keeps ids for a while after their flow or packet, for packets between two passes.
    pub fn defer_release(&self, ids: &[RecircId]) {
        if !ids.is_empty() {
            lock(&self.deferred).young.extend_from_slice(ids);
        }
    }

    /// A turn of the revalidator is over: the ids to release now.
    pub fn take_deferred(&self) -> Vec<RecircId> {
        let mut d = lock(&self.deferred);
        let young = std::mem::take(&mut d.young);
        std::mem::replace(&mut d.old, young)
    }

    /// Part of a walk over all flows, a shard at a time under its lock. Where to go on; `None` at the end.
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

    /// Looks at some of the flows that had their last packet then or earlier. Where to go on; `None` at the end.
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

    /// Looks at some flows, removes those that `gone` says so of, and returns them, with where to go on; `None` at the end.
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
