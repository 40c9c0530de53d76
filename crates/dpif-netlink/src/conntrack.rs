//! The kernel's connection tracking behind [`dpif::Connections`]. It is shared with every other user in the
//! network namespace.

use super::KernelDatapath;
use dpif::{ConnectionSink, Connections, CtLimit, CtMatch, CtZone, DpifError};
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

    fn limits(&self, zones: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        self.ovs.ct_limit_get(self.dp_ifindex(), zones).map_err(failed)
    }

    fn set_limits(&self, limits: &[(CtZone, u32)]) -> Result<(), DpifError> {
        self.ovs.ct_limit_set(self.dp_ifindex(), limits).map_err(failed)
    }

    fn remove_limits(&self, zones: &[CtZone]) -> Result<(), DpifError> {
        self.ovs.ct_limit_del(self.dp_ifindex(), zones).map_err(failed)
    }
}
