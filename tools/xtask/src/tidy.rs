//! The tidy check: project rules that neither the compiler nor clippy enforces.
//!
//! Each rule is a function from files to problems (`path:line: problem`), in its own module. A file is
//! tokenized once, with its test regions marked. The rules see tokens, not types: they are cheap and can be
//! defeated by renamed imports; clippy's `disallowed_methods` (tools/xtask/clippy-pure.toml) is the second
//! net.

mod docs;
mod fuzzing;
mod length;
mod links;
mod markers;
mod openings;
mod phrases;
mod purity;
#[cfg(test)]
mod tests;
mod unsafety;

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::source::Source;
use crate::workspace::{RustFile, Workspace};
use links::Page;

/// List of exceptions to the length rule.
const EXCEPTIONS: &str = "tools/xtask/tidy-exceptions.txt";

/// A file, tokenized for the rules.
#[derive(Debug)]
pub(crate) struct File {
    /// Package that it belongs to.
    pub(crate) package: String,
    /// Path relative to the workspace root.
    pub(crate) path: String,
    /// Its tokens and comments.
    pub(crate) source: Source,
    /// Ranges of lines (from, to; both included) under `#[cfg(test)]`; all of a test file.
    test_regions: Vec<(usize, usize)>,
}

impl File {
    /// Whether a line is test code.
    pub(crate) fn in_tests(&self, line: usize) -> bool {
        self.test_regions.iter().any(|(from, to)| (*from..=*to).contains(&line))
    }

    /// Whether the whole file is test code.
    fn is_test(&self) -> bool {
        self.test_regions.first().is_some_and(|r| *r == (0, usize::MAX))
    }

    /// Whether it is compiled into the library or binary (not a test, bench, example or build script).
    pub(crate) fn is_shipped(&self) -> bool {
        self.path.contains("/src/") && !self.is_test()
    }
}

/// Runs every rule on a workspace.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let files = prepare(&workspace.rust_files()?);
    let list = std::fs::read_to_string(workspace.root.join(EXCEPTIONS))
        .with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    let mut problems = length::check(&files, &list);
    problems.extend(unsafety::check_forbidden(&workspace.members, &files));
    problems.extend(unsafety::check_use(&files));
    problems.extend(purity::check(&files));
    problems.extend(purity::check_clippy_conf(workspace));
    problems.extend(markers::check(&files));
    problems.extend(phrases::check(&files));
    problems.extend(openings::check(&files));
    problems.extend(docs::check(&files));
    let pages = workspace.markdown_files()?;
    let pages: Vec<Page> = pages.into_iter().map(|(path, text)| Page { path, text }).collect();
    let exists = |path: &str| workspace.root.join(path).exists();
    problems.extend(links::check(&pages, exists));
    problems.extend(links::check_mentions(&pages, &files, exists));
    let table = std::fs::read_to_string(workspace.root.join(fuzzing::TABLE))
        .with_context(|| format!("cannot read {}", fuzzing::TABLE))?;
    problems.extend(fuzzing::check(&files, &table));
    Ok(problems)
}

/// Tokenizes files and marks test code: `tests.rs`, folders `tests`, and items under `#[cfg(test)]`, either a
/// block or a module in another file.
pub(crate) fn prepare(files: &[RustFile]) -> Vec<File> {
    let mut prepared: Vec<File> = files
        .iter()
        .map(|f| File {
            package: f.package.clone(),
            path: f.path.clone(),
            source: Source::parse(&f.text),
            test_regions: Vec::new(),
        })
        .collect();
    let mut test_modules = BTreeSet::new();
    for file in &mut prepared {
        mark_regions(file, &mut test_modules);
    }
    for file in &mut prepared {
        let by_name = file.path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let by_parent = test_modules
            .iter()
            .any(|m: &String| file.path == format!("{m}.rs") || file.path.starts_with(&format!("{m}/")));
        if by_name || by_parent {
            file.test_regions = vec![(0, usize::MAX)];
        }
    }
    prepared
}

/// Marks the `#[cfg(test)]` items of one file; adds modules in other files to `test_modules`, without `.rs`.
fn mark_regions(file: &mut File, test_modules: &mut BTreeSet<String>) {
    let source = &file.source;
    let mut i = 0;
    while i < source.tokens.len() {
        if !source.spells(i, &["#", "["]) {
            i += 1;
            continue;
        }
        let end = source.closing(i + 1);
        let words: Vec<&str> = source.tokens[i..=end].iter().map(|t| t.text.as_str()).collect();
        let first = i;
        i = end + 1;
        if !(words.contains(&"cfg") && words.contains(&"test")) || words.contains(&"not") {
            continue;
        }
        while source.spells(i, &["#", "["]) {
            i = source.closing(i + 1) + 1;
        }
        let last = source.item_end(i);
        if let Some(name) = (i..last).find(|k| source.tokens[*k].text == "mod")
            && source.spells(last, &[";"])
        {
            test_modules.insert(format!("{}/{}", module_dir(&file.path), source.tokens[name + 1].text));
        }
        let line_of = |k: usize| source.tokens.get(k).map_or(source.lines, |t| t.line);
        file.test_regions.push((line_of(first), line_of(last)));
        i = last + 1;
    }
}

/// The folder of the modules declared in a file.
fn module_dir(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => dir.to_owned(),
        _ => format!("{dir}/{}", name.trim_end_matches(".rs")),
    }
}
