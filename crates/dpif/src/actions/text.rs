//! Lists of actions as text, and the words of actions.

use super::list::{self, DpAction, ParseFn};
use crate::text::token::{Item, items};
use crate::text::{PortNames, TextError};

/// Maximum nesting of actions in text.
const DEPTH_MAX: usize = 10;

/// A list of actions as text; an empty one is `drop`.
pub fn format_actions(actions: &[DpAction], names: &dyn PortNames) -> String {
    if actions.is_empty() {
        return "drop".into();
    }
    let parts: Vec<String> = actions.iter().map(|a| a.format(names)).collect();
    parts.join(",")
}

/// A list of actions from text.
///
/// # Errors
/// Unknown actions or fields, values that do not fit, unbalanced parentheses.
pub fn parse_actions(text: &str, names: &dyn PortNames) -> Result<Vec<DpAction>, TextError> {
    let parser = Parser { names, depth: 0 };
    items(text)?.iter().map(|item| list::parse(item, &parser)).collect()
}

/// Parses actions at a given nesting depth.
pub(crate) struct Parser<'a> {
    pub(super) names: &'a dyn PortNames,
    depth: usize,
}

impl Parser<'_> {
    /// A nested list.
    pub(super) fn list(&self, items: &[Item<'_>]) -> Result<Vec<DpAction>, TextError> {
        let inner = Parser { names: self.names, depth: self.depth + 1 };
        if inner.depth > DEPTH_MAX {
            return Err(TextError(format!("actions nest deeper than {DEPTH_MAX}")));
        }
        items.iter().map(|item| list::parse(item, &inner)).collect()
    }
}

/// A word of an action, alone or with an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    word: &'static str,
    is_bare: bool,
}

/// `word`.
pub(super) const fn bare(word: &'static str) -> Word {
    Word { word, is_bare: true }
}

/// `word(…)`.
pub(super) const fn call(word: &'static str) -> Word {
    Word { word, is_bare: false }
}

impl Word {
    /// Whether the item begins an action with this word.
    pub(super) fn fits(&self, item: &Item<'_>) -> bool {
        self.word == item.name && self.is_bare == item.is_bare()
    }
}

/// Whether all words are distinct.
pub(super) const fn are_distinct(rows: &[(&[Word], ParseFn)]) -> bool {
    let mut i = 0;
    while i < rows.len() {
        let mut j = i + 1;
        while j < rows.len() {
            if meet(rows[i].0, rows[j].0) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

const fn meet(some: &[Word], others: &[Word]) -> bool {
    let mut i = 0;
    while i < some.len() {
        let mut j = 0;
        while j < others.len() {
            if some[i].is_bare == others[j].is_bare && is_same(some[i].word, others[j].word) {
                return true;
            }
            j += 1;
        }
        i += 1;
    }
    false
}

/// `==`, which constants lack.
pub(super) const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    a.len() == b.len()
}
