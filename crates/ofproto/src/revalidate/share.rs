//! Parts of a round that any thread can process.
//!
//! The revalidator divides a thread's counters by flow name: one thread processes each flow, in order. A [`Helper`]
//! is the queue of one helper thread. Translation takes no lock: the flow is checked again before its result is
//! adopted.

use super::at_once::count_first;
use super::credit::push;
use super::latest::{Latest, skip_unaffected};
use super::{Verdict, carry_out};
use crate::backer::{Backer, Rechecked};
use crate::changes::Changes;
use crate::flow_ops::Asked;
use crate::ukey::{Ukey, UkeyState, Ukeys};
use crate::xlate::{Request, Start, Translation, dropped};
use dpif::{FlowStats, PmdId, XlateDrop};
use flow::{FlowKey, PackedFlow, Ufid};
use std::collections::VecDeque;
use sync::{Mutex, lock};

/// Counters of one thread's flows.
pub(super) struct Share {
    pub(super) pmd: PmdId,
    pub(super) flows: Vec<(Ufid, FlowStats)>,
    /// Number of the round among those that read all flows.
    pub(super) full: Option<u64>,
    /// Duration of the last one of these.
    pub(super) full_round_ms: u64,
}

/// Result of a share.
pub(super) struct ShareDone {
    pub(super) pmd: PmdId,
    /// Flows of unknown origin.
    pub(super) unknown: Vec<Ufid>,
    pub(super) ops: Vec<Asked>,
}

/// Shares queued to one helper thread, and those it has completed.
pub struct Helper {
    given: Mutex<VecDeque<Share>>,
    done: Mutex<VecDeque<ShareDone>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Helper {
    /// A helper whose thread `wake` wakes.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Helper {
        Helper { given: Mutex::default(), done: Mutex::default(), wake }
    }

    pub(super) fn give(&self, share: Share) {
        lock(&self.given).push_back(share);
        (self.wake)();
    }

    pub(super) fn take_done(&self) -> Option<ShareDone> {
        lock(&self.done).pop_front()
    }

    /// Processes the next share; `false` if there is none.
    pub fn work(&self, backer: &Backer, now_ms: u64) -> bool {
        let Some(share) = lock(&self.given).pop_front() else { return false };
        let done = share.work(backer, now_ms);
        lock(&self.done).push_back(done);
        true
    }
}

/// Former translations of a flow whose last packets are not counted yet, at most.
const FORMER_MAX: usize = 8;

/// A translation of an installed flow.
struct Fresh {
    epoch: u64,
    /// `None`: see [`translate_again`].
    translation: Option<Translation>,
    /// Whether the flow's mask has all bits examined by the translation.
    covered: bool,
}

impl Share {
    /// Divides it into `n` shares, by flow name.
    pub(super) fn divide(self, n: usize) -> Vec<Share> {
        let part = |flows| Share { flows, ..self };
        if n == 1 {
            return vec![part(self.flows)];
        }
        let mut parts: Vec<Vec<_>> = vec![Vec::new(); n];
        for (ufid, stats) in &self.flows {
            parts[Ukeys::thread_of(*ufid, n)].push((*ufid, *stats));
        }
        parts.into_iter().map(|flows| Share { flows, ..self }).collect()
    }

    /// Pushes the counters of each flow and returns a verdict.
    pub(super) fn work(self, backer: &Backer, now_ms: u64) -> ShareDone {
        let mut done = ShareDone { pmd: self.pmd, unknown: Vec::new(), ops: Vec::new() };
        let mut latest = Latest::new(backer);
        for flow in &self.flows {
            match self.counted(&mut latest, flow, now_ms) {
                Some(op) => done.ops.extend(op),
                None => done.unknown.push(flow.0),
            }
        }
        done
    }

