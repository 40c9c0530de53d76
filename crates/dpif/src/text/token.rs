//! Splits datapath text into items: `name`, `name=value`, `name(items)`, `{name}`, separated by commas, except for
//! the last kind.

use super::TextError;

/// Maximum nesting of parentheses.
const DEPTH_MAX: usize = 24;

/// One item of a text.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Option<&'a str>,
    pub(crate) args: Option<Vec<Item<'a>>>,
}

impl<'a> Item<'a> {
    /// Whether it is a bare name.
    pub(crate) fn is_bare(&self) -> bool {
        self.value.is_none() && self.args.is_none()
    }

    /// The value after `=`.
    pub(crate) fn value(&self) -> Result<&'a str, TextError> {
        self.value.ok_or_else(|| TextError(format!("{}: '=' and a value expected", self.name)))
    }

    /// The content of the parentheses.
    pub(crate) fn args(&self) -> Result<&[Item<'a>], TextError> {
        self.args.as_deref().ok_or_else(|| TextError(format!("{}: '(' expected", self.name)))
    }

    /// The one word in parentheses.
    pub(crate) fn word(&self) -> Result<&'a str, TextError> {
        match self.args()? {
            [Item { name, value: None, args: None }] => Ok(name),
            _ => Err(TextError(format!("{}: one value in parentheses expected", self.name))),
        }
    }

    /// An error that names this item.
    pub(crate) fn unknown(&self, within: &str) -> TextError {
        TextError(format!("{within}: {:?} is not known here", self.name))
    }
}

/// The items of a whole text.
pub(crate) fn items(text: &str) -> Result<Vec<Item<'_>>, TextError> {
    let mut rest = text;
    let found = list(&mut rest, 0)?;
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(TextError(format!("')' without '(' before {:?}", clip(rest))))
    }
}

fn clip(s: &str) -> &str {
    s.get(..24).unwrap_or(s)
}

fn list<'a>(rest: &mut &'a str, depth: usize) -> Result<Vec<Item<'a>>, TextError> {
    if depth > DEPTH_MAX {
        return Err(TextError(format!("parentheses nest deeper than {DEPTH_MAX}")));
    }
    let mut found = Vec::new();
    loop {
        *rest = rest.trim_start_matches([' ', ',', '\t', '\n']);
        if rest.is_empty() || rest.starts_with(')') {
            return Ok(found);
        }
        found.push(item(rest, depth)?);
        *rest = rest.trim_start();
        if !(rest.is_empty() || rest.starts_with([',', ')', '{'])) {
            return Err(TextError(format!("',' or ')' expected before {:?}", clip(rest))));
        }
    }
}

fn take<'a>(rest: &mut &'a str, ends: &[char]) -> &'a str {
    let end = rest.find(ends).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    word.trim()
}

fn item<'a>(rest: &mut &'a str, depth: usize) -> Result<Item<'a>, TextError> {
    let before = *rest;
    if before.starts_with('{') {
        let Some(end) = before.find('}') else {
            return Err(TextError(format!("'}}' is missing after {:?}", clip(before))));
        };
        *rest = &before[end + 1..];
        return Ok(Item { name: &before[..=end], value: None, args: None });
    }
    let name = take(rest, &['(', ')', ',', '=']);
    // Flags of GRE are a list without a name.
    if name.is_empty() && (depth == 0 || !rest.starts_with('(')) {
        return Err(TextError(format!("a name expected before {:?}", clip(before))));
    }
    let mut found = Item { name, value: None, args: None };
    if let Some(after) = rest.strip_prefix('=') {
        *rest = after;
        found.value = Some(take(rest, &[')', ',']));
    } else if let Some(after) = rest.strip_prefix('(') {
        *rest = after;
        found.args = Some(list(rest, depth + 1)?);
        let closed = rest.strip_prefix(')');
        *rest = closed.ok_or_else(|| TextError(format!("{name}: ')' is missing")))?;
    }
    Ok(found)
}
