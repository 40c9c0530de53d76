//! Decides whether a flow's translation holds after the latest changes.

use crate::backer::Backer;
use crate::changes::Changes;
use crate::ukey::{Ukey, UkeyState, Walk};
use dpif::PmdId;
use flow::Ufid;

/// The log of changes, read when a flow first needs it, and again if packets are to be credited after a later change.
pub(super) struct Latest<'a> {
    backer: &'a Backer,
    changes: Option<Changes>,
}

impl<'a> Latest<'a> {
    /// Not read yet.
    pub(super) fn new(backer: &'a Backer) -> Latest<'a> {
        Latest { backer, changes: None }
    }

    /// Whose changes they are.
    pub(super) fn backer(&self) -> &'a Backer {
        self.backer
    }

    /// Moves a flow to the present epoch if no change since its own affects it. Otherwise returns that epoch.
    pub(super) fn outdates(&mut self, k: &mut Ukey) -> Option<u64> {
        let epoch = self.backer.epoch();
        if k.epoch >= epoch {
            return None;
        }
        if self.changes.as_ref().is_some_and(|changes| changes.epoch() < epoch) {
            self.changes = None;
        }
        self.outdates_as_read(k)
    }

    /// The same up to the changes read last: enough unless packets are to be credited. A flow just tested by
    /// [`Latest::outdates`] gets the same answer.
    pub(super) fn outdates_as_read(&mut self, k: &mut Ukey) -> Option<u64> {
        let changes = self.changes.get_or_insert_with(|| self.backer.latest_changes());
        skip_unaffected(changes, k);
        (k.epoch < changes.epoch()).then_some(changes.epoch())
    }
}

/// Moves a flow to the epoch after these changes if none since its own affects it.
pub(super) fn skip_unaffected(changes: &Changes, k: &mut Ukey) {
    if k.epoch < changes.epoch() && !changes.affect(k.epoch, &k.lookups, &k.flow) {
        k.epoch = changes.epoch();
    }
}

/// Visits some of the flows, those whose translation holds after the latest changes. Returns the position to resume; `None` at
/// the end.
pub fn each_current(backer: &Backer, from: Walk, mut f: impl FnMut(Ufid, PmdId, &Ukey)) -> Option<Walk> {
    let mut latest = Latest::new(backer);
    backer.ukeys.each(from, |ufid, pmd, k| {
        if k.state == UkeyState::Operational && latest.outdates(k).is_none() {
            f(ufid, pmd, k);
        }
    })
}
