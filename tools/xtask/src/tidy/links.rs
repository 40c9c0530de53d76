//! Rule: links of Markdown files lead to files and headings that exist.
//!
//! Reads inline links and images, reference links and their definitions, outside of code. A fragment names a heading of
//! the target by its anchor on GitHub: lower case, blanks to hyphens, other punctuation removed; repeated headings get
//! `-1`, `-2` … Addresses with a scheme are not examined. Pages below `docs/` named in plain text exist, too, also those
//! in comments.

use std::collections::BTreeMap;

use super::File;

/// A Markdown file.
#[derive(Debug)]
pub(super) struct Page {
    /// Path relative to the workspace root.
    pub(super) path: String,
    /// Whole text.
    pub(super) text: String,
}

/// A link, or the definition of a reference.
#[derive(Debug, PartialEq, Eq)]
enum Link {
    /// `[text](target)`, `[name]: target`.
    To(String),
    /// `[text][name]`, `[name][]`.
    Reference(String),
}

/// Finds links without a target; `exists` tells whether a path relative to the workspace root is a file or folder.
pub(super) fn check(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&str, Vec<String>> =
        pages.iter().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut problems = Vec::new();
    for page in pages {
        let (links, names) = links(&page.text);
        for (line, link) in links {
            let problem = match &link {
                Link::To(target) => broken(&page.path, target, &anchors, &exists),
                Link::Reference(name) if names.contains(name) => None,
                Link::Reference(name) => Some(format!("no definition of `[{name}]`")),
            };
            problems.extend(problem.map(|problem| format!("{}:{line}: {problem}", page.path)));
        }
    }
    problems
}

/// Finds pages below `docs/` that text or comments name and that do not exist.
pub(super) fn check_mentions(pages: &[Page], files: &[File], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let of_pages =
        pages.iter().flat_map(|page| prose(&page.text).map(move |(n, line)| (&page.path, n, line)));
    let of_files = files
        .iter()
        .flat_map(|file| file.source.comments.iter().map(move |c| (&file.path, c.line, c.text.as_str())));
    let mut problems = Vec::new();
    for (path, number, line) in of_pages.chain(of_files) {
        for (at, _) in line.match_indices("docs/") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            let begins = !line[..at].ends_with(is_name);
            let name = line[at..].split(|c| !is_name(c)).next().unwrap_or_default().trim_end_matches('.');
            if begins && name.ends_with(".md") && !exists(name) {
                problems.push(format!("{path}:{number}: no page {name}"));
            }
        }
    }
    problems
}

/// The fault of a link on a page.
fn broken(
    from: &str,
    target: &str,
    anchors: &BTreeMap<&str, Vec<String>>,
    exists: impl Fn(&str) -> bool,
) -> Option<String> {
    let has_scheme = target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
    });
    if has_scheme {
        return None;
    }
    let (file, fragment) = target.split_once('#').map_or((target, None), |(file, part)| (file, Some(part)));
    let Some(path) = resolve(from, file) else {
        return Some(format!("`{target}` leads out of the repository"));
    };
    if !exists(&path) {
        return Some(format!("`{target}`: no file {path}"));
    }
    let fragment = fragment?;
    match anchors.get(path.as_str()) {
        None => Some(format!("`{target}`: {path} is no Markdown file and has no headings")),
        Some(list) if list.iter().any(|anchor| anchor == fragment) => None,
        Some(_) => Some(format!("`{target}`: no heading `#{fragment}` in {path}")),
    }
}

/// The path that a link on the page `from` names, relative to the workspace root; `None` outside of it.
fn resolve(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    if file.starts_with('/') {
        path.clear();
    }
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop()?;
            }
            _ => path.push(part),
        }
    }
    Some(path.join("/"))
}

/// The anchors of all headings.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if !(1..=6).contains(&(line.len() - title.len())) || !title.starts_with(' ') {
            continue;
        }
        let base = anchor(title.trim());
        let mut name = base.clone();
        let mut repeated = 0;
        while anchors.contains(&name) {
            repeated += 1;
            name = format!("{base}-{repeated}");
        }
        anchors.push(name);
    }
    anchors
}

/// The anchor of a heading without regard to others.
fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    // A link in a heading counts by its text.
    let mut text = String::new();
    let mut rest = title;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// All links with their lines, and the names of definitions.
fn links(text: &str) -> (Vec<(usize, Link)>, Vec<String>) {
    let (mut links, mut names) = (Vec::new(), Vec::new());
    let lines: Vec<(usize, String)> = prose(text).map(|(n, line)| (n, without_code(line))).collect();
    for (at, (number, line)) in lines.iter().enumerate() {
        let definition = line.strip_prefix('[').and_then(|l| l.split_once("]: "));
        if let Some((name, target)) = definition {
            names.push(name.to_lowercase());
            links.push((*number, Link::To(first_word(target).to_owned())));
            continue;
        }
        // A link may be broken over two lines; one that begins in the next line is reported there.
        let next = lines.get(at + 1).filter(|(next, _)| *next == number + 1);
        let joined = format!("{line} {}", next.map_or("", |(_, text)| text));
        let mut from = 0;
        while let Some((begin, link, end)) = next_link(&joined, from) {
            if begin >= line.len() {
                break;
            }
            links.push((*number, link));
            from = end;
        }
    }
    (links, names)
}

/// The next link from a byte on: its begin, itself, its end.
fn next_link(text: &str, from: usize) -> Option<(usize, Link, usize)> {
    let mut at = from;
    loop {
        let middle = at + text[at..].find("](").into_iter().chain(text[at..].find("][")).min()?;
        let begin = text[..middle].rfind('[');
        let inner = middle + 2;
        let close = if text[middle..].starts_with("](") { ')' } else { ']' };
        at = inner;
        let (Some(begin), Some(length)) = (begin, text[inner..].find(close)) else { continue };
        let written = &text[inner..inner + length];
        let link = match (close, written) {
            (')', target) => Link::To(first_word(target).to_owned()),
            (_, "") => Link::Reference(text[begin + 1..middle].to_lowercase()),
            (_, name) => Link::Reference(name.to_lowercase()),
        };
        return Some((begin, link, inner + length));
    }
}

/// A target without its title and its angle brackets.
fn first_word(target: &str) -> &str {
    let word = target.split_whitespace().next().unwrap_or_default();
    word.trim_start_matches('<').trim_end_matches('>')
}

/// The lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let marks = line.trim_start();
        let this = ["```", "~~~"].into_iter().find(|f| marks.starts_with(f));
        match (fence, this) {
            (None, None) => Some((i + 1, line)),
            (None, Some(_)) => {
                fence = this;
                None
            }
            (Some(open), Some(f)) if f == open => {
                fence = None;
                None
            }
            (Some(_), _) => None,
        }
    })
}

/// A line with its inline code blanked, so that places stay.
fn without_code(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    let whole = pieces.len() % 2 == 1;
    let mut out = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 {
            out.push('`');
        }
        // The last backquote of an odd number opens nothing.
        if i % 2 == 1 && (whole || i + 1 < pieces.len()) {
            out.extend(piece.chars().map(|_| '.'));
        } else {
            out.push_str(piece);
        }
    }
    out
}
