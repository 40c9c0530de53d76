//! Values as text, for people: the output of `ovs-vsctl`, and the log of changes.

use serde_json::Value;

use super::{Atom, Datum, Uuid};
use crate::schema::ColumnType;

/// Text format of a value in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With brackets, braces and quotes.
    Quoted,
    /// Without any.
    Bare,
}

/// A string in double quotes.
pub fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_plain(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !matches!(text, "true" | "false")
        && text.parse::<Uuid>().is_err()
}

/// An atom, quoted if necessary.
pub fn atom_text(atom: &Atom) -> String {
    match atom {
        Atom::String(text) if !is_plain(text) => quote(text),
        other => other.to_string(),
    }
}

/// A column's value.
pub fn datum_text(datum: &Datum, ty: &ColumnType, style: Style) -> String {
    let write = |atom: &Atom| match style {
        Style::Quoted => atom_text(atom),
        Style::Bare => atom.to_string(),
    };
    let items: Vec<String> = if datum.is_map() {
        datum.pairs().iter().map(|(key, value)| format!("{}={}", write(key), write(value))).collect()
    } else {
        datum.atoms().iter().map(write).collect()
    };
    let brackets = ty.is_map() || ty.max > 1 || items.is_empty();
    match (style, ty.is_map()) {
        (Style::Bare, _) => items.join(" "),
        (Style::Quoted, true) => format!("{{{}}}", items.join(", ")),
        (Style::Quoted, false) if brackets && items.len() != 1 => format!("[{}]", items.join(", ")),
        (Style::Quoted, false) if ty.max > 1 => format!("[{}]", items.join(", ")),
        (Style::Quoted, false) => items.concat(),
    }
}
