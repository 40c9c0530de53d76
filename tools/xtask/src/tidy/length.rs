//! Rule: a file has at most `FILE_LINES` lines and a function at most `FUNCTION_LINES`, except for listed
//! exceptions. A function that only dispatches, by one `match` whose arms are single expressions, may have
//! any length.
//!
//! A line of the list is `file PATH LIMIT REASON…` or `fn PATH:NAME LIMIT REASON…`; the limit is the minimum
//! and is itself enforced. An entry that is no longer needed is an error, so the list only shrinks.

use std::collections::BTreeMap;

use super::{EXCEPTIONS, File};
use crate::source::Source;

/// Longest file without an exception, in lines.
const FILE_LINES: usize = 700;
/// Maximum length of a function without an exception, in lines from its `fn` to its closing brace.
const FUNCTION_LINES: usize = 80;

struct Exception {
    line: usize,
    limit: usize,
    used: bool,
}

/// Measures `files` against the limits and the text of the exception list.
pub(super) fn check(files: &[File], list: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut exceptions = parse(list, &mut problems);
    for file in files {
        let mut measure = |kind: &str, name: String, line: usize, lines: usize, most: usize| {
            if lines <= most {
                return;
            }
            let limit = exceptions.get_mut(&format!("{kind} {name}")).map_or(most, |e| {
                e.used = true;
                e.limit
            });
            if lines > limit {
                let what = if kind == "fn" { "function" } else { "file" };
                problems.push(format!(
                    "{}:{line}: {what} of {lines} lines, limit {limit}: split it by content, or list `{kind} {name} \
                     {lines} reason` in {EXCEPTIONS}",
                    file.path
                ));
            }
        };
        measure("file", file.path.clone(), 1, file.source.lines, FILE_LINES);
        for (name, from, to) in functions(file) {
            measure("fn", format!("{}:{name}", file.path), from, to - from + 1, FUNCTION_LINES);
        }
    }
    for (name, exception) in exceptions.iter().filter(|(_, e)| !e.used) {
        problems.push(format!(
            "{EXCEPTIONS}:{}: `{name}` needs no exception any more: remove it",
            exception.line
        ));
    }
    problems
}

fn parse(list: &str, problems: &mut Vec<String>) -> BTreeMap<String, Exception> {
    let mut exceptions = BTreeMap::new();
    for (i, text) in list.lines().enumerate() {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let line = i + 1;
        let words: Vec<&str> = text.split_whitespace().collect();
        let good = match words.as_slice() {
            [kind @ ("file" | "fn"), name, limit, _, ..] => {
                limit.parse().ok().map(|n| (format!("{kind} {name}"), n))
            }
            _ => None,
        };
        match good {
            None => problems.push(format!(
                "{EXCEPTIONS}:{line}: not `file PATH LINES REASON` or `fn PATH:NAME LINES REASON`"
            )),
            Some((key, limit)) => {
                if exceptions.insert(key.clone(), Exception { line, limit, used: false }).is_some() {
                    problems.push(format!("{EXCEPTIONS}:{line}: `{key}` is listed twice"));
                }
            }
        }
    }
    exceptions
}

/// Name, first and last line of every function with a body that does more than dispatch, nested ones too.
fn functions(file: &File) -> Vec<(String, usize, usize)> {
    let source = &file.source;
    let mut found = Vec::new();
    for (i, token) in source.tokens.iter().enumerate() {
        let Some(name) = source.tokens.get(i + 1) else { continue };
        let is_word = name.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if token.text == "fn" && is_word {
            let end = source.item_end(i);
            if source.tokens[end].text == "}" && !dispatches(source, i, end) {
                found.push((name.text.clone(), token.line, source.tokens[end].line));
            }
        }
    }
    found
}

/// Whether the body of the function from `start` to `end` is one `match` without statements in its arms.
fn dispatches(source: &Source, start: usize, end: usize) -> bool {
    let Some(body) = (start..end).find(|i| source.closing(*i) == end && source.tokens[*i].text == "{") else {
        return false;
    };
    if !source.spells(body + 1, &["match"]) {
        return false;
    }
    let arms = (body + 1..end).find(|i| source.tokens[*i].text == "{");
    // Nothing follows the match, and no arm has a statement.
    arms.is_some_and(|open| source.closing(open) + 1 == end)
        && source.tokens[body..end].iter().all(|token| token.text != ";")
}
