//! Flows of unknown origin: installed by another program, or before a restart. They are adopted or deleted.

use super::credit::push;
use super::latest::Latest;
use super::{Revalidator, Verdict, carry_out, share};
use crate::backer::Backer;
use crate::cache::XlateCache;
use crate::changes::Lookups;
use crate::flow_ops::Sent;
use crate::ukey::{Ukey, UkeyState};
use dpif::{DpAction, DpifOp, FlowRecord, FlowStats, PmdId};
use flow::{PackedFlow, Ufid};
use sync::Ordering;

impl Revalidator {
    /// Adopts a flow of unknown origin from the datapath.
    pub(super) fn foreign(
        &mut self,
        backer: &Backer,
        pmd: PmdId,
        r: &FlowRecord,
        now_ms: u64,
    ) -> Option<(Ufid, Sent, DpifOp)> {
        if self.ended.contains(&(r.ufid, pmd)) {
            return None;
        }
        let mut k = foreign_ukey(r, now_ms);
        k.dump_seq = self.full_rounds;
        // Know the effects of its packets before counting them.
        let verdict = share::recheck_own(backer, r.ufid, &mut k, now_ms);
        push(&mut Latest::new(backer), &mut k, &r.stats);
        // Its userspace actions were encoded by its creator: encode them again.
        let hands_up = |a: &DpAction| a.any(|a| matches!(a, DpAction::Userspace(_)));
        let verdict = match verdict {
            Verdict::Keep if k.actions.iter().any(hands_up) => Verdict::Modify(k.actions.clone()),
            Verdict::Keep => Verdict::Keep,
            Verdict::Modify(actions) => Verdict::Modify(actions),
            Verdict::Delete => Verdict::Delete,
        };
        let op = carry_out(r.ufid, verdict, &mut k);
        match backer.ukeys.insert(r.ufid, pmd, k) {
            Ok(()) => {
                self.foreign_flows.fetch_add(1, Ordering::Relaxed);
                op
            }
            Err(refused) => {
                backer.ukeys.defer_release(&refused.recircs);
                None
            }
        }
    }
}

/// A flow of unknown origin in the datapath.
pub(super) fn foreign_ukey(r: &FlowRecord, now_ms: u64) -> Ukey {
    Ukey {
        flow: PackedFlow::new(&r.key, &r.mask),
        actions: r.actions.clone(),
        cache: XlateCache::default(),
        before: None,
        lookups: Lookups::ALL,
        recircs: Box::default(),
        epoch: 0,
        pushed: FlowStats::default(),
        created_ms: now_ms,
        dump_seq: 0,
        state: UkeyState::Operational,
    }
}
