//! docs/columns.md and the manual page docs/man/sluiced.conf.db.5, made from the rows of `vswitch::settings`.
//!
//! `SLUICE_WRITE_PAGES=1 cargo test -p vswitch --test pages` writes them.
#![forbid(unsafe_code)]

mod manual;
mod markdown;

use std::path::Path;

use ovsdb::schema::{BaseType, ColumnType, open_vswitch};
use vswitch::settings::{Effect, Setting, Values, tables};

#[test]
fn pages_are_those_of_the_rows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let pages = [
        ("docs/columns.md", markdown::page(tables())),
        ("docs/man/sluiced.conf.db.5", manual::page(tables())),
    ];
    for (name, text) in pages {
        let path = root.join(name);
        if std::env::var_os("SLUICE_WRITE_PAGES").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            present == text,
            "{name} differs from crates/vswitch/src/settings: \
             SLUICE_WRITE_PAGES=1 cargo test -p vswitch --test pages writes it"
        );
    }
}

/// The values of a setting in words.
fn values(table: &str, setting: &Setting) -> String {
    match (&setting.values, setting.key) {
        (Values::Text { example, .. }, Some(_)) => format!("text, such as {example}"),
        (values, Some(_)) => values.text(),
        (_, None) => {
            let schema = open_vswitch();
            let column = schema.table(table).and_then(|table| table.column(setting.column)).unwrap();
            column_values(&column.ty)
        }
    }
}

fn column_values(ty: &ColumnType) -> String {
    let key = base(&ty.key);
    match (&ty.value, ty.min, ty.max) {
        (Some(value), ..) => format!("map of {key} to {}", base(value)),
        (None, 1, 1) => key,
        (None, _, 1) => format!("optional {key}"),
        (None, _, u32::MAX) => format!("set of {key}"),
        (None, _, max) => format!("set of up to {max} {key}"),
    }
}

fn base(ty: &BaseType) -> String {
    if let Some(reference) = &ty.reference {
        return reference.table.to_string();
    }
    if let Some(words) = &ty.enumeration {
        let words: Vec<String> =
            words.iter().map(|word| word.as_str().unwrap_or_default().to_string()).collect();
        return format!("one of {}", words.join(", "));
    }
    match (ty.min_integer, ty.max_integer) {
        (None, None) => ty.ty.as_str().to_string(),
        (min, max) => {
            let bound = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
            format!("integer {}..{}", bound(min), bound(max))
        }
    }
}

/// The effect of a setting in words. `module` gives the text about a module, and `code` marks names.
fn effect(setting: &Setting, module: fn(&str) -> String, code: fn(&str) -> String) -> String {
    match &setting.effect {
        Effect::CarriedOut { by, but: None } => format!("carried out{}", module(by)),
        Effect::CarriedOut { by, but: Some(feature) } => {
            format!("carried out{}; not supported: {feature}", module(by))
        }
        Effect::Status { by } => format!("status{}", module(by)),
        Effect::Empty { because } => format!("always empty: {because}"),
        Effect::External(programs) => format!("none here, for {programs}"),
        Effect::Missing { feature, consequence, .. } => {
            let consequence = consequence.map(|text| format!("; {text}")).unwrap_or_default();
            format!("none: {feature} is not supported{consequence}")
        }
        Effect::Refused(text) => format!("refused: {text}"),
        Effect::Fixed { value, because } => format!("none, always as with {}: {because}", code(value)),
    }
}
