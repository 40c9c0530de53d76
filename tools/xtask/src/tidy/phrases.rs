//! Rule: comments and messages use the field's language. Refuses phrases that hide the subject or the verb of a
//! sentence; code between backquotes is exempt, and so are strings of tests.

use super::File;

/// Refused phrases, in lower case.
const PHRASES: &[&str] = &[
    "so many",
    "so often",
    "who makes",
    "who asks",
    "who asked",
    "whoever",
    "nobody knows",
    "who goes",
    "who would",
    "is told to",
    "is told of",
    "are told to",
    "was told",
    "were told",
    "be told",
    "what it says",
    "what he says",
    "what there is",
    "what is told",
    "what is asked for",
    "what was asked for",
    "those that asked",
    "goes round",
    "pays himself",
    "says nothing of",
    "tells of",
    "tell of",
    "what comes",
    "what goes",
    "who comes",
    "what came",
    "what went",
];

/// Refused in messages only.
const IN_MESSAGES: &[&str] =
    &["somebody", "makes no sense", "is not said", "to be had", "for ever could", "trying again until"];

/// Looks for refused phrases in comments and strings; a phrase may continue on the next line of comments.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let lines: Vec<(usize, String)> =
            file.source.comments.iter().map(|c| (c.line, prose(&c.text))).collect();
        for (i, (line, text)) in lines.iter().enumerate() {
            let next = lines.get(i + 1).filter(|(following, _)| *following == line + 1);
            let joined = format!(" {text} {} ", next.map_or("", |(_, text)| text));
            for phrase in PHRASES {
                let found = joined.find(&format!(" {phrase} "));
                // A match within the next line is reported there.
                if found.is_some_and(|at| at <= text.len()) {
                    problems.push(refuse(file, *line, phrase));
                }
            }
        }
        for (line, text) in file.source.strings.iter().filter(|(line, _)| !file.in_tests(*line)) {
            let text = format!(" {} ", prose(&without_arguments(text)));
            // A phrase alone is an entry of a list.
            let found = PHRASES.iter().chain(IN_MESSAGES).filter(|phrase| text.trim() != **phrase);
            let found = found.filter(|phrase| text.contains(&format!(" {phrase} ")));
            problems.extend(found.map(|phrase| refuse(file, *line, phrase)));
        }
    }
    problems
}

/// A format string with each argument, `{…}`, replaced by code.
fn without_arguments(text: &str) -> String {
    let outside = text.split('{').enumerate().map(|(i, piece)| match piece.split_once('}') {
        Some((_, rest)) if i > 0 => rest,
        _ => piece,
    });
    outside.collect::<Vec<_>>().join(" `x` ")
}

fn refuse(file: &File, line: usize, phrase: &str) -> String {
    format!("{}:{line}: \"{phrase}\": name the subject, with its verb in the present tense", file.path)
}

/// The words of a comment outside backquotes, in lower case, separated by single blanks.
fn prose(comment: &str) -> String {
    let outside: Vec<&str> = comment.split('`').step_by(2).collect();
    // The removed code keeps its place, so the words around it do not join into a phrase.
    let text = outside.join(" ` ").to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '`' || c == '\'' || c == '-';
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
