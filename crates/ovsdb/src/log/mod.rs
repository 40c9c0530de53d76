//! Codec of the standalone database file, ovsdb(5): records `OVSDB JSON <length> <sha1>` LF `<json>` LF, the
//! first with the schema, each later one with a transaction.
//!
//! Bytes in, bytes out: the owner of the file reads and writes it, calls fsync, renames, locks. A torn file
//! is read up to the last whole record; [`Loaded::damage`] has that offset, and the owner truncates there
//! before it appends. A whole but invalid record is an error: truncating it would lose data.

mod load;
mod record;
#[cfg(test)]
mod tests;

pub use load::{Loaded, LogError, load};
pub use record::{Damage, Reader, encode_record};

use serde_json::{Map, Value};

use crate::db::{Change, Database, Delta, Row};
use crate::schema::{ColumnSchema, TableIx, TableSchema};
use crate::value::{Uuid, datum_to_json, diff};

/// The first record of a file: its schema.
pub fn schema_record(db: &Database) -> Vec<u8> {
    encode_record(&db.schema().to_json())
}

/// The record of a commit at `date_ms` (milliseconds since 1970), or `None` if only ephemeral columns
/// changed, which are not stored.
pub fn commit_record(db: &Database, delta: &Delta, comment: &str, date_ms: i64) -> Option<Vec<u8>> {
    // Readers of ovsdb-server 3.1 mistake the difference for the value in a column with a non-empty default,
    // and reject one with more elements than the column allows. Such records get whole values.
    let tables = &db.schema().tables;
    let as_diff = !delta.changes.iter().any(|((table, _), change)| {
        matches!((&change.old, &change.new), (Some(old), Some(new)) if misread_as_diff(&tables[table.0], old, new))
    });
    let mut members = Map::new();
    for ((table_ix, uuid), change) in &delta.changes {
        let table = &tables[table_ix.0];
        if let Some(row) = change_json(table, change, as_diff) {
            add_row(&mut members, table, *uuid, row);
        }
    }
    if members.is_empty() {
        return None;
    }
    members.insert("_date".into(), Value::from(date_ms));
    if as_diff {
        members.insert("_is_diff".into(), Value::Bool(true));
    }
    if !comment.is_empty() {
        members.insert("_comment".into(), Value::from(comment));
    }
    Some(encode_record(&Value::Object(members)))
}

/// A whole file with the database's present contents, for compaction.
pub fn snapshot(db: &Database, comment: &str, date_ms: i64) -> Vec<u8> {
    let mut members = Map::new();
    for (ix, table) in db.schema().tables.iter().enumerate() {
        for (uuid, row) in db.rows(TableIx(ix)) {
            add_row(&mut members, table, uuid, insert_json(table, row));
        }
    }
    let mut bytes = schema_record(db);
    if !members.is_empty() {
        members.insert("_date".into(), Value::from(date_ms));
        members.insert("_comment".into(), Value::from(comment));
        bytes.extend(encode_record(&Value::Object(members)));
    }
    bytes
}

fn add_row(members: &mut Map<String, Value>, table: &TableSchema, uuid: Uuid, row: Value) {
    let rows = members.entry(table.name.to_string()).or_insert_with(|| Value::Object(Map::new()));
    if let Some(rows) = rows.as_object_mut() {
        rows.insert(uuid.to_string(), row);
    }
}

fn insert_json(table: &TableSchema, row: &Row) -> Value {
    let set =
        table.columns.iter().zip(&row.columns).filter(|(c, datum)| !c.ephemeral && c.default != **datum);
    Value::Object(set.map(|(c, datum)| (c.name.to_string(), datum_to_json(datum))).collect())
}

fn changed<'a>(
    table: &'a TableSchema,
    old: &'a Row,
    new: &'a Row,
) -> impl Iterator<Item = (&'a ColumnSchema, usize)> + 'a {
    let differs = |(ix, c): &(usize, &ColumnSchema)| !c.ephemeral && old.columns[*ix] != new.columns[*ix];
    table.columns.iter().enumerate().filter(differs).map(|(ix, c)| (c, ix))
}

fn misread_as_diff(table: &TableSchema, old: &Row, new: &Row) -> bool {
    changed(table, old, new).any(|(c, ix)| {
        let (old, new) = (&old.columns[ix], &new.columns[ix]);
        let from_default = !c.default.is_empty() && *old == c.default;
        let difference_too_large = || c.ty.max != u32::MAX && !c.ty.allows_size(diff(old, new, false).len());
        !c.ty.is_single() && (from_default || difference_too_large())
    })
}

/// One row in the record; `None` if only ephemeral columns changed.
fn change_json(table: &TableSchema, change: &Change, as_diff: bool) -> Option<Value> {
    match (&change.old, &change.new) {
        (_, None) => Some(Value::Null),
        (None, Some(new)) => Some(insert_json(table, new)),
        (Some(old), Some(new)) => {
            let value = |(column, ix): (&ColumnSchema, usize)| {
                let new = &new.columns[ix];
                let single = !as_diff || column.ty.is_single();
                (column.name.to_string(), datum_to_json(&diff(&old.columns[ix], new, single)))
            };
            let members: Map<String, Value> = changed(table, old, new).map(value).collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
    }
}
