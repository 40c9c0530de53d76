//! Unsupported configuration that needs more than a row of [`crate::settings`].

use super::reader::Reader;

/// Unsupported interface types of OVS.
const KNOWN_TYPES: [&str; 5] = ["afxdp", "afxdp-nonpmd", "dpdk", "dpdkvhostuser", "dpdkvhostuserclient"];

/// Types of tunnels that only modules of the kernel outside of Linux had, or that no datapath here has.
const TUNNEL_TYPES: [(&str, &str); 3] = [
    ("bareudp", "neither datapath has bareudp tunnels"),
    ("lisp", "neither datapath has LISP tunnels, which needed a kernel module that OVS removed"),
    ("stt", "neither datapath has STT tunnels, which needed a kernel module that OVS removed"),
];

/// The error of an interface with an unsupported type.
pub(super) fn interface_type_error(name: &str, type_name: &str) -> String {
    if let Some((_, why)) = TUNNEL_TYPES.iter().find(|(known, _)| *known == type_name) {
        return format!("could not open network device {name} ({why})");
    }
    if KNOWN_TYPES.contains(&type_name) {
        format!(
            "could not open network device {name} (interface type {type_name} is not supported in this version)"
        )
    } else {
        format!("could not open network device {name} (Address family not supported by protocol)")
    }
}

/// The bridge of a set has the notice.
pub(super) fn sample_sets(reader: &mut Reader<'_>) {
    for set in reader.replica.rows("Flow_Sample_Collector_Set") {
        let id = set.int("id");
        if let Some(bridge) = set.opt_uuid("bridge").and_then(|uuid| reader.replica.row("Bridge", uuid)) {
            let message = format!(
                "sampling of flows (IPFIX, local_group) is not supported in this version: set {id} (Flow_Sample_Collector_Set) has no effect"
            );
            reader.notice(bridge, "Flow_Sample_Collector_Set", message);
        }
    }
}
