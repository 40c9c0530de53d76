//! Values of the database as text, on the command line and in output.
//!
//! The syntax is that of `ovs-vsctl(8)`, "Database Values": sets `[a, b]` or `a,b`, maps `{k=v, …}` or
//! `k=v,…`, strings in double quotes (with JSON's escapes) where a bare one would be ambiguous. `@name` is a
//! row of the same invocation.

use ovsdb::schema::{BaseType, ColumnType, RefKind};
pub(crate) use ovsdb::value::text::{Style, atom_text, datum_text, quote};
use ovsdb::value::{Atom, AtomicType, Datum, Uuid};

/// Maximum number of integers in one range `a-b`.
const RANGE_LIMIT: i64 = 4096;

/// Returns the UUID of `@name`; the flag is set for a strong reference.
pub(crate) type Names<'n> = &'n mut dyn FnMut(&str, bool) -> Uuid;

fn is_delimiter(c: char) -> bool {
    matches!(c, ':' | '=' | ',' | ' ' | '[' | ']' | '{' | '}' | '!' | '<' | '>')
}

/// Takes a word off the front: up to a delimiter outside of quotes and not after a backslash. Quoted parts
/// stay unchanged for [`atom_from_text`]; outside of them a backslash is removed.
pub(crate) fn take_word(text: &mut &str) -> Result<String, String> {
    let whole = *text;
    let mut in_quotes = false;
    let mut word = String::new();
    let mut chars = whole.char_indices();
    let mut end = whole.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next();
                let (_, next) = next.ok_or_else(|| format!("{whole}: backslash at end of argument"))?;
                if in_quotes {
                    word.push(c);
                }
                word.push(next);
                continue;
            }
            '"' => in_quotes = !in_quotes,
            c if !in_quotes && is_delimiter(c) => {
                end = at;
                break;
            }
            _ => {}
        }
        word.push(c);
    }
    if in_quotes {
        return Err(format!("{whole}: quoted string extends past end of argument"));
    }
    *text = &whole[end..];
    Ok(word)
}

fn unquote(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("An empty string is not valid as input; use \"\" to represent the empty string".into());
    }
    if !text.starts_with('"') {
        if text.contains('\0') {
            return Err(format!("{text:?}: the database has no strings with a NUL character"));
        }
        return Ok(text.to_string());
    }
    if text.len() < 2 || !text.ends_with('"') {
        return Err(format!("{text}: missing quote at end of quoted string"));
    }
    let unquoted: String =
        serde_json::from_str(text).map_err(|error| format!("{text}: bad quoted string: {error}"))?;
    if unquoted.contains('\0') {
        return Err(format!("{text}: bad quoted string: the database has no strings with a NUL character"));
    }
    Ok(unquoted)
}

fn constraint(text: String) -> String {
    format!("constraint violation: {text}")
}

fn in_range<T: PartialOrd + std::fmt::Display>(x: T, min: Option<T>, max: Option<T>) -> Result<(), String> {
    if min.as_ref().is_none_or(|min| x >= *min) && max.as_ref().is_none_or(|max| x <= *max) {
        return Ok(());
    }
    Err(constraint(match (min, max) {
        (Some(min), Some(max)) => format!("{x} is not in the valid range {min} to {max} (inclusive)"),
        (Some(min), None) => format!("{x} is less than minimum allowed value {min}"),
        (_, max) => {
            let max = max.map(|max| max.to_string()).unwrap_or_default();
            format!("{x} is greater than maximum allowed value {max}")
        }
    }))
}

fn check(atom: &Atom, base: &BaseType) -> Result<(), String> {
    if let Some(allowed) = &base.enumeration {
        if allowed.contains(atom) {
            return Ok(());
        }
        let names: Vec<String> = allowed.iter().map(atom_text).collect();
        let text = format!("{} is not one of the allowed values ([{}])", atom_text(atom), names.join(", "));
        return Err(constraint(text));
    }
    match atom {
        Atom::Integer(n) => in_range(*n, base.min_integer, base.max_integer),
        Atom::Real(x) => in_range(*x, base.min_real, base.max_real),
        _ => base.check(atom).map_err(|error| constraint(error.details)),
    }
}

