//! Explains why eBPF is refused.

use std::fs::read_to_string;
use std::io;

/// Capabilities by number (capabilities(7)): both of the first two, or the last one instead.
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;
const CAP_SYS_ADMIN: u64 = 21;

/// Adds the missing permission to an error of loading or attaching.
pub(super) fn explain(e: anyhow::Error) -> anyhow::Error {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let lockdown = read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let btf = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    let refused = e
        .downcast_ref::<libbpf_rs::Error>()
        .is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::PermissionDenied)
        || e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    let why = reasons(&status, &lockdown, btf, refused);
    if why.is_empty() {
        e.context("eBPF does not work here")
    } else {
        e.context(format!("eBPF is not available: {why}"))
    }
}

/// The missing permissions, from the kernel's state and that of this process.
pub(super) fn reasons(status: &str, lockdown: &str, btf: bool, refused: bool) -> String {
    let mut why = Vec::new();
    let held = status.lines().find_map(|l| l.strip_prefix("CapEff:")).map(str::trim);
    let held = held.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let has = |cap: u64| held >> cap & 1 != 0;
    if !has(CAP_SYS_ADMIN) {
        let missing = [("CAP_BPF", CAP_BPF), ("CAP_PERFMON", CAP_PERFMON)];
        let missing: Vec<&str> =
            missing.into_iter().filter(|(_, cap)| !has(*cap)).map(|(name, _)| name).collect();
        if !missing.is_empty() {
            why.push(format!("this process lacks {} (run it as root)", missing.join(" and ")));
        }
    }
    if lockdown.contains("[confidentiality]") {
        why.push("the kernel is locked down (confidentiality)".to_string());
    }
    if !btf {
        why.push(
            "the kernel has no type information (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)".to_string(),
        );
    }
    if why.is_empty() && refused {
        why.push("the kernel refuses it although the capabilities are there, as in a container with a filter of system calls".to_string());
    }
    why.join("; ")
}
