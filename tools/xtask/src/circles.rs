//! The check of modules inside a crate: no circles, and an order of layers where a crate has one.
//!
//! A node is a top-level module of a crate with all its files; an edge is a path of its shipped code (`crate::…`,
//! `super::…`) that names another one. Names that the root re-exports count for their module. [`LISTED`] has the
//! circles that exist; it may only shrink. [`LAYERS`] mirrors the order in docs/internals/slow-path.md.
//!
//! The check sees tokens, not types: methods and macros of other modules, used without their path, are no edges.

mod edges;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tidy::File;
use edges::{Edges, edges_of};

/// Circles that exist: crate and modules, in alphabetical order. Break one and remove or shorten its row; add none.
pub(crate) const LISTED: &[(&str, &[&str])] = &[
    ("bench", &["guard", "hugepages"]),
    ("bench", &["lab", "tunnels", "works"]),
    ("bench", &["measure", "rows"]),
    ("classifier", &["classifier", "subtable"]),
    (
        "connmgr",
        &[
            "bundle",
            "config",
            "conn",
            "continuation",
            "fail",
            "flush",
            "forward",
            "gone",
            "groups",
            "meters",
            "monitors",
            "packet_queue",
            "packets",
            "ports",
            "requests",
            "stats",
            "table_features",
            "tlv",
        ],
    ),
    ("conntrack", &["commit", "control", "tracker", "usual", "views"]),
    ("datapath", &["actions", "burst", "meter", "shared", "stages"]),
    ("datapath", &["finish", "handover", "marks", "ops", "pmd", "process", "tuning", "upkeep"]),
    ("dpif", &["actions", "conntrack", "cookie", "nlactions", "ops", "text", "upcall"]),
    ("dpif-netdev", &["apply", "bulk", "handover", "inbox", "io", "offload", "pmd", "ports", "slices"]),
    (
        "flow",
        &[
            "extract",
            "fields",
            "flow",
            "key",
            "matching",
            "nsh",
            "options",
            "packed_match",
            "subfield",
            "text",
            "tlv",
            "tunnel",
            "wide",
        ],
    ),
    ("netdev", &["afxdp", "dummy", "finish_offloads", "null", "open", "pcap", "port", "system", "tap"]),
    (
        "ofp-actions",
        &[
            "action",
            "actions",
            "check",
            "instructions",
            "list",
            "nesting",
            "put",
            "rows",
            "text",
            "translate",
        ],
    ),
    ("ofp-wire", &["error", "wire"]),
    ("openflow", &["codec", "msg"]),
    ("ovsdb", &["schema", "value"]),
    ("packet", &["batch", "chunk", "pool"]),
    ("routing", &["lookup", "prefix", "routes", "rules", "sources", "text", "trie"]),
    ("sim", &["checks", "world"]),
    ("sim", &["model", "reassembly", "tracking"]),
    ("sluice", &["appctl", "completion", "fuzz", "ofctl", "status", "top", "vsctl"]),
    ("testkit", &["command", "netns"]),
    ("upcall-bench", &["model", "stats"]),
    ("xtask", &["guest", "stages"]),
];

/// The layers of a crate's modules, from the ground up. A module uses its own layer and those below it.
pub(crate) const LAYERS: &[(&str, &[&[&str]])] = &[(
    "ofproto",
    &[
        &[
            "barrier",
            "bond",
            "cause",
            "changes",
            "ct_support",
            "features",
            "flow_ops",
            "ids",
            "links",
            "meter_ids",
            "packet_state",
            "sampling",
        ],
        &[
            "action_pool",
            "group",
            "mac_table",
            "mirror",
            "mcast",
            "native",
            "ports",
            "recirc",
            "rule",
            "rule_index",
            "tables",
            "tunnel",
            "tunnel_ports",
        ],
        &["view"],
        &["cache", "events", "record", "ukey", "unresolved"],
        &["xlate"],
        &["backer"],
        &["flow_mod", "link_sender", "revalidate", "upcall"],
    ],
)];

