//! The dependency check: which crate may depend on which.
//!
//! `TABLE` equals the table of crates in ARCHITECTURE.md (`page`): dependencies not listed are forbidden, and a
//! crate without a row is an error. It applies to normal and build dependencies; dev-dependencies between crates
//! are allowed (an oracle, a test kit) and reported as notes, so that a reader sees them.

pub(crate) mod page;
#[cfg(test)]
mod tests;

use crate::workspace::{DepKind, Member};

/// The pure core: no I/O, no clock, no thread, no random numbers.
pub(crate) const PURE: &[&str] = &[
    "packet",
    "flow",
    "classifier",
    "routing",
    "dpif",
    "conntrack",
    "datapath",
    "ofp-wire",
    "ofp-actions",
    "openflow",
    "ovsdb",
    "ofproto",
    "connmgr",
    "vswitch",
    "l2proto",
    "telemetry",
];

/// Libraries that do I/O or read the machine: never in the pure core.
const IO_LIBRARIES: &[&str] = &["libc", "rustix", "mio", "socket2", "nix", "tokio", "getrandom", "rand"];

/// All crates that make up a switch; the daemon joins them.
const SWITCH: &[&str] = &[
    "packet",
    "flow",
    "classifier",
    "routing",
    "dpif",
    "connmgr",
    "conntrack",
    "datapath",
    "dpif-netdev",
    "dpif-netlink",
    "httpd",
    "ofp-wire",
    "ofp-actions",
    "openflow",
    "ovsdb",
    "ofproto",
    "vswitch",
    "l2proto",
    "telemetry",
    "netdev",
    "netlink",
    "probes",
    "routing",
    "simd",
    "sync",
    "sys",
    "tls",
    "upcall-events",
    "vlog",
];

/// Crate → the workspace crates it may depend on.
pub(crate) const TABLE: &[(&str, &[&str])] = &[
    ("packet", &[]),
    ("flow", &["packet", "simd"]),
    ("classifier", &["flow"]),
    ("routing", &["classifier", "flow", "sync"]),
    ("dpif", &["flow", "l2proto", "packet"]),
    ("conntrack", &["packet", "flow", "dpif", "simd", "sync"]),
    ("datapath", &["packet", "flow", "conntrack", "dpif", "simd", "sync"]),
    ("ofp-wire", &["flow"]),
    ("ofp-actions", &["packet", "flow", "ofp-wire"]),
    ("openflow", &["flow", "ofp-wire", "ofp-actions"]),
    ("ovsdb", &[]),
    (
        "ofproto",
        &[
            "packet",
            "flow",
            "classifier",
            "routing",
            "dpif",
            "l2proto",
            "ofp-wire",
            "ofp-actions",
            "openflow",
            "sync",
            "telemetry",
        ],
    ),
    ("connmgr", &["packet", "flow", "dpif", "ofp-wire", "ofp-actions", "openflow", "ofproto", "sync"]),
    ("vswitch", &["dpif", "l2proto", "ovsdb", "ofproto", "connmgr"]),
    ("l2proto", &["packet", "flow"]),
    ("telemetry", &["flow"]),
    ("netdev", &["dpif", "packet", "simd"]),
    ("netlink", &["dpif", "flow", "packet"]),
    ("dpif-netdev", &["conntrack", "datapath", "dpif", "flow", "netdev", "packet", "probes", "sync", "sys"]),
    ("dpif-netlink", &["datapath", "dpif", "flow", "netdev", "netlink", "packet", "probes", "sync", "sys"]),
    ("probes", &["dpif", "flow", "sync", "sys", "upcall-events"]),
    ("tls", &["sys"]),
    ("vlog", &["sync", "sys"]),
    ("simd", &[]),
    ("sync", &[]),
    ("sys", &[]),
    ("testkit", &[]),
    ("bench", &["flow", "netdev", "ofp-actions", "openflow", "packet", "sys", "testkit"]),
    ("upcall-events", &[]),
    ("httpd", &["sys"]),
    ("upcall-cost", &["sys", "upcall-events"]),
    ("upcall-bench", &["flow", "openflow", "ovsdb", "sys"]),
    ("sim", SWITCH),
    ("sluiced", SWITCH),
    (
        "sluice",
        &[
            "flow",
            "httpd",
            "ofp-actions",
            "openflow",
            "ovsdb",
            "sys",
            "tls",
            "upcall-cost",
            "upcall-bench",
            "vlog",
            "vswitch",
        ],
    ),
    ("xtask", &[]),
];

/// Result of the check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Each one fails the check.
    pub(crate) problems: Vec<String>,
    /// Dev-dependencies between crates, for the reader.
    pub(crate) notes: Vec<String>,
}

/// Checks `members` against `table`.
pub(crate) fn check(members: &[Member], table: &[(&str, &[&str])]) -> Findings {
    let mut found = Findings::default();
    for member in members {
        let Some((_, allowed)) = table.iter().find(|(name, _)| *name == member.name) else {
            found.problems.push(format!(
                "{}/Cargo.toml: crate `{}` has no row in the table of tools/xtask/src/direction.rs; \
                 give it one there and in ARCHITECTURE.md",
                member.dir, member.name
            ));
            continue;
        };
        for dep in &member.deps {
            let ours = members.iter().any(|m| m.name == dep.name);
            if ours && dep.kind == DepKind::Dev {
                if !allowed.contains(&dep.name.as_str()) {
                    found.notes.push(format!("in tests only: {} → {}", member.name, dep.name));
                }
            } else if ours && !allowed.contains(&dep.name.as_str()) {
                found.problems.push(format!(
                    "{}/Cargo.toml: `{}` may not depend on `{}` (allowed: {})",
                    member.dir,
                    member.name,
                    dep.name,
                    if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") }
                ));
            } else if dep.kind != DepKind::Dev
                && PURE.contains(&member.name.as_str())
                && IO_LIBRARIES.contains(&dep.name.as_str())
            {
                found.problems.push(format!(
                    "{}/Cargo.toml: `{}` is pure and may not use the library `{}`",
                    member.dir, member.name, dep.name
                ));
            }
        }
    }
    found
}
