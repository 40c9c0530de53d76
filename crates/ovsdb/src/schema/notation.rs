//! Text notation of the built-in schemas. Not for external input.
//!
//! ```text
//! table NAME [root] [max=N] [index=COL[,COL]]...
//!   COLUMN[!][~]  TYPE          ! immutable, ~ ephemeral
//! ```
//! `TYPE` is `BASE` or `BASE=>BASE` (a map) and a count: exactly one without a suffix, `?` none or one, `*`
//! any number, `+` at least one, `{N}` none to N. `BASE` is `integer`, `real`, `boolean`, `string` or `uuid`;
//! `integer(A..B)` with either bound optional; `string(a|b)`, an enumeration; `@Table`, a strong reference;
//! `@~Table`, a weak one.

use std::sync::Arc;

use super::parse::{RawColumn, RawTable};
use super::{BaseType, ColumnType, DatabaseSchema, RefKind, Reference, SchemaError, TableIx};
use crate::value::{Atom, AtomicType, Datum};

/// Reads a schema in this notation.
pub(super) fn read(name: &str, version: &str, text: &str) -> Result<DatabaseSchema, SchemaError> {
    let mut tables: Vec<RawTable> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), tables.last_mut()) {
            (None, _) => {}
            (Some("table"), _) => tables.push(table(words)),
            (Some(column), Some(table)) => {
                let ty = words.next().unwrap_or_default();
                let parsed = column_type(ty).ok_or_else(|| wrong(line))?;
                table.columns.push(RawColumn {
                    name: column.trim_end_matches(['!', '~']).to_string(),
                    ty: parsed,
                    mutable: !column.contains('!'),
                    ephemeral: column.contains('~'),
                });
            }
            (Some(_), None) => return Err(wrong(line)),
        }
    }
    DatabaseSchema::assemble(name, version, None, tables)
}

fn wrong(line: &str) -> SchemaError {
    SchemaError { place: line.trim().to_string(), problem: "is not in the schema notation".into() }
}

fn table<'a>(mut words: impl Iterator<Item = &'a str>) -> RawTable {
    let name = words.next().unwrap_or_default().to_string();
    let mut table =
        RawTable { name, columns: Vec::new(), is_root: false, max_rows: None, indexes: Vec::new() };
    for word in words {
        if let Some(rows) = word.strip_prefix("max=") {
            table.max_rows = rows.parse().ok();
        } else if let Some(columns) = word.strip_prefix("index=") {
            table.indexes.push(columns.split(',').map(str::to_string).collect());
        } else {
            table.is_root = word == "root";
        }
    }
    table
}

fn column_type(text: &str) -> Option<ColumnType> {
    let (bases, min, max) = if let Some(rest) = text.strip_suffix('?') {
        (rest, 0, 1)
    } else if let Some(rest) = text.strip_suffix('*') {
        (rest, 0, u32::MAX)
    } else if let Some(rest) = text.strip_suffix('+') {
        (rest, 1, u32::MAX)
    } else if let Some((rest, count)) = text.strip_suffix('}').and_then(|t| t.split_once('{')) {
        (rest, 0, count.parse().ok()?)
    } else {
        (text, 1, 1)
    };
    let (key, value) = match bases.split_once("=>") {
        Some((key, value)) => (key, Some(base_type(value)?)),
        None => (bases, None),
    };
    Some(ColumnType { key: base_type(key)?, value, min, max })
}

fn base_type(text: &str) -> Option<BaseType> {
    if let Some(target) = text.strip_prefix('@') {
        let (kind, table) = match target.strip_prefix('~') {
            Some(table) => (RefKind::Weak, table),
            None => (RefKind::Strong, target),
        };
        let reference = Some(Reference { table: Arc::from(table), table_ix: TableIx(0), kind });
        return Some(BaseType { reference, ..BaseType::new(AtomicType::Uuid) });
    }
    let Some((name, arguments)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) else {
        return AtomicType::from_name(text).map(BaseType::new);
    };
    let mut base = BaseType::new(AtomicType::from_name(name)?);
    if let Some((least, greatest)) = arguments.split_once("..") {
        base.min_integer = least.parse().ok();
        base.max_integer = greatest.parse().ok();
    } else {
        base.enumeration = Some(Datum::set(arguments.split('|').map(Atom::string)).atoms().into());
    }
    Some(base)
}
