//! [`SlowPathProbes`]: reports the work of `ofproto` to probes and the event ring.

use dpif::Upcall;
use flow::{FlowKey, Ufid};
use ofproto::backer::{Observer, Rechecked};
use probes::FlowUpkeep;

/// See the module documentation.
pub(crate) struct SlowPathProbes;

impl Observer for SlowPathProbes {
    fn translated(&self, upcall: &Upcall) {
        probes::translated(upcall);
    }

    fn round_begins(&self, flows: u64) {
        probes::round_begins(flows);
    }

    fn round_ends(&self, flows: u64, next_ms: u64) {
        probes::round_ends(flows, next_ms);
    }

    fn recheck_begins(&self, ufid: Ufid, key: &FlowKey) {
        probes::recheck_begins(ufid, key);
    }

    fn recheck_ends(&self, ufid: Ufid, result: Rechecked) {
        let result = match result {
            Rechecked::Keep => FlowUpkeep::Keep,
            Rechecked::Delete => FlowUpkeep::Delete,
            Rechecked::Modify => FlowUpkeep::Modify,
        };
        probes::recheck_ends(ufid, result);
    }
}
