//! Installed flows as the slow path knows them: one [`Ukey`] per megaflow and forwarding thread.
//!
//! States only move forward (see [`UkeyState`]). The table is cut into shards with a lock each; no packet thread takes
//! one. Statistics of a megaflow are cumulative in the datapath; what was pushed to rules stands here.

use crate::xlate::XlateCache;
use dpif::{DpAction, FlowStats, PmdId};
use flow::{DpPort, FlowKey, KeyMask, RecircId, Ufid};
use std::collections::HashMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 64;

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
    /// The packet it was made from.
    pub key: FlowKey,
    /// Which bits count.
    pub mask: KeyMask,
    /// What the datapath does.
    pub actions: Arc<[DpAction]>,
    /// What its packets cause.
    pub cache: XlateCache,
    /// Frozen states that its actions name.
    pub recircs: Vec<RecircId>,
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
    /// What came since the last push; marks it pushed. A datapath whose counters went back starts anew.
    pub fn take_delta(&mut self, now: &FlowStats) -> (u64, u64) {
        let packets = now.packets.saturating_sub(self.pushed.packets);
        let bytes = now.bytes.saturating_sub(self.pushed.bytes);
        self.pushed = *now;
        (packets, bytes)
    }
}

type Shard = HashMap<(Ufid, PmdId), Ukey>;

/// Flows of each port, and how much of the ports' shares they take up.
#[derive(Default)]
struct Shares {
    by_port: HashMap<DpPort, u64>,
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

impl Ukeys {
    fn shard(&self, ufid: Ufid) -> MutexGuard<'_, Shard> {
        let n = (ufid.0 ^ ufid.0 >> 64) as u64;
        lock(&self.shards[(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS])
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

    /// Whether a port may have one more flow under the limit: up to its share in any case, beyond it of what is not kept for
    /// others. So a port that makes many flows does not keep others from having theirs.
    pub fn has_room(&self, port: DpPort, flow_limit: u64, ports: u64, kept_percent: u64) -> bool {
        if self.len() >= flow_limit {
            return false;
        }
        let share = share_of(flow_limit, ports, kept_percent);
        let mut shares = lock(&self.shares);
        shares.set_share(share);
        let kept = (share * ports).saturating_sub(shares.taken);
        let own = shares.by_port.get(&port).copied().unwrap_or(0);
        own < share || self.len().saturating_add(kept) < flow_limit
    }

    /// Adds a flow unless one of that name is there; gives it back then.
    pub fn insert(&self, ufid: Ufid, pmd: PmdId, ukey: Ukey) -> Result<(), Box<Ukey>> {
        let mut shard = self.shard(ufid);
        if shard.contains_key(&(ufid, pmd)) {
            return Err(Box::new(ukey));
        }
        lock(&self.shares).count(ukey.key.in_port(), true);
        shard.insert((ufid, pmd), ukey);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a flow.
    pub fn remove(&self, ufid: Ufid, pmd: PmdId) -> Option<Ukey> {
        let removed = self.shard(ufid).remove(&(ufid, pmd));
        if let Some(k) = &removed {
            lock(&self.shares).count(k.key.in_port(), false);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Works on a flow, if it is there, under its shard's lock.
    pub fn with<R>(&self, ufid: Ufid, pmd: PmdId, f: impl FnOnce(&mut Ukey) -> R) -> Option<R> {
        self.shard(ufid).get_mut(&(ufid, pmd)).map(f)
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

    /// Removes and returns the flows that `gone` says so of.
    pub fn sweep(&self, mut gone: impl FnMut(Ufid, PmdId, &mut Ukey) -> bool) -> Vec<Ukey> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let names: Vec<_> =
                shard.iter_mut().filter_map(|(n, k)| gone(n.0, n.1, k).then_some(*n)).collect();
            out.extend(names.iter().filter_map(|n| shard.remove(n)));
        }
        let mut shares = lock(&self.shares);
        out.iter().for_each(|k: &Ukey| shares.count(k.key.in_port(), false));
        self.count.fetch_sub(out.len() as u64, Ordering::Relaxed);
        out
    }
}
