//! Splits a line into `key`, `key=value`, `key:value` and `key(value)`.

use super::{Parsed, fail};

/// Separators of tokens.
#[inline]
pub fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}

/// The form of a token's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// No value.
    Nothing,
    /// `key:value`.
    Colon,
    /// `key=value`.
    Equals,
    /// `key(value)`.
    Parens,
    /// Parentheses followed by an arrow, as in `check_pkt_larger(100)->reg0[0]`.
    ParensArrow,
}

/// One token; all parts are slices of the text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
    /// Its form.
    pub attached: Attached,
}

impl Token<'_> {
    /// Whether it has a value.
    #[inline]
    pub fn has_value(&self) -> bool {
        self.attached != Attached::Nothing
    }
}

/// The tokens of a text, in order.
pub struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`.
    #[inline]
    pub fn new(text: &'a str) -> Tokens<'a> {
        Tokens { rest: text }
    }

    /// The next token.
    ///
    /// # Errors
    /// An unclosed quote or parenthesis.
    #[inline]
    pub fn next_token(&mut self) -> Parsed<Option<Token<'a>>> {
        let text = self.rest.trim_start_matches(is_separator);
        if text.is_empty() {
            self.rest = text;
            return Ok(None);
        }
        let key_bytes = if text.starts_with('"') {
            quoted_bytes(text)?
        } else {
            text.find(|c| is_separator(c) || matches!(c, ':' | '=' | '(')).unwrap_or(text.len())
        };
        let (key, after) = text.split_at(key_bytes);
        let attached = match after.chars().next() {
            Some(':') => Attached::Colon,
            Some('=') => Attached::Equals,
            Some('(') => Attached::Parens,
            _ => Attached::Nothing,
        };
        let (value, rest) = match attached {
            Attached::Nothing => (&after[..0], after),
            Attached::Colon | Attached::Equals => {
                let after = &after[1..];
                after.split_at(value_bytes(after)?)
            }
            Attached::Parens | Attached::ParensArrow => parenthesised(after)?,
        };
        let arrow = attached == Attached::Parens && rest.starts_with("->");
        let (attached, rest) = if arrow {
            (Attached::ParensArrow, rest.trim_start_matches(|c| !is_separator(c)))
        } else {
            (attached, rest)
        };
        self.rest = rest;
        Ok(Some(Token { key, value, attached }))
    }
}

/// Bytes of the quoted string that `text` begins with, quotes included.
///
/// # Errors
/// It is not closed.
pub fn quoted_bytes(text: &str) -> Parsed<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok(at + 1),
            _ => {}
        }
    }
    fail(text, "missing closing quote")
}

/// Bytes of a value: up to the first separator outside of parentheses and quotes.
fn value_bytes(text: &str) -> Parsed<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' => {
                at += quoted_bytes(&text[at..])?;
                continue;
            }
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 && is_separator(c) => return Ok(at),
            _ => {}
        }
        at += c.len_utf8();
    }
    if depth > 0 { fail(text, "missing closing parenthesis") } else { Ok(at) }
}

/// The contents of the parentheses at the start of `text`, and the rest.
fn parenthesised(text: &str) -> Parsed<(&str, &str)> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' => {
                at += quoted_bytes(&text[at..])?;
                continue;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        at += c.len_utf8();
        if depth == 0 {
            let rest = &text[at..];
            if !rest.starts_with("->") && rest.chars().next().is_some_and(|c| !is_separator(c)) {
                return fail(rest, "unexpected text behind closing parenthesis");
            }
            return Ok((&text[1..at - 1], rest));
        }
    }
    fail(text, "missing closing parenthesis")
}
