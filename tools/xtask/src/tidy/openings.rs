//! Rule: a sentence of a comment or of a message does not open with "Of …", "That of …", "The same" without a noun, or
//! "What …" and "Who …" as its subject. Code between backquotes is exempt, and so are strings of tests.

use super::File;

/// Words that may not follow "The same": a noun would.
const NO_NOUN: &[&str] = &[
    "after", "again", "and", "are", "as", "at", "before", "but", "by", "for", "from", "here", "holds", "if",
    "in", "is", "of", "on", "once", "that", "through", "to", "twice", "under", "when", "where", "which",
    "with", "without",
];

/// Looks for refused openings.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let is_sentence = |text: &str| text.split_whitespace().nth(2).is_some();
        let strings = file.source.strings.iter();
        let strings = strings.filter(|(line, text)| !file.in_tests(*line) && is_sentence(text));
        let of_strings =
            strings.flat_map(|(line, text)| openings(text).map(move |(_, opening)| (*line, opening)));
        let refused = in_comments(file).into_iter().chain(of_strings);
        problems.extend(refused.map(|(line, opening)| {
            format!(
                "{}:{line}: a sentence opens with \"{opening}\": begin with its subject, a noun",
                file.path
            )
        }));
    }
    problems
}

/// Refused openings of comments, with their lines. Adjacent lines of one kind of comment are one text.
fn in_comments(file: &File) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut text = String::new();
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut last = (0, "");
    let mut finish = |text: &mut String, starts: &mut Vec<(usize, usize)>| {
        for (at, opening) in openings(text) {
            let line = starts.iter().rev().find(|(start, _)| *start <= at).map_or(0, |(_, line)| *line);
            found.push((line, opening));
        }
        text.clear();
        starts.clear();
    };
    for comment in &file.source.comments {
        let body = comment.text.trim_start().trim_start_matches(['/', '*', '!']).trim_end_matches("*/");
        let kind = ["///", "//!", "//"].into_iter().find(|k| comment.text.starts_with(k)).unwrap_or("/*");
        if (comment.line, kind) != (last.0 + 1, last.1) || body.trim().is_empty() {
            finish(&mut text, &mut starts);
        }
        starts.push((text.len(), comment.line));
        text.push_str(body);
        text.push('\n');
        last = (comment.line, kind);
    }
    finish(&mut text, &mut starts);
    found
}

/// Refused openings of sentences, with their bytes in the text.
fn openings(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut code = false;
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    for piece in text.split_inclusive(char::is_whitespace) {
        let outside = |c: &char| {
            code ^= *c == '`';
            *c == '`' || !code
        };
        let word: String = piece.chars().filter(outside).collect();
        let word = word.trim();
        if !word.is_empty() {
            words.push((at, word.to_owned()));
        }
        at += piece.len();
    }
    let is_first = |i: usize, words: &[(usize, String)]| {
        let before = i.checked_sub(1).map_or("", |i| words[i].1.as_str());
        let begins_item = matches!(before, "-" | "*" | "|") && i > 0;
        i == 0 || begins_item || before.trim_end_matches(')').ends_with(['.', '?', '!'])
    };
    let found: Vec<_> = (0..words.len())
        .filter(|i| is_first(*i, &words))
        .filter_map(|i| {
            let next = words.get(i + 1).map_or("", |(_, word)| word.as_str());
            let after = words.get(i + 2).map_or("", |(_, word)| word.as_str());
            Some((words[i].0, refused(&words[i].1, next, after)?))
        })
        .collect();
    found.into_iter()
}

/// The refused opening that three words begin with.
fn refused(first: &str, second: &str, third: &str) -> Option<&'static str> {
    match (first, second) {
        ("Of", _) => Some("Of"),
        ("What", _) => Some("What"),
        ("Who", _) => Some("Who"),
        ("That", "of") => Some("That of"),
        ("Those", "of") => Some("Those of"),
        ("The", "same")
            if third.is_empty() || NO_NOUN.contains(&third.trim_end_matches(['.', ',', ';', ':'])) =>
        {
            Some("The same")
        }
        ("The", _) if second.strip_prefix("same").is_some_and(|end| [",", ".", ";", ":"].contains(&end)) => {
            Some("The same")
        }
        _ => None,
    }
}
