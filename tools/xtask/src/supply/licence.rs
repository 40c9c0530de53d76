//! SPDX licence expressions, as used in manifests: `OR`, `AND`, `WITH`, brackets, `+`, and the old `/`.
//!
//! `AND` binds closer than `OR` (SPDX specification, annex D). A licence `WITH` an exception grants more than the licence
//! alone, so the licence being allowed is enough; `X+` ("or any later version") is satisfied by `X`.

/// Whether a licensee who accepts only `allowed` may use a work under `expression`.
///
/// # Errors
/// If `expression` is malformed; the text has the position.
pub(super) fn satisfied(expression: &str, allowed: &[&str]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, at: 0, depth: 0, allowed };
    let value = reader.or()?;
    match reader.peek() {
        None => Ok(value),
        Some(word) => Err(format!("`{word}` is not expected there")),
    }
}

/// Maximum nesting of brackets.
const DEPTH_LIMIT: usize = 16;

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    depth: usize,
    allowed: &'a [&'a str],
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn eat(&mut self, word: &str) -> bool {
        let hit = self.peek() == Some(word);
        self.at += usize::from(hit);
        hit
    }

    fn or(&mut self) -> Result<bool, String> {
        let mut value = self.and()?;
        while self.eat("OR") {
            value |= self.and()?;
        }
        Ok(value)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut value = self.one()?;
        while self.eat("AND") {
            value &= self.one()?;
        }
        Ok(value)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.eat("(") {
            self.depth += 1;
            if self.depth > DEPTH_LIMIT {
                return Err(format!("brackets nest deeper than {DEPTH_LIMIT}"));
            }
            let value = self.or()?;
            self.depth -= 1;
            return if self.eat(")") { Ok(value) } else { Err("a bracket is not closed".to_owned()) };
        }
        let word = match self.peek() {
            None => return Err("it ends where a licence should stand".to_owned()),
            Some(word @ ("OR" | "AND" | "WITH" | ")")) => {
                return Err(format!("`{word}` stands where a licence should"));
            }
            Some(word) => word,
        };
        self.at += 1;
        if self.eat("WITH") {
            self.at += 1;
            if self.at > self.words.len() {
                return Err("`WITH` names no exception".to_owned());
            }
        }
        Ok(self.allowed.contains(&word.strip_suffix('+').unwrap_or(word)))
    }
}