    /// `None` for an unknown flow.
    fn counted(
        &self,
        latest: &mut Latest<'_>,
        (ufid, stats): &(Ufid, FlowStats),
        now_ms: u64,
    ) -> Option<Option<Asked>> {
        let (ufid, backer) = (*ufid, latest.backer());
        let (flow, epoch, to_learn, worth) = match backer.ukeys.with(ufid, self.pmd, |k| {
            if k.state == UkeyState::Evicting {
                return None;
            }
            k.dump_seq = self.full.unwrap_or(k.dump_seq);
            k.state = UkeyState::Operational;
            let before = k.pushed;
            let to_learn = push(latest, k, stats);
            let epoch = latest.outdates_as_read(k)?;
            let new_packets = stats.packets.saturating_sub(before.packets);
            let limits = &backer.limits;
            let worth = limits.is_worth_checking(new_packets, before.used_ms, self.full_round_ms, now_ms);
            Some((k.flow.clone(), epoch, to_learn, worth))
        })? {
            Some(stale) => stale,
            None => return Some(None),
        };
        let replay = to_learn.then_some(stats);
        if !worth {
            let delete = |k: &mut Ukey| conclude(backer, ufid, Verdict::Delete, k, replay, false);
            return Some(backer.ukeys.with(ufid, self.pmd, delete).flatten());
        }
        Some(recheck(backer, ufid, self.pmd, &flow, epoch, replay, now_ms))
    }
}

/// Retranslates the flow of that name, if its key and mask are still `flow`, and applies the result. `replay`: its
/// last counters, for learning left to do.
pub(super) fn recheck(
    backer: &Backer,
    ufid: Ufid,
    pmd: PmdId,
    flow: &PackedFlow,
    epoch: u64,
    replay: Option<&FlowStats>,
    now_ms: u64,
) -> Option<Asked> {
    let fresh = Fresh::new(backer, ufid, flow, epoch, now_ms);
    let adopt = |fresh: Fresh, k: &mut Ukey| {
        let learned = k.cache.learns_address();
        let verdict = fresh.adopt(backer, ufid, k);
        conclude(backer, ufid, verdict, k, replay, learned)
    };
    with_outdated(backer, ufid, pmd, fresh, flow, adopt).flatten()
}

/// As [`recheck`], for a flow whose counters have not been read: reads them, for its old rules, before it is changed.
pub(super) fn recheck_uncounted(
    backer: &Backer,
    ufid: Ufid,
    pmd: PmdId,
    flow: &PackedFlow,
    epoch: u64,
    now_ms: u64,
) -> Vec<Asked> {
    let fresh = Fresh::new(backer, ufid, flow, epoch, now_ms);
    let adopt = |fresh: Fresh, k: &mut Ukey| {
        let old = std::mem::take(&mut k.cache);
        let verdict = fresh.adopt(backer, ufid, k);
        if let Verdict::Delete = verdict {
            // Its last counters come with the answer.
            k.cache = old;
            return carry_out(ufid, verdict, k).into_iter().collect();
        }
        let before = k.before.get_or_insert_default();
        // A later change than those waits for no answer of its own.
        let counts = before.len() < FORMER_MAX;
        if counts {
            before.push_back(old);
        } else {
            old.end_flow(Some(&k.cache));
        }
        let count = counts.then(|| count_first(ufid));
        [count, carry_out(ufid, verdict, k)].into_iter().flatten().collect()
    };
    with_outdated(backer, ufid, pmd, fresh, flow, adopt).unwrap_or_default()
}

/// Adopts a translation for the flow of that name, if its key and mask are still `flow` and it is older.
fn with_outdated<R>(
    backer: &Backer,
    ufid: Ufid,
    pmd: PmdId,
    fresh: Fresh,
    flow: &PackedFlow,
    adopt: impl FnOnce(Fresh, &mut Ukey) -> R,
) -> Option<R> {
    let epoch = fresh.epoch;
    let mut fresh = Some(fresh);
    let adopted = backer.ukeys.with(ufid, pmd, |k| {
        // Another thread may have been faster, or have installed another flow of that name.
        if k.state == UkeyState::Evicting || k.epoch >= epoch || k.flow != *flow {
            return None;
        }
        Some(adopt(fresh.take()?, k))
    });
    if let Some(unused) = fresh {
        unused.discard(backer, ufid);
    }
    adopted.flatten()
}

