//! Unsupported configuration that needs more than a row of [`crate::settings`].

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
