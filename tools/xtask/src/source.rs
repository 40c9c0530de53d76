//! A small reader of Rust source: separates code from comments and literals, and splits the code into tokens.
//!
//! This suffices for the tidy checks. Invariants: every token, comment and string keeps its line (counted from 1);
//! the contents of strings, characters and comments are never tokens. It neither expands macros nor parses:
//! invalid code yields tokens, too, and never a panic.

#[cfg(test)]
mod tests;

/// A word, `::`, or one character of punctuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its text; a literal is the one token `""`.
    pub(crate) text: String,
    /// Line it begins on, from 1.
    pub(crate) line: usize,
}

/// The comment text of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    /// With its slashes or stars.
    pub(crate) text: String,
    /// Line, from 1.
    pub(crate) line: usize,
}

/// A tokenized source file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The code, in order.
    pub(crate) tokens: Vec<Token>,
    /// The comments, in order; a multi-line one has one entry per line.
    pub(crate) comments: Vec<Comment>,
    /// The contents of strings as written, escapes included, with the lines that they begin on.
    pub(crate) strings: Vec<(usize, String)>,
    /// Number of lines.
    pub(crate) lines: usize,
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    line: usize,
    out: &'a mut Source,
}

impl Source {
    /// Tokenizes `text`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut out = Self {
            tokens: Vec::new(),
            comments: Vec::new(),
            strings: Vec::new(),
            lines: text.lines().count(),
        };
        let mut reader = Reader { chars: text.chars().collect(), at: 0, line: 1, out: &mut out };
        while reader.at < reader.chars.len() {
            reader.step();
        }
        out
    }

    /// Whether the tokens from `at` on spell `words`.
    pub(crate) fn spells(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, w)| self.tokens.get(at + i).is_some_and(|t| t.text == *w))
    }

    /// Index of the bracket that closes the one at `open`, or of the last token if none does.
    pub(crate) fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (i, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return i;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len().saturating_sub(1)
    }

    /// Index of the token that ends the item beginning at `start`: a `;` outside brackets, or the end of its
    /// body.
    pub(crate) fn item_end(&self, start: usize) -> usize {
        let mut i = start;
        while i < self.tokens.len() {
            match self.tokens[i].text.as_str() {
                ";" => return i,
                "{" => return self.closing(i),
                "(" | "[" => i = self.closing(i) + 1,
                _ => i += 1,
            }
        }
        self.tokens.len().saturating_sub(1)
    }

    /// The paths of the path or tree of paths that begins at token `at`, each with its line: `a::{b, c::d}` is `a::b`
    /// and `a::c::d`.
    pub(crate) fn paths_from(&self, at: usize) -> Vec<(String, usize)> {
        let mut paths = Vec::new();
        self.expand(at, String::new(), &mut paths);
        paths
    }

    /// Adds the paths that begin at token `at`, below `prefix`. Returns the index after them.
    fn expand(&self, at: usize, prefix: String, paths: &mut Vec<(String, usize)>) -> usize {
        let Some(token) = self.tokens.get(at) else { return at };
        if token.text == "{" {
            let end = self.closing(at);
            let mut i = at + 1;
            while i < end {
                i = if self.tokens[i].text == "," {
                    i + 1
                } else {
                    self.expand(i, prefix.clone(), paths).max(i + 1)
                };
            }
            return end + 1;
        }
        let path = match (token.text.as_str(), prefix.is_empty()) {
            (word, true) => word.to_owned(),
            ("self", false) => prefix,
            (word, false) => format!("{prefix}::{word}"),
        };
        if self.spells(at + 1, &["::"]) {
            return self.expand(at + 2, path, paths);
        }
        paths.push((path, token.line));
        at + 1
    }
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn bump(&mut self) -> char {
        let c = self.peek(0);
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        c
    }

    fn token(&mut self, text: impl Into<String>, line: usize) {
        self.out.tokens.push(Token { text: text.into(), line });
    }

    fn step(&mut self) {
        let (c, next, line) = (self.peek(0), self.peek(1), self.line);
        if c.is_whitespace() {
            self.bump();
        } else if c == '/' && next == '/' {
            self.line_comment();
        } else if c == '/' && next == '*' {
            self.block_comment();
        } else if c == '"' {
            self.string(line);
        } else if c == '\'' {
            self.quote(line);
        } else if c.is_alphanumeric() || c == '_' {
            self.word(line);
        } else if c == ':' && next == ':' {
            self.at += 2;
            self.token("::", line);
        } else {
            self.bump();
            self.token(c, line);
        }
    }

    fn comment(&mut self, text: &str, line: usize) {
        self.out.comments.push(Comment { text: text.to_owned(), line });
    }

    fn line_comment(&mut self) {
        let from = self.at;
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            self.at += 1;
        }
        let text: String = self.chars[from..self.at].iter().collect();
        self.comment(&text, self.line);
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let (mut depth, mut text, first) = (0_usize, String::new(), self.line);
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    text.push(self.bump());
                    continue;
                }
            }
            text.push(self.bump());
            text.push(self.bump());
            if depth == 0 {
                break;
            }
        }
        for (i, part) in text.split('\n').enumerate() {
            self.comment(part, first + i);
        }
    }

    /// A string with escapes; the reader is at its opening quote.
    fn string(&mut self, line: usize) {
        self.bump();
        let mut text = String::new();
        while self.at < self.chars.len() {
            match self.bump() {
                '"' => break,
                '\\' => text.extend(['\\', self.bump()]),
                other => text.push(other),
            }
        }
        self.out.strings.push((line, text));
        self.token("\"\"", line);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self, line: usize) {
        if self.peek(1) == '\\' {
            self.at += 2;
            self.bump();
            while self.at < self.chars.len() && self.bump() != '\'' {}
            self.token("\"\"", line);
        } else if self.peek(2) == '\'' && self.peek(1) != '\'' {
            for _ in 0..3 {
                self.bump();
            }
            self.token("\"\"", line);
        } else {
            self.bump();
            self.token("'", line);
        }
    }

    /// A word or number, or the prefix of a literal: `b"`, `c"`, `r#"`, `br"`, `b'`.
    fn word(&mut self, line: usize) {
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.bump());
        }
        match (word.as_str(), self.peek(0)) {
            ("b" | "c", '"') => self.string(line),
            ("b", '\'') => self.quote(line),
            ("r" | "br" | "cr", '"' | '#') if self.raw_string(line) => {}
            _ => self.token(word, line),
        }
    }

    /// Reads a raw string after its prefix; false, without progress, for a raw identifier.
    fn raw_string(&mut self, line: usize) -> bool {
        let mut hashes = 0;
        while self.peek(hashes) == '#' {
            hashes += 1;
        }
        if self.peek(hashes) != '"' {
            return false;
        }
        self.at += hashes + 1;
        let mut text = String::new();
        while self.at < self.chars.len() {
            match self.bump() {
                '"' if (0..hashes).all(|i| self.peek(i) == '#') => {
                    self.at += hashes;
                    break;
                }
                other => text.push(other),
            }
        }
        self.out.strings.push((line, text));
        self.token("\"\"", line);
        true
    }
}