/// Replays the effects of a flow's last packets, and returns the operation for a verdict. `learned`: the former translation
/// learned their source.
fn conclude(
    backer: &Backer,
    ufid: Ufid,
    verdict: Verdict,
    k: &mut Ukey,
    replay: Option<&FlowStats>,
    learned: bool,
) -> Option<Asked> {
    match (&verdict, replay) {
        // Its packets ended connections all the same.
        (Verdict::Delete, Some(stats)) => k.cache.replay_timeouts(stats, &mut backer.effect_host()),
        (Verdict::Keep | Verdict::Modify(_), Some(stats)) => {
            k.cache.replay_learning_of_former(learned, stats, &mut backer.effect_host());
        }
        (Verdict::Keep | Verdict::Modify(_) | Verdict::Delete, None) => {}
    }
    carry_out(ufid, verdict, k)
}

/// As [`recheck`], for a flow unknown to other threads.
pub(super) fn recheck_own(backer: &Backer, ufid: Ufid, k: &mut Ukey, now_ms: u64) -> Verdict {
    let fresh = Fresh::new(backer, ufid, &k.flow, backer.epoch(), now_ms);
    fresh.adopt(backer, ufid, k)
}

impl Fresh {
    /// Retranslates a flow and notifies observers.
    fn new(backer: &Backer, ufid: Ufid, flow: &PackedFlow, epoch: u64, now_ms: u64) -> Fresh {
        let key = flow.key();
        backer.observe(|o| o.recheck_begins(ufid, &key));
        let translation = translate_again(backer, &key, now_ms);
        // A flow with an unnecessarily specific mask is still correct. Widening it would cost its packets an upcall.
        let covers = |t: &Translation| !t.to_upcall && flow.mask().covers(&backer.mask_of(t, &key));
        let covered = translation.as_ref().is_some_and(covers);
        Fresh { epoch, translation, covered }
    }

    /// Adopts it as the translation of a flow, and compares; notifies observers.
    fn adopt(self, backer: &Backer, ufid: Ufid, k: &mut Ukey) -> Verdict {
        if !self.covered {
            self.discard(backer, ufid);
            return Verdict::Delete;
        }
        let Some(t) = self.translation else { return Verdict::Delete };
        let actions = t.actions_to_put();
        let old_recircs = std::mem::replace(&mut k.recircs, t.recircs.into());
        backer.ukeys.defer_release(&old_recircs);
        k.cache.end_flow(Some(&t.cache));
        k.cache = t.cache;
        k.lookups = t.lookups;
        k.epoch = self.epoch;
        if *k.actions == actions[..] {
            backer.observe(|o| o.recheck_ends(ufid, Rechecked::Keep));
            return Verdict::Keep;
        }
        backer.observe(|o| o.recheck_ends(ufid, Rechecked::Modify));
        k.actions = backer.long_lists.share(actions.into());
        Verdict::Modify(k.actions.clone())
    }

    /// Releases its references.
    fn discard(self, backer: &Backer, ufid: Ufid) {
        if let Some(t) = self.translation {
            backer.recirc_release(&t.recircs);
        }
        backer.observe(|o| o.recheck_ends(ufid, Rechecked::Delete));
    }
}

/// `None` if the port is removed, or packets have no such key since the number of VLAN tags in keys changed.
fn translate_again(backer: &Backer, key: &FlowKey, now_ms: u64) -> Option<Translation> {
    let view = backer.view();
    if !key.is_of_vlan_limit(view.vlan_limit).unwrap_or(false) {
        return None;
    }
    let (bridge, of_port) = backer.receiver(&view, key)?;
    let Ok(flow) = bridge.flow_of(key, of_port) else {
        return Some(dropped(&key.to_flow(of_port), XlateDrop::InvalidTunnelMetadata));
    };
    let request = Request { view: &view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: false };
    Some(backer.translate(&request, key, &mut backer.xlate_host(false, now_ms)))
}

/// The key and mask of a flow whose epoch is over; `None` if it needs no check.
pub(super) fn is_stale(backer: &Backer, ufid: Ufid, pmd: PmdId, changes: &Changes) -> Option<PackedFlow> {
    let stale = |k: &mut Ukey| {
        skip_unaffected(changes, k);
        (k.state != UkeyState::Evicting && k.epoch < changes.epoch()).then(|| k.flow.clone())
    };
    backer.ukeys.with(ufid, pmd, stale).flatten()
}
