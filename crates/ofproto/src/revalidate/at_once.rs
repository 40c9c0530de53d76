//! Changes flows at once after a change of the tables, on the thread that made it.
//!
//! A round takes several steps: it wakes the revalidator, which asks every forwarding thread for its counters before it
//! translates affected flows again. With few flows, and few affected ones, [`change`] finds these in the slow path's own
//! table and sends their new actions directly. The revalidator receives the answers, and calls it too, for more flows,
//! before it starts a round after a change.
//!
//! Packets up to the change count for the old rules: the flow is read before it is changed, and its old effects stay
//! with it until then ([`crate::ukey::Ukey::before`]).

use super::latest::skip_unaffected;
use super::share::recheck_uncounted;
use crate::backer::Backer;
use crate::flow_ops::{Asked, Sent};
use crate::ukey::{UkeyState, Walk};
use dpif::{Datapath, DpifOp, PmdId};
use flow::{PackedFlow, Ufid};
use std::collections::BTreeMap;

/// Limits of the work done at once.
#[derive(Clone, Copy, Debug)]
pub struct Few {
    /// Flows tested.
    pub flows: u64,
    /// Flows translated again.
    pub affected: usize,
    /// Whether to wait for another thread that does the same.
    pub waits: bool,
}

impl Few {
    /// For a thread with other work, such as the main loop: a fraction of a millisecond.
    pub const FOR_OTHERS: Few = Few { flows: 512, affected: 32, waits: false };
    /// For a thread that waits for nothing else: as many as for the revalidator.
    pub const FOR_BONDS: Few = Few::FOR_REVALIDATOR;
    /// For the revalidator.
    pub(super) const FOR_REVALIDATOR: Few = Few { flows: 16_384, affected: 512, waits: true };
}

/// The affected flows, and the epoch up to which they are known; `None` if there are too many, or flows to test.
fn affected(backer: &Backer, few: Few) -> Option<(u64, Vec<(Ufid, PmdId, PackedFlow)>)> {
    if backer.ukeys.len() > few.flows {
        return None;
    }
    let changes = backer.latest_changes();
    let mut affected = Vec::new();
    let mut walk = (!backer.ukeys.is_empty()).then(Walk::default);
    while let Some(from) = walk {
        walk = backer.ukeys.each(from, |ufid, pmd, k| {
            if affected.len() > few.affected {
                return;
            }
            skip_unaffected(&changes, k);
            // One whose put is under way is checked after it, and one that ends needs no check.
            if k.state == UkeyState::Operational && k.epoch < changes.epoch() {
                affected.push((ufid, pmd, k.flow.clone()));
            }
        });
        if affected.len() > few.affected {
            return None;
        }
    }
    Some((changes.epoch(), affected))
}

/// Brings the datapath up to date with the tables, if that is little work: sends new actions of the affected flows.
/// Returns `false` if the revalidator has to: there are too many flows, it is held or at work, or does not exist.
pub fn change(backer: &Backer, dp: &dyn Datapath, few: Few, now_ms: u64) -> bool {
    let at_once = &backer.at_once;
    if at_once.done_epoch() == backer.epoch() {
        return true;
    }
    // Locked until all is sent, so that a barrier finds each changed flow in flight.
    let Some(mut state) = at_once.begin(few.waits).filter(|_| !backer.barrier.is_held()) else {
        return false;
    };
    let Some((epoch, flows)) = affected(backer, few) else { return false };
    let mut going: BTreeMap<PmdId, Vec<Asked>> = BTreeMap::new();
    for (ufid, pmd, flow) in flows {
        going.entry(pmd).or_default().extend(recheck_uncounted(backer, ufid, pmd, &flow, epoch, now_ms));
    }
    going.into_iter().for_each(|(pmd, ops)| state.send(dp, pmd, ops));
    at_once.set_done(epoch);
    true
}

/// Reads a flow whose counters up to now are those of its old rules.
pub(super) fn count_first(ufid: Ufid) -> Asked {
    (ufid, Sent::CountBefore, DpifOp::FlowGet(ufid))
}