/// Reads one atom.
pub(crate) fn atom_from_text(text: &str, base: &BaseType, names: Names<'_>) -> Result<Atom, String> {
    let atom = match base.ty {
        AtomicType::Integer => Atom::Integer(
            text.trim_start().parse().map_err(|_| format!("\"{text}\" is not a valid integer or range"))?,
        ),
        AtomicType::Real => {
            let real: Option<f64> = text.parse().ok().filter(|x: &f64| x.is_finite());
            Atom::Real(real.ok_or_else(|| format!("\"{text}\" is not a valid real number"))?)
        }
        AtomicType::Boolean => match text {
            "true" | "yes" | "on" | "1" => Atom::Boolean(true),
            "false" | "no" | "off" | "0" => Atom::Boolean(false),
            _ => return Err(format!("\"{text}\" is not a valid boolean (use \"true\" or \"false\")")),
        },
        AtomicType::String => Atom::from(unquote(text)?),
        AtomicType::Uuid if text.starts_with('@') => {
            let strong = base.reference.as_ref().is_some_and(|r| r.kind == RefKind::Strong);
            Atom::Uuid(names(text, strong))
        }
        AtomicType::Uuid => Atom::Uuid(text.parse().map_err(|_| format!("\"{text}\" is not a valid UUID"))?),
    };
    check(&atom, base)?;
    Ok(atom)
}

/// Parses `a-b` as the integers from a to b; `None` if it is not such a range.
fn range_from_text(word: &str, base: &BaseType) -> Option<Result<Vec<Atom>, String>> {
    let (first, last) = word.split_at_checked(1).and_then(|(_, rest)| rest.split_once('-'))?;
    let first: i64 = word[..1 + first.len()].parse().ok()?;
    let last: i64 = last.parse().ok()?;
    if last < first {
        return Some(Err(format!("\"{word}\" is not a valid range: its end is before its start")));
    }
    if last.checked_sub(first).is_none_or(|span| span >= RANGE_LIMIT) {
        return Some(Err(format!("\"{word}\" is a range of more than {RANGE_LIMIT} integers")));
    }
    Some((first..=last).map(Atom::Integer).map(|atom| check(&atom, base).map(|()| atom)).collect())
}

/// Reads the value of a column.
pub(crate) fn datum_from_text(text: &str, ty: &ColumnType, names: Names<'_>) -> Result<Datum, String> {
    let mut rest = text.trim_start_matches(' ');
    let close = match (rest.chars().next(), ty.is_map()) {
        (Some('{'), true) => Some('}'),
        (Some('['), false) => Some(']'),
        _ => None,
    };
    if close.is_some() {
        rest = &rest[1..];
    }
    let (mut atoms, mut pairs) = (Vec::new(), Vec::new());
    rest = rest.trim_start_matches(' ');
    while let Some(c) = rest.chars().next().filter(|c| Some(*c) != close) {
        if is_delimiter(c) {
            return Err(format!("{text}: unexpected \"{c}\" parsing {}", ty.describe()));
        }
        let element = rest;
        let word = take_word(&mut rest)?;
        if let Some(value_type) = &ty.value {
            let key = atom_from_text(&word, &ty.key, names)?;
            rest = rest.trim_start_matches(' ');
            let Some(behind) = rest.strip_prefix('=') else {
                let found = rest.chars().next().map(String::from).unwrap_or_default();
                return Err(format!("{element}: syntax error at \"{found}\" expecting \"=\""));
            };
            rest = behind.trim_start_matches(' ');
            let word = take_word(&mut rest)?;
            pairs.push((key, atom_from_text(&word, value_type, names)?));
        } else if let Some(range) =
            (ty.key.ty == AtomicType::Integer).then(|| range_from_text(&word, &ty.key)).flatten()
        {
            atoms.extend(range?);
        } else {
            atoms.push(atom_from_text(&word, &ty.key, names)?);
        }
        rest = rest.trim_start_matches(' ');
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start_matches(' ');
    }
    if let Some(close) = close {
        let Some(behind) = rest.strip_prefix(close) else {
            return Err(format!("{text}: missing \"{close}\" at end of data"));
        };
        if !behind.trim_start_matches(' ').is_empty() {
            return Err(format!("{text}: trailing garbage after \"{close}\""));
        }
    }
    collect(text, ty, atoms, pairs)
}

fn collect(text: &str, ty: &ColumnType, atoms: Vec<Atom>, pairs: Vec<(Atom, Atom)>) -> Result<Datum, String> {
    let size = atoms.len() + pairs.len();
    let kind = if ty.is_map() { "pair(s)" } else { "value(s)" };
    if size < ty.min as usize {
        return Err(format!("{text}: {size} {kind} specified but the minimum number is {}", ty.min));
    }
    if ty.max != u32::MAX && size > ty.max as usize {
        return Err(format!("{text}: {size} {kind} specified but the maximum number is {}", ty.max));
    }
    if ty.is_map() {
        Datum::distinct_map(pairs).ok_or_else(|| format!("{text}: map contains duplicate key"))
    } else {
        Datum::distinct_set(atoms).ok_or_else(|| format!("{text}: set contains duplicate value"))
    }
}
