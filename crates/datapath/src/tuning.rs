//! What of a forwarding core can be changed while it runs, and what the stock switch's settings mean for it.
//!
//! The stock switch has two flow caches, the exact-match cache (`emc-insert-inv-prob`) and the signature-match cache
//! (`smc-enable`). This core has one, which plays both parts:
//!
//! | `emc-insert-inv-prob` | `smc-enable` | the cache |
//! | --- | --- | --- |
//! | not set | not set or either | on; every megaflow hit is remembered |
//! | N > 0 | not true | on; one of N megaflow hits is remembered |
//! | 0 | not true | off: not asked, not filled, its memory given back |
//! | any | true | on; every megaflow hit is remembered |
//!
//! Unlike the stock switch's, the cache remembers every hit when nothing is set: it grows with its flows, so there is no
//! thrashing to guard against.

use crate::pmd::Pmd;

/// See the module. Nothing here changes where a packet goes, only what that costs, except for
/// [`PmdTuning::masks_per_port_max`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmdTuning {
    /// One of so many megaflow hits is remembered in the flow cache; 0 switches the cache off.
    pub cache_insert_inv_prob: u32,
    /// Sort each port's masks by hits; else they stay in the order in which they were made.
    pub rank: bool,
    /// Run actions over groups of packets whose megaflows have the same actions; else packet by packet, and read all headers
    /// of recirculated packets again.
    pub group: bool,
    /// Masks (subtables) that the megaflows of one input port may have. A megaflow that would bring one more is refused, and
    /// its packets go on by the slow path: so a sender who makes masks multiply slows the lookups of its own port down,
    /// within bounds, and of no other.
    pub masks_per_port_max: usize,
}

impl Default for PmdTuning {
    fn default() -> PmdTuning {
        PmdTuning { cache_insert_inv_prob: 1, rank: true, group: true, masks_per_port_max: 512 }
    }
}

impl PmdTuning {
    /// The tuning that the stock switch's settings ask for, where they are set.
    pub fn from_settings(emc_insert_inv_prob: Option<u32>, smc_enable: Option<bool>) -> PmdTuning {
        let cache_insert_inv_prob = match (emc_insert_inv_prob, smc_enable) {
            (_, Some(true)) | (None, _) => 1,
            (Some(n), _) => n,
        };
        PmdTuning { cache_insert_inv_prob, ..PmdTuning::default() }
    }
}

impl Pmd {
    /// Changes the tuning, between bursts. Masks above a lowered bound stay until their flows go.
    pub fn set_tuning(&mut self, tuning: PmdTuning) {
        self.config.tuning = tuning;
        self.exec.reread = !tuning.group;
        self.table.set_masks_per_port_max(tuning.masks_per_port_max);
        self.cache.set_on(tuning.cache_insert_inv_prob != 0);
    }

    /// The tuning in force.
    pub fn tuning(&self) -> PmdTuning {
        self.config.tuning
    }
}
