//! Whether the datapath follows the tables, as far as the caller finds out.

use super::Backer;
use crate::barrier::Translating;
use crate::ukey::Walk;

/// Maximum flows tested by the caller of [`Backer::covers`].
const FEW_FLOWS: u64 = 256;

impl Backer {
    /// Begins a batch of translations at the present epoch.
    pub(crate) fn begin_translations(&self) -> Translating<'_> {
        self.barrier.begin(|| self.epoch())
    }

    /// Whether the datapath follows the tables of an epoch, as far as a test of few flows shows. If not, wait for it
    /// ([`DatapathBarrier::want`](crate::barrier::DatapathBarrier::want)).
    pub fn covers(&self, epoch: u64) -> bool {
        let covered = self.barrier.covered();
        if covered >= epoch || self.barrier.is_held() {
            return true;
        }
        let changes = self.changes_since(covered);
        let present = changes.epoch();
        // In this order: a translation adds its flow before it ends.
        if self.barrier.translates_before(present) || self.ukeys.len() > FEW_FLOWS {
            return false;
        }
        let mut is_affected = false;
        // Without flows there is no shard to visit.
        let mut walk = (!self.ukeys.is_empty()).then(Walk::default);
        while let Some(from) = walk.filter(|_| !is_affected) {
            // Flows changed since by the revalidator may not have reached the datapath, so all count from `covered`.
            walk = self.ukeys.each(from, |_, _, k| {
                is_affected |= changes.affect(covered, &k.lookups, &k.flow);
            });
        }
        if !is_affected {
            self.barrier.set_covered(present);
        }
        !is_affected
    }
}
