//! Parts of a switch that pass to a successor ([`crate::handover`]).

use crate::link_protocols::SavedSession;
use dpif_netdev::{Inheritance, LentPort};
use std::collections::BTreeMap;

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

/// The switch that this process succeeds to.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Its datapaths by name.
    pub(crate) datapaths: BTreeMap<String, InheritedDatapath>,
    /// Bytes of its state file when it was described.
    pub(crate) state_bytes: u64,
    /// Sessions of its link protocols then.
    pub(crate) sessions: Vec<SavedSession>,
}
