//! Run-time settings of a forwarding core, and their mapping from the stock switch's settings.
//!
//! The stock switch has two flow caches, the exact-match cache (`emc-insert-inv-prob`) and the signature-match cache
//! (`smc-enable`). This core has one for both purposes:
//!
//! | `emc-insert-inv-prob` | `smc-enable` | the cache |
//! | --- | --- | --- |
//! | not set | not set or either | on; inserts every megaflow hit |
//! | N > 0 | not true | on; inserts one in N megaflow hits |
//! | 0 | not true | off: no lookups, no insertions, memory freed |
//! | any | true | on; inserts every megaflow hit |
//!
//! Hints from burst to burst ([`Repeats`]) are on and off with it.
//!
//! Unlike in the stock switch, the default is to insert every hit: the cache grows with its flows, so it does not
//! thrash.

use crate::pmd::Pmd;
use crate::repeats::Repeats;

/// See the module documentation. Settings affect only cost and never forwarding, except for
/// [`PmdTuning::masks_per_port_max`] and [`PmdTuning::masks_per_port_free`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmdTuning {
    /// Insert one in this number of megaflow hits into the flow cache; 0 disables the cache.
    pub cache_insert_inv_prob: u32,
    /// Sort each port's masks by hits; otherwise keep insertion order.
    pub rank: bool,
    /// Execute actions by groups of packets whose megaflows have the same actions; otherwise packet by packet,
    /// parsing all headers of recirculated packets again.
    pub group: bool,
    /// Maximum masks (subtables) of the megaflows of one input port. A megaflow that needs another mask is refused,
    /// and its packets take the slow path, until its mask is in demand: then it comes first in the list, of up to an
    /// eighth more. So a mask explosion slows only the lookups of the port that causes it,
    /// and by a bounded amount.
    pub masks_per_port_max: usize,
    /// Masks that a port may have at once. Beyond them it gets four more a second, and those in demand: masks that hardly
    /// any packet has do not lengthen the lookups of the others.
    pub masks_per_port_free: usize,
}

impl Default for PmdTuning {
    fn default() -> PmdTuning {
        PmdTuning {
            cache_insert_inv_prob: 1,
            rank: true,
            group: true,
            masks_per_port_max: 512,
            masks_per_port_free: 64,
        }
    }
}

impl PmdTuning {
    /// The tuning for the stock switch's settings, as far as they are set.
    pub fn from_settings(emc_insert_inv_prob: Option<u32>, smc_enable: Option<bool>) -> PmdTuning {
        let cache_insert_inv_prob = match (emc_insert_inv_prob, smc_enable) {
            (_, Some(true)) | (None, _) => 1,
            (Some(n), _) => n,
        };
        PmdTuning { cache_insert_inv_prob, ..PmdTuning::default() }
    }
}

impl Pmd {
    /// Changes the tuning, between bursts. Masks above a lowered bound stay until their flows are deleted.
    pub fn set_tuning(&mut self, tuning: PmdTuning) {
        self.config.tuning = tuning;
        self.exec.reread = !tuning.group;
        let PmdTuning { masks_per_port_max: max, masks_per_port_free: free, .. } = tuning;
        self.table.set_masks_per_port(max, if tuning.rank { free } else { max });
        self.cache.set_on(tuning.cache_insert_inv_prob != 0);
        self.repeats = Repeats::new();
    }

    /// The current tuning.
    pub fn tuning(&self) -> PmdTuning {
        self.config.tuning
    }
}
