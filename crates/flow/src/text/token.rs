//! Splits a line into `key`, `key=value`, `key:value` and `key(value)`.

use super::{Parsed, fail};

/// Separators of tokens.
#[inline]
pub fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}

/// The form of a token's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached<'a> {
    /// No value.
    Nothing,
    /// `key:value`.
    Colon,
    /// `key=value`.
    Equals,
    /// `key(value)`.
    Parens,
    /// Parentheses followed by an arrow, as in `check_pkt_larger(100)->reg0[0]`, and the text behind the arrow.
    ParensArrow(&'a str),
}

/// One token; all parts are slices of the text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
    /// Its form.
    pub attached: Attached<'a>,
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
            end(text, |b| is_separator(char::from(b)) || matches!(b, b':' | b'=' | b'('))
        };
        let (key, after) = text.split_at(key_bytes);
        let (attached, value, rest) = match after.as_bytes().first() {
            Some(b':') => with_value(Attached::Colon, &after[1..])?,
            Some(b'=') => with_value(Attached::Equals, &after[1..])?,
            Some(b'(') => {
                let (value, rest) = parenthesised(after)?;
                match rest.strip_prefix("->") {
                    None => (Attached::Parens, value, rest),
                    Some(behind) => {
                        let (dest, rest) = behind.split_at(end(behind, |b| is_separator(char::from(b))));
                        (Attached::ParensArrow(dest), value, rest)
                    }
                }
            }
            _ => (Attached::Nothing, &after[..0], after),
        };
        self.rest = rest;
        Ok(Some(Token { key, value, attached }))
    }
}

/// Bytes up to the first for which `ends`, which only holds for ASCII.
#[inline]
fn end(text: &str, ends: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(ends).unwrap_or(text.len())
}

/// A token whose value `text` begins with.
#[inline]
fn with_value<'a>(attached: Attached<'a>, text: &'a str) -> Parsed<(Attached<'a>, &'a str, &'a str)> {
    let (value, rest) = text.split_at(value_bytes(text)?);
    Ok((attached, value, rest))
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
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => {
                at += quoted_bytes(&text[at..])?;
                continue;
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b if depth == 0 && is_separator(char::from(*b)) => return Ok(at),
            _ => {}
        }
        at += 1;
    }
    if depth > 0 { fail(text, "missing closing parenthesis") } else { Ok(at) }
}

/// The contents of the parentheses at the start of `text`, and the rest.
fn parenthesised(text: &str) -> Parsed<(&str, &str)> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => {
                at += quoted_bytes(&text[at..])?;
                continue;
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
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
