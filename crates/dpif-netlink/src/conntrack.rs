//! The kernel's connection tracking behind [`dpif::Connections`]. It is shared with every other user in the
//! network namespace.

use super::KernelDatapath;
use dpif::{
    ConnectionSink, Connections, CtCarry, CtExport, CtImported, CtLimit, CtMatch, CtZone, Datapath,
    DpifError, TimeoutAttr, TimeoutId, TimeoutPolicies, TimeoutPolicy,
};
use netlink::Conntrack;
use netlink::Error;

/// Converts an error of the kernel.
fn failed(e: Error) -> DpifError {
    match e {
        e if e.is_not_found() => DpifError::NotFound("connection"),
        e if e.is_no_module() => {
            DpifError::Unsupported("this kernel has no limits of connections (Linux 4.18)".to_string())
        }
        e => DpifError::Device(e.to_string()),
    }
}

fn stay() -> DpifError {
    DpifError::Unsupported("the connections stay in the kernel".to_string())
}

impl Connections for KernelDatapath {
    fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), DpifError> {
        self.conntrack.list(zone, sink).map_err(failed)
    }

    fn flush(&self, which: &CtMatch) -> Result<(), DpifError> {
        let done = match which.exact() {
            Some((zone, tuple)) => self.conntrack.delete(zone, &tuple),
            None if *which == CtMatch::default() => self.conntrack.delete_all(),
            None => self.conntrack.delete_matching(which),
        };
        done.map_err(failed)
    }

    fn export(&self, _: CtCarry) -> Result<Box<dyn CtExport>, DpifError> {
        Err(stay())
    }

    fn import(&self, _: &[u8]) -> Result<CtImported, DpifError> {
        Err(stay())
    }

    fn limits(&self, zones: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        self.ovs.ct_limit_get(self.dp_ifindex(), zones).map_err(failed)
    }

    fn set_limits(&self, limits: &[(CtZone, u32)]) -> Result<(), DpifError> {
        self.ovs.ct_limit_set(self.dp_ifindex(), limits).map_err(failed)
    }

    fn remove_limits(&self, zones: &[CtZone]) -> Result<(), DpifError> {
        self.ovs.ct_limit_del(self.dp_ifindex(), zones).map_err(failed)
    }

    fn timeout_policies(&self) -> Option<&dyn TimeoutPolicies> {
        self.capabilities().ct.timeout.then_some(self)
    }
}

/// Converts an error about timeout policies.
fn policy_failed(e: Error) -> DpifError {
    match e {
        e if e.is_not_found() => DpifError::NotFound("timeout policy"),
        e if e.is_exists() => DpifError::Busy("the timeout policy"),
        e if matches!(e, Error::NoTimeouts) => DpifError::Unsupported(e.to_string()),
        e => DpifError::Device(e.to_string()),
    }
}

impl TimeoutPolicies for KernelDatapath {
    fn set(&self, id: TimeoutId, policy: &TimeoutPolicy) -> Result<(), DpifError> {
        self.conntrack.set_timeout_policy(id, policy).map_err(policy_failed)
    }

    fn ignored(&self) -> &'static [TimeoutAttr] {
        Conntrack::MISSING_TIMEOUTS
    }

    fn get(&self, id: TimeoutId) -> Result<TimeoutPolicy, DpifError> {
        let mut all = self.conntrack.timeout_policies().map_err(policy_failed)?;
        all.remove(&id).ok_or(DpifError::NotFound("timeout policy"))
    }

    fn delete(&self, id: TimeoutId) -> Result<(), DpifError> {
        self.conntrack.delete_timeout_policy(id).map_err(policy_failed)
    }

    fn list(&self) -> Result<Vec<TimeoutId>, DpifError> {
        Ok(self.conntrack.timeout_policies().map_err(policy_failed)?.into_keys().collect())
    }
}
