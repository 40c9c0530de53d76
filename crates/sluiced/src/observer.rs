//! [`SlowPathProbes`]: reports the work of `ofproto` to probes and the event ring.

use dpif::Upcall;
use flow::{FlowKey, MacAddr, Ufid};
use ofproto::backer::{Observer, Rechecked};
use ofproto::group::construction;
use openflow::msg::group::Group;
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

    fn follows_learning(&self) -> bool {
        log::log_enabled!(target: "ofproto_dpif_xlate", log::Level::Debug)
    }

    fn follows_groups(&self) -> bool {
        log::log_enabled!(target: "ofproto_dpif", log::Level::Debug)
    }

    fn group_built(&self, group: &Group) {
        for line in construction(group) {
            log::debug!(target: "ofproto_dpif", "{line}");
        }
    }

    fn learned(&self, bridge: &str, mac: MacAddr, port: &str, vlan: u16) {
        log::debug!(
            target: "ofproto_dpif_xlate",
            "bridge {bridge}: learned that {mac} is on port {port} in VLAN {vlan}"
        );
    }
}
