//! Rule: `unsafe` only in listed crates, each use with its `SAFETY:` line; every other crate forbids it.

use super::File;
use crate::workspace::Member;

/// The crates that may hold `unsafe`.
const UNSAFE_ROOMS: &[&str] = &["netdev", "netlink", "simd", "sync", "sys"];
/// Maximum lines of code between a `SAFETY:` comment and its `unsafe`.
const SAFETY_DISTANCE_LINES: usize = 5;

/// The root file of each library and binary outside the listed crates must have `#![forbid(unsafe_code)]`.
pub(super) fn check_forbidden(members: &[Member], files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for member in members.iter().filter(|m| !UNSAFE_ROOMS.contains(&m.name.as_str())) {
        for root in &member.roots {
            let forbids = files.iter().filter(|f| f.path == *root).any(|f| {
                (0..f.source.tokens.len())
                    .any(|i| f.source.spells(i, &["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"]))
            });
            if !forbids {
                problems.push(format!("{root}:1: `#![forbid(unsafe_code)]` is missing"));
            }
        }
    }
    problems
}

/// No `unsafe` outside the listed crates; inside, each with a `SAFETY:` comment (or a `# Safety` section)
/// close above it.
pub(super) fn check_use(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let allowed = UNSAFE_ROOMS.contains(&file.package.as_str());
        for (i, token) in file.source.tokens.iter().enumerate().filter(|(_, t)| t.text == "unsafe") {
            if !allowed {
                problems.push(format!(
                    "{}:{}: `unsafe` in crate `{}`: only {} may hold it",
                    file.path,
                    token.line,
                    file.package,
                    UNSAFE_ROOMS.join(", ")
                ));
            } else if !is_type(file, i) && !has_reason(file, token.line) {
                problems.push(format!("{}:{}: `unsafe` without a `// SAFETY:` line", file.path, token.line));
            }
        }
    }
    problems
}

/// A function pointer type (`unsafe extern "C" fn(`), or the marker inside an attribute (`#[unsafe(`): needs
/// no explanation.
fn is_type(file: &File, at: usize) -> bool {
    let s = &file.source;
    [&["unsafe", "fn", "("][..], &["unsafe", "extern", "\"\"", "fn", "("]]
        .iter()
        .any(|words| s.spells(at, words))
}

fn has_reason(file: &File, line: usize) -> bool {
    let says = |at: usize| {
        file.source
            .comments
            .iter()
            .any(|c| c.line == at && (c.text.contains("SAFETY:") || c.text.contains("# Safety")))
    };
    // The comment may also be the first line inside the block.
    if says(line) || says(line + 1) {
        return true;
    }
    let mut code_lines = 0;
    for at in (1..line).rev() {
        if says(at) {
            return true;
        }
        code_lines += usize::from(file.source.tokens.iter().any(|t| t.line == at));
        if code_lines >= SAFETY_DISTANCE_LINES {
            return false;
        }
    }
    false
}
