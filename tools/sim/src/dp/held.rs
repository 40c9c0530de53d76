//! Fragments that wait in the real cores, and the checks of them.

use super::{Inner, SimDatapath};
use crate::report::Invariant;

/// Fragments by their end, for the coverage.
#[derive(Clone, Copy, Default)]
pub(crate) struct FragmentsLeft {
    pub(crate) completed: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
}

impl SimDatapath {
    /// Checks that each fragment that was held has left, has ended, or is there, and that not too many are.
    pub(super) fn check_fragments(&self, inner: &mut Inner) {
        let status = self.shared.fragment_status();
        let sum = |of: fn(&dpif::FragmentCounts) -> u64| of(&status.v4) + of(&status.v6);
        let (late, evicted) = (sum(|f| f.expired + f.purged), sum(|f| f.evicted));
        let ledgers = || inner.cores.iter().map(|c| c.pmd.ledger());
        let (held, released): (u64, u64) =
            (ledgers().map(|l| l.held).sum(), ledgers().map(|l| l.released).sum());
        let (completed, refused) = (sum(|f| f.completed), evicted + sum(|f| f.too_many));
        inner.fragments_left = FragmentsLeft { completed, late, refused };
        if held != released + late + evicted + u64::from(status.held) || released != completed {
            let why = || format!("{held} fragments held, {released} released: {status:?}");
            inner.violations.add(Invariant::Conservation, why);
        }
        if inner.config.fragments.is_some_and(|max| status.held > max) {
            inner.violations.add(Invariant::Bounds, || format!("too many fragments: {status:?}"));
        }
        let difference = inner.tracking.reassembly.difference(&self.shared.fragment_lists());
        if let Some(difference) = difference.filter(|_| !inner.tracking.differs) {
            inner.violations.add(Invariant::Oracle, || difference);
        }
    }

    /// Ends fragments whose time is over, up to a number.
    pub(super) fn expire_fragments(&self, inner: &mut Inner, now_ms: u64, at_most: usize) {
        self.shared.expire_fragments(now_ms, at_most);
        inner.tracking.reassembly.expire(now_ms, &self.shared.fragment_lists());
    }
}