/// Checks the modules of all crates.
pub(crate) fn check(
    files: &[File],
    listed: &[(&str, &[&str])],
    layers: &[(&str, &[&[&str]])],
) -> Vec<String> {
    let crates: BTreeSet<&str> = files.iter().map(|f| f.package.as_str()).collect();
    let mut problems = Vec::new();
    let mut rows: BTreeSet<usize> = (0..listed.len()).collect();
    for name in crates {
        let edges = edges_of(files, name);
        for circle in circles(&edges) {
            let of_crate = |row: &usize| listed[*row].0 == name;
            let within = |row: &usize| circle.iter().all(|m| listed[*row].1.contains(m));
            let row = rows.iter().copied().find(|row| of_crate(row) && within(row));
            match row {
                Some(row) if listed[row].1.len() == circle.len() => drop(rows.remove(&row)),
                Some(row) => {
                    rows.remove(&row);
                    let left = circle.join(", ");
                    problems.push(format!(
                        "{LIST}: crate `{name}`: a circle is smaller than its row: shorten it to {left}"
                    ));
                }
                None => problems.push(format!(
                    "crate `{name}`: the modules {} form a circle: {}",
                    circle.join(", "),
                    shortest(&edges, &circle)
                )),
            }
        }
        if let Some((_, layers)) = layers.iter().find(|(of, _)| *of == name) {
            problems.extend(check_layers(name, &edges, layers));
        }
    }
    for row in rows {
        let (name, modules) = listed[row];
        let modules = modules.join(", ");
        problems
            .push(format!("{LIST}: crate `{name}`: the modules {modules} form no circle: remove the row"));
    }
    problems
}

/// The file of the list.
const LIST: &str = "tools/xtask/src/circles.rs";

/// Modules without a layer, and paths from a layer to a higher one.
fn check_layers(name: &str, edges: &Edges, layers: &[&[&str]]) -> Vec<String> {
    let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let mut problems = Vec::new();
    for module in edges.keys().filter(|module| layer_of(module).is_none()) {
        problems.push(format!("{LIST}: crate `{name}`: the module `{module}` has no layer: give it one"));
    }
    for module in layers.iter().copied().flatten().filter(|module| !edges.contains_key(**module)) {
        problems.push(format!("{LIST}: crate `{name}`: there is no module `{module}`: remove it"));
    }
    for (from, uses) in edges {
        for (to, site) in uses {
            if layer_of(from).zip(layer_of(to)).is_some_and(|(low, high)| low < high) {
                problems.push(format!("{site}: `{from}` may not use `{to}`, which is in a higher layer"));
            }
        }
    }
    problems
}

/// All modules that `from` reaches.
fn reached<'a>(edges: &'a Edges, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for to in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                left.push(to);
            }
        }
    }
    reached
}

/// The largest sets of modules that reach each other, each in alphabetical order.
fn circles(edges: &Edges) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (module.as_str(), reached(edges, module))).collect();
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (module, to) in &reached {
        if to.contains(module) && !found.iter().any(|circle| circle.contains(module)) {
            let back = |other: &&&str| reached.get(**other).is_some_and(|from| from.contains(module));
            found.push(to.iter().filter(back).copied().collect());
        }
    }
    found
}

/// A shortest way from the first module of a circle back to it, with the place of each step.
fn shortest(edges: &Edges, circle: &[&str]) -> String {
    let Some(first) = circle.first().copied() else { return String::new() };
    let mut ways = VecDeque::from([vec![first]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().copied().unwrap_or(first);
        if way.len() > 1 && last == first {
            let site = |pair: &[&str]| format!("{} → {} ({})", pair[0], pair[1], edges[pair[0]][pair[1]]);
            return way.windows(2).map(site).collect::<Vec<_>>().join(", ");
        }
        for to in edges.get(last).into_iter().flat_map(BTreeMap::keys) {
            if circle.contains(&to.as_str()) && seen.insert(to.as_str()) {
                ways.push_back([way.as_slice(), &[to.as_str()]].concat());
            }
        }
    }
    String::new()
}
