//! Rule: no unfinished work. No `todo!`, `unimplemented!` or `dbg!`, tests included; a comment with `TODO` or
//! `FIXME` names its owner, as `TODO(name):`.

use super::File;

const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
const WORDS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Looks for markers of unfinished work.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for (i, token) in file.source.tokens.iter().enumerate() {
            if MACROS.contains(&token.text.as_str()) && file.source.spells(i + 1, &["!"]) {
                // `!=` is a comparison, not a macro.
                if !file.source.spells(i + 2, &["="]) {
                    problems
                        .push(format!("{}:{}: `{}!` left in the code", file.path, token.line, token.text));
                }
            }
        }
        for comment in &file.source.comments {
            for word in WORDS {
                if comment.text.match_indices(word).any(|(at, _)| is_ownerless(&comment.text, at, word.len()))
                {
                    problems.push(format!(
                        "{}:{}: {word} without an owner: do it, or write {word}(name):",
                        file.path, comment.line
                    ));
                }
            }
        }
    }
    problems
}

/// Whether the word at `at` is separate, not quoted as code, and not followed by `(name):`.
fn is_ownerless(text: &str, at: usize, len: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = &text[at + len..];
    let word_like = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
    if before.is_some_and(word_like) || after.starts_with(word_like) {
        return false;
    }
    let owner = after.strip_prefix('(').and_then(|rest| rest.split_once("):"));
    owner.is_none_or(|(name, _)| name.trim().is_empty())
}
