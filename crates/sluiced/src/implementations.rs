//! Implementations of parts of the userspace datapath, as commands choose them: the names that every OVS has.

use std::collections::BTreeMap;

/// In the order of `dpif-netdev/miniflow-parser-get`.
pub(crate) const PARSERS: [&str; 3] = ["autovalidator", "scalar", STUDY];
pub(crate) const STUDY: &str = "study";
/// In the order of `dpif-netdev/subtable-lookup-prio-get`.
pub(crate) const LOOKUPS: [&str; 2] = ["autovalidator", "generic"];
/// In the order of `odp-execute/action-impl-show`.
pub(crate) const ACTIONS: [&str; 2] = ["scalar", "autovalidator"];

/// The only implementation of the datapath.
pub(crate) const DATAPATH: &str = "dpif_scalar";

/// The chosen implementations.
pub(crate) struct Chosen {
    /// Parser of threads without a choice of their own.
    pub(crate) parser: &'static str,
    pub(crate) parser_of: BTreeMap<u16, &'static str>,
    /// Priorities of [`LOOKUPS`].
    pub(crate) priorities: [u8; 2],
    pub(crate) actions: &'static str,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { parser: PARSERS[1], parser_of: BTreeMap::new(), priorities: [0, 1], actions: ACTIONS[0] }
    }
}

impl Chosen {
    /// Logs the implementations of actions at the start, in the words of OVS.
    pub(crate) fn log() {
        for name in ACTIONS {
            log::debug!(target: "odp_execute_impl", "Actions implementation '{name}' is available.");
        }
    }

    /// Logs the implementations of a new userspace datapath, in the words of OVS.
    pub(crate) fn log_of_datapath() {
        for name in PARSERS {
            log::debug!(target: "dpif_netdev_extract", "Miniflow Extract implementation '{name}' is available.");
        }
        log::info!(target: "dpif_netdev_extract", "Default MFEX Extract implementation is {}.", PARSERS[1]);
        log::info!(target: "dpif_netdev_impl", "Default DPIF implementation is {DATAPATH}.");
    }

    /// The lookup function of new subtables: the first one of the highest priority.
    pub(crate) fn lookup(&self) -> usize {
        usize::from(self.priorities[1] > self.priorities[0])
    }
}
