//! Which top-level module of a crate names which, from the tokens of its shipped code.
//!
//! An `impl` of another module's type gives methods to that module's users, who do not name the place of the methods.
//! So it counts as an edge back, and makes a circle.

use std::collections::BTreeMap;

use crate::tidy::File;

/// Module → modules that it names, each with a place (`path:line`).
pub(super) type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// The modules of a crate and their edges.
pub(super) fn edges_of(files: &[File], package: &str) -> Edges {
    let files: Vec<&File> = files.iter().filter(|f| f.package == package && f.is_shipped()).collect();
    let mut edges = Edges::new();
    for file in &files {
        if let Some((module, _)) = module_of(file) {
            edges.entry(module.to_owned()).or_default();
        }
    }
    let exports = exports(&files, &edges);
    for file in files {
        let Some((module, depth)) = module_of(file) else { continue };
        let implemented = implemented(file);
        for RootPath { first, last, line } in paths_of_root(file, depth) {
            let to = exports.get(&first).unwrap_or(&first);
            if to == module || !edges.contains_key(to) {
                continue;
            }
            let mut add = |from: &str, to: &str, line: usize| {
                let uses = edges.entry(from.to_owned()).or_default();
                uses.entry(to.to_owned()).or_insert_with(|| format!("{}:{line}", file.path));
            };
            add(module, to, line);
            if let Some(line) = implemented.get(&last) {
                add(to, module, *line);
            }
        }
    }
    edges
}

/// The top-level module of a file, and the depth of the file's own module: 1 for the top-level module itself. `None`
/// for a root, and for a program of its own.
fn module_of(file: &File) -> Option<(&str, usize)> {
    let (_, inner) = file.path.split_once("/src/")?;
    let mut parts: Vec<&str> = inner.trim_end_matches(".rs").split('/').collect();
    if parts.last() == Some(&"mod") {
        parts.pop();
    }
    match parts.as_slice() {
        ["lib" | "main"] | ["bin", ..] | [] => None,
        [module, ..] => Some((module, parts.len())),
    }
}

/// Names that the root re-exports, with their modules.
fn exports(files: &[&File], edges: &Edges) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for file in files.iter().filter(|f| f.path.ends_with("/src/lib.rs") || f.path.ends_with("/src/main.rs")) {
        for at in 0..file.source.tokens.len() {
            if !file.source.spells(at, &["use"]) {
                continue;
            }
            let end = file.source.item_end(at);
            for (path, _) in file.source.paths_from(at + 1) {
                let parts: Vec<&str> = path.split("::").filter(|p| *p != "crate" && *p != "self").collect();
                if let [module, .., name] = parts.as_slice()
                    && edges.contains_key(*module)
                    && !edges.contains_key(*name)
                {
                    exports.insert((*name).to_owned(), (*module).to_owned());
                }
            }
            // `a::B as C`: the name is C.
            for i in at..end {
                let words = [i.wrapping_sub(1), i + 1].map(|k| file.source.tokens.get(k).map(|t| &t.text));
                if let [Some(old), Some(new)] = words
                    && file.source.spells(i, &["as"])
                    && let Some(module) = exports.get(old).cloned()
                {
                    exports.insert(new.clone(), module);
                }
            }
        }
    }
    exports
}

/// A path from the crate's root.
struct RootPath {
    /// Its first name.
    first: String,
    /// Its last name.
    last: String,
    /// Its line.
    line: usize,
}

/// The types with an `impl` of their own in the shipped code of a file, with its line.
fn implemented(file: &File) -> BTreeMap<String, usize> {
    let tokens = &file.source.tokens;
    let mut types = BTreeMap::new();
    for (at, token) in tokens.iter().enumerate() {
        let begins = at == 0 || matches!(tokens[at - 1].text.as_str(), "}" | ";" | "]");
        if token.text != "impl" || !begins || file.in_tests(token.line) {
            continue;
        }
        let head: Vec<&str> =
            tokens[at + 1..].iter().map(|t| t.text.as_str()).take_while(|t| *t != "{").collect();
        if let [name, rest @ ..] = head.as_slice()
            && !rest.contains(&"for")
            && *name != "<"
        {
            types.insert((*name).to_owned(), token.line);
        }
    }
    types
}

/// The paths from the crate's root in the shipped code of a file.
fn paths_of_root(file: &File, depth: usize) -> Vec<RootPath> {
    let tokens = &file.source.tokens;
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let begins = at == 0 || tokens[at - 1].text != "::";
        if !begins || !matches!(token.text.as_str(), "crate" | "super") || file.in_tests(token.line) {
            continue;
        }
        for (path, line) in file.source.paths_from(at) {
            let supers = path.split("::").take_while(|part| *part == "super").count();
            let skipped = if token.text == "crate" { 1 } else { supers };
            if token.text == "super" && supers != depth + inline_depth(file, at) {
                continue;
            }
            let parts: Vec<&str> = path.split("::").skip(skipped).collect();
            if let [first, ..] = parts.as_slice() {
                let last = parts.last().unwrap_or(first);
                paths.push(RootPath { first: (*first).to_owned(), last: (*last).to_owned(), line });
            }
        }
    }
    paths
}

/// The number of modules written within the file around a token.
fn inline_depth(file: &File, at: usize) -> usize {
    let source = &file.source;
    let around = |open: usize| {
        source.spells(open, &["mod"]) && source.spells(open + 2, &["{"]) && source.closing(open + 2) > at
    };
    (0..at).filter(|open| around(*open)).count()
}
