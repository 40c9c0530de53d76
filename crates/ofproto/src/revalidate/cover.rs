//! Covers an epoch for barriers ([`crate::barrier`]): waits for earlier translations, checks all flows in slices, and
//! waits until the datapath has executed the changes of affected ones.

use super::Revalidator;
use super::latest::skip_unaffected;
use super::share::recheck_uncounted;
use crate::backer::Backer;
use crate::flow_ops::{Asked, Batch};
use crate::ukey::{UkeyState, Walk};
use dpif::{Datapath, PmdId};
use flow::Ufid;
use std::collections::{BTreeMap, VecDeque};

/// Affected flows retranslated by one slice.
const FLOWS_AT_ONCE: usize = 1024;

/// Slices of the search done before replies are processed: a connection waits for it.
const SLICES_AT_ONCE: usize = 16;

/// An epoch being covered.
pub(super) struct Cover {
    epoch: u64,
    phase: Phase,
    /// Affected flows that are to be retranslated.
    affected: VecDeque<(Ufid, PmdId)>,
    /// Batches whose replies it waits for.
    pub(super) waiting: u64,
}

/// Phase of covering an epoch.
enum Phase {
    /// Earlier translations are under way.
    Translations,
    /// Searches affected flows.
    Search(Walk),
    /// Changes affected flows in the datapath.
    Changes,
}

/// State of an affected flow.
enum Affected {
    /// It is gone, or has the actions of the present epoch.
    Done,
    /// Its put or delete is under way.
    Waits,
    /// It is to be retranslated.
    Stale(flow::PackedFlow),
}

impl Revalidator {
    /// Continues to cover the epoch that a barrier waits for; `true` if a slice of work is left.
    pub(super) fn cover(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) -> bool {
        if self.cover.is_none() && backer.barrier.wanted().is_some() {
            let epoch = backer.epoch();
            self.cover =
                Some(Cover { epoch, phase: Phase::Translations, affected: VecDeque::new(), waiting: 0 });
        }
        let Some(cover) = &mut self.cover else { return false };
        if matches!(cover.phase, Phase::Translations) && !backer.barrier.translates_before(cover.epoch) {
            cover.phase = Phase::Search(Walk::default());
        }
        for _ in 0..SLICES_AT_ONCE {
            let Phase::Search(from) = cover.phase else { break };
            match search(backer, from, &mut cover.affected) {
                Some(next) => cover.phase = Phase::Search(next),
                None => {
                    cover.phase = Phase::Changes;
                    // Changes sent before may be executed last, and are then followed by others.
                    cover.waiting += await_changes(self.tags.values_mut());
                    cover.waiting += await_changes(backer.at_once.in_flight().batches());
                }
            }
        }
        if matches!(cover.phase, Phase::Changes) {
            return self.change_affected(backer, dp, now_ms);
        }
        matches!(self.cover, Some(Cover { phase: Phase::Search(_), .. }))
    }

    /// Retranslates some affected flows; `true` if others are left that need not wait.
    fn change_affected(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) -> bool {
        let Some(cover) = &mut self.cover else { return false };
        let (epoch, count) = (cover.epoch, cover.affected.len().min(FLOWS_AT_ONCE));
        let mut going: BTreeMap<PmdId, Vec<Asked>> = BTreeMap::new();
        let mut waits = 0;
        for (ufid, pmd) in cover.affected.drain(..count).collect::<Vec<_>>() {
            match state_of(backer, ufid, pmd, epoch) {
                Affected::Done => {}
                Affected::Waits => {
                    waits += 1;
                    cover.affected.push_back((ufid, pmd));
                }
                Affected::Stale(flow) => {
                    let present = backer.epoch();
                    let ops = recheck_uncounted(backer, ufid, pmd, &flow, present, now_ms);
                    going.entry(pmd).or_default().extend(ops);
                }
            }
        }
        let mut is_done = cover.affected.is_empty() && cover.waiting == 0 && going.is_empty();
        if is_done {
            // Flows that another thread has changed meanwhile count as done, but the changes may be in flight.
            cover.waiting = await_changes(backer.at_once.in_flight().batches());
            is_done = cover.waiting == 0;
        }
        let goes_on = cover.affected.len() > waits;
        if is_done {
            self.cover = None;
            self.done_epoch = self.done_epoch.max(epoch);
            backer.barrier.set_covered(epoch);
        }
        for (pmd, ops) in going {
            self.send(dp, pmd, ops);
        }
        // Another connection may wait for a later epoch.
        goes_on || is_done && backer.barrier.wanted().is_some()
    }
}

/// Has an epoch being covered wait for those batches that change flows; returns their number.
fn await_changes<'a>(batches: impl Iterator<Item = &'a mut Batch>) -> u64 {
    let changes = |batch: &Batch| batch.ops.iter().any(|(_, sent)| sent.changes_flow());
    let waits = |batch: &mut Batch| !std::mem::replace(&mut batch.covers, true);
    batches.filter(|batch| changes(batch)).map(waits).filter(|newly| *newly).count() as u64
}

/// Searches one slice of flows for affected ones, and moves the others to the present epoch. Returns the position to
/// resume; `None` at the end.
fn search(backer: &Backer, from: Walk, affected: &mut VecDeque<(Ufid, PmdId)>) -> Option<Walk> {
    let changes = backer.latest_changes();
    backer.ukeys.each(from, |ufid, pmd, k| {
        skip_unaffected(&changes, k);
        if k.epoch < changes.epoch() {
            affected.push_back((ufid, pmd));
        }
    })
}

fn state_of(backer: &Backer, ufid: Ufid, pmd: PmdId, epoch: u64) -> Affected {
    let state = backer.ukeys.with(ufid, pmd, |k| match k.state {
        // The datapath may still have it, with old actions.
        UkeyState::Evicting => Affected::Waits,
        _ if k.epoch >= epoch => Affected::Done,
        UkeyState::Visible => Affected::Waits,
        UkeyState::Operational => Affected::Stale(k.flow.clone()),
    });
    state.unwrap_or(Affected::Done)
}
