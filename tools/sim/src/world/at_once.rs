//! Changes of flows at once, without a round of the revalidator.

use super::World;
use ofproto::revalidate::{Few, change_at_once};

impl World {
    /// In half of the runs the main loop and the revalidator change flows at once.
    pub(super) fn allow_changes_at_once(&self, seed: u64) {
        if self.broken.is_none() && (seed / 2).is_multiple_of(2) {
            self.revalidator.answers(&self.backer);
        }
    }

    /// As the main loop after it served controllers.
    pub(super) fn change_at_once(&self) {
        change_at_once(&self.backer, &*self.dp, Few::FOR_OTHERS, self.now_ms());
    }
}
