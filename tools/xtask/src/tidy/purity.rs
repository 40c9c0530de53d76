//! Rule: the pure core reads no clock, does no I/O, starts no thread and draws no random numbers, outside its
//! tests.
//!
//! Address types of `std::net` are values and allowed; everything else under the listed paths is not.

use super::File;
use crate::direction::PURE;
use crate::workspace::Workspace;

/// Paths, as tokens, forbidden in pure crates, together with all paths below them.
const FORBIDDEN_PATHS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::os",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
];
/// Ends of paths: however the type was imported.
const FORBIDDEN_CALLS: &[&[&str]] = &[
    &["Instant", "::", "now"],
    &["SystemTime", "::", "now"],
    &["thread", "::", "spawn"],
    &["thread", "::", "sleep"],
    &["Uuid", "::", "new_v4"],
    &["println", "!"],
    &["print", "!"],
    &["eprintln", "!"],
    &["eprint", "!"],
];
/// Values of `std::net` without I/O.
const ADDRESS_TYPES: &[&str] = &[
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::net::SocketAddr",
    "std::net::SocketAddrV4",
    "std::net::SocketAddrV6",
    "std::net::AddrParseError",
];
/// The clippy settings of the pure crates, relative to the workspace root.
const CLIPPY_PURE: &str = "tools/xtask/clippy-pure.toml";

/// Finds forbidden paths and calls in the shipped code of the pure crates.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| PURE.contains(&f.package.as_str()) && f.is_shipped()) {
        let tokens = &file.source.tokens;
        let mut report = |what: &str, line: usize| {
            let problem = format!(
                "{}:{line}: `{what}` in the pure crate `{}`: time, randomness and I/O come from outside",
                file.path, file.package
            );
            if !file.in_tests(line) && !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        for (i, token) in tokens.iter().enumerate() {
            for call in FORBIDDEN_CALLS {
                if file.source.spells(i, call) {
                    report(&call.concat(), token.line);
                }
            }
            if token.text == "std" && file.source.spells(i + 1, &["::"]) {
                for (path, line) in file.source.paths_from(i) {
                    let below = |root: &&str| path == **root || path.starts_with(&format!("{root}::"));
                    if FORBIDDEN_PATHS.iter().any(below) && !ADDRESS_TYPES.iter().any(below) {
                        report(&path, line);
                    }
                }
            }
        }
    }
    problems
}

/// Each pure crate must use the clippy settings of the pure core: its folder has a link to them.
pub(super) fn check_clippy_conf(workspace: &Workspace) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(workspace.root.join(path)).ok();
    let Some(want) = read(CLIPPY_PURE) else { return vec![format!("{CLIPPY_PURE}: cannot be read")] };
    let mut problems = Vec::new();
    for member in workspace.members.iter().filter(|m| PURE.contains(&m.name.as_str())) {
        let path = format!("{}/clippy.toml", member.dir);
        if read(&path).as_ref() != Some(&want) {
            problems
                .push(format!("{path}: must be a link to {CLIPPY_PURE}: `ln -s ../../{CLIPPY_PURE} {path}`"));
        }
    }
    problems
}
