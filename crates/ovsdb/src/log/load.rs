//! [`load`]: from a file's bytes to the database it describes.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::record::{Damage, Reader};
use crate::db::{Database, IntegrityError, Row};
use crate::schema::{ColumnType, DatabaseSchema, SchemaError, TableIx, TableSchema};
use crate::value::{Datum, NoNames, Uuid, UuidSource, apply_diff, datum_from_json};

/// Reason why a file is not usable as a database. Do not write to it then.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No bytes at all.
    #[error("the database file is empty; create it with a schema first")]
    Empty,
    /// Another kind of file.
    #[error("this is not an OVSDB database file")]
    NotALog,
    /// A member of a cluster.
    #[error(
        "this is the file of a clustered database, which is not supported; use `ovsdb-tool cluster-to-standalone`"
    )]
    Clustered,
    /// The schema's record is damaged.
    #[error("the record of the schema is damaged at {0}")]
    SchemaRecord(Damage),
    /// The schema is not valid.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A whole but invalid record.
    #[error("the transaction at byte {offset} cannot be applied: {problem}")]
    Transaction {
        /// Offset of the record.
        offset: usize,
        /// The fault.
        problem: String,
    },
    /// The contents break the schema.
    #[error(transparent)]
    Integrity(#[from] IntegrityError),
}

/// A database read from a file.
#[derive(Debug)]
pub struct Loaded {
    /// The database.
    pub db: Database,
    /// Length of the part of the file that was read, bytes.
    pub good_len: usize,
    /// Damage after that part, unless the file ends there.
    pub damage: Option<Damage>,
    /// Number of transactions read.
    pub transactions: usize,
}

/// Loads a whole file. `uuids` supplies the rows' `_version`, which is not stored.
pub fn load(bytes: &[u8], uuids: &mut dyn UuidSource) -> Result<Loaded, LogError> {
    if bytes.is_empty() {
        return Err(LogError::Empty);
    }
    if bytes.starts_with(b"OVSDB CLUSTER ") {
        return Err(LogError::Clustered);
    }
    if !bytes.starts_with(b"OVSDB JSON ") {
        return Err(LogError::NotALog);
    }
    let mut reader = Reader::new(bytes);
    let schema = reader.next_record().map_err(LogError::SchemaRecord)?.ok_or(LogError::Empty)?;
    let mut db = Database::new(Arc::new(DatabaseSchema::from_json(&schema)?));
    let mut transactions = 0;
    let damage = loop {
        let offset = reader.offset();
        match reader.next_record() {
            Ok(None) => break None,
            Err(damage) => break Some(damage),
            Ok(Some(json)) => {
                apply(&mut db, &json, uuids).map_err(|problem| LogError::Transaction { offset, problem })?;
                transactions += 1;
            }
        }
    };
    db.rebuild()?;
    Ok(Loaded { db, good_len: reader.offset(), damage, transactions })
}

fn apply(db: &mut Database, json: &Value, uuids: &mut dyn UuidSource) -> Result<(), String> {
    let members = json.as_object().ok_or("it is not an object")?;
    let is_diff = members.get("_is_diff").and_then(Value::as_bool).unwrap_or(false);
    for (name, rows) in members.iter().filter(|(name, _)| !name.starts_with('_')) {
        let schema = db.schema().clone();
        let ix = schema.table_ix(name).ok_or_else(|| format!("the schema has no table {name}"))?;
        let rows = rows.as_object().ok_or_else(|| format!("table {name}: not an object"))?;
        for (uuid, row) in rows {
            let uuid: Uuid = uuid.parse().map_err(|error| format!("table {name}: {error}"))?;
            apply_row(db, ix, uuid, row, is_diff, uuids)
                .map_err(|e| format!("table {name} row {uuid}: {e}"))?;
        }
    }
    Ok(())
}

fn apply_row(
    db: &mut Database,
    ix: TableIx,
    uuid: Uuid,
    json: &Value,
    is_diff: bool,
    uuids: &mut dyn UuidSource,
) -> Result<(), String> {
    let old = db.row(ix, uuid).cloned();
    let members = match json {
        Value::Null if old.is_some() => {
            db.put((ix, uuid), None);
            return Ok(());
        }
        Value::Null => return Err("deletes a row that does not exist".into()),
        Value::Object(members) => members,
        _ => return Err("neither an object nor null".into()),
    };
    let table = db.schema().tables[ix.0].clone();
    let version = uuids.next_uuid();
    let columns = match old {
        None => assign(&table, Row::with_defaults(&table, version).columns, members, false)?,
        Some(old) => assign(&table, old.columns.clone(), members, is_diff)?,
    };
    db.put((ix, uuid), Some(Arc::new(Row { version, columns })));
    Ok(())
}

fn assign(
    table: &TableSchema,
    mut columns: Vec<Datum>,
    members: &Map<String, Value>,
    is_diff: bool,
) -> Result<Vec<Datum>, String> {
    for (name, json) in members {
        let ix = table.column_ix(name).ok_or_else(|| format!("the table has no column {name}"))?;
        let ty = &table.columns[ix.0].ty;
        let difference = is_diff && !ty.is_single();
        // A difference may have more elements than a value, or none.
        let read_as = if difference { &ColumnType { min: 0, max: u32::MAX, ..ty.clone() } } else { ty };
        let datum = datum_from_json(json, read_as, &mut NoNames)
            .map_err(|error| format!("column {name}: {error}"))?;
        let slot = &mut columns[ix.0];
        *slot = if difference { apply_diff(slot, &datum, false) } else { datum };
    }
    Ok(columns)
}
