//! Parts of a switch that pass to a successor ([`crate::handover`]).

use dpif_netdev::{Inheritance, LentPort};

/// A datapath whose ports are lent.
pub(crate) struct LentDatapath {
    /// Its name.
    pub(crate) name: String,
    /// Key of its hash functions: the successor selects the same buckets and members.
    pub(crate) hash_seed: u64,
    pub(crate) ports: Vec<LentPort>,
}

/// A datapath of the process that this one succeeds.
#[derive(Clone, Debug)]
pub(crate) struct InheritedDatapath {
    pub(crate) hash_seed: u64,
    pub(crate) inheritance: Inheritance,
}
