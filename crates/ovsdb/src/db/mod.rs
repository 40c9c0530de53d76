//! The in-memory database: tables of rows, transactions on them (RFC 7047 section 5.2), and derived state
//! that keeps a commit's cost proportional to its change.
//!
//! [`transact`] runs a list of operations. It changes rows in place and records the old ones, so that a
//! failed transaction is undone row by row. At commit it checks references, garbage, row limits, weak
//! references and unique indexes of the changed rows, using the counts kept between commits. A commit yields
//! a [`Delta`], the source of monitor updates and log records.
//!
//! Cycles of strong references keep their rows alive: collection counts references, as in `ovsdb-server`. A
//! row's reference to itself is ignored.

mod bookkeeping;
mod commit;
mod condition;
mod execute;
mod mutation;
mod operation;
#[cfg(test)]
mod tests;
mod txn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use condition::{Condition, Field};
pub use execute::{Commit, Context, Outcome, transact};
pub(crate) use operation::parse_fields;

use crate::schema::{ColumnIx, DatabaseSchema, TableIx};
use crate::value::{Datum, Uuid, datum_to_json};
use serde_json::{Map, Value};
use txn::Txn;

/// A row's address: its table and its UUID.
pub type RowKey = (TableIx, Uuid);

/// One row's contents. Rows are shared and immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `_version`: new whenever the row changes.
    pub version: Uuid,
    /// Its columns, in the schema's order.
    pub columns: Vec<Datum>,
}

/// Change of one row by a commit. At most one side is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row before; `None` when it was inserted.
    pub old: Option<Arc<Row>>,
    /// The row after; `None` when it was deleted.
    pub new: Option<Arc<Row>>,
}

/// Changes of a commit: all changed rows, and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The changed rows.
    pub changes: BTreeMap<RowKey, Change>,
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    rows: BTreeMap<Uuid, Arc<Row>>,
    /// For each index of the schema: from the values of its columns to the row.
    indexes: Vec<BTreeMap<Vec<Datum>, Uuid>>,
    /// Number of strong references to each row from other rows; rows without one are absent.
    strong: BTreeMap<Uuid, u64>,
    /// The rows with a weak reference to each row.
    weak: BTreeMap<Uuid, BTreeSet<RowKey>>,
}

/// A database.
#[derive(Clone, Debug)]
pub struct Database {
    schema: Arc<DatabaseSchema>,
    tables: Vec<Table>,
}

/// The contents of a database violate its schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("database {database}: {problem}")]
pub struct IntegrityError {
    /// The database's name.
    pub database: String,
    /// The violation.
    pub problem: String,
}

impl Database {
    /// An empty database.
    pub fn new(schema: Arc<DatabaseSchema>) -> Self {
        let table = |t: &Arc<crate::schema::TableSchema>| Table {
            indexes: vec![BTreeMap::new(); t.indexes.len()],
            ..Table::default()
        };
        let tables = schema.tables.iter().map(table).collect();
        Database { schema, tables }
    }

    /// Its schema.
    pub fn schema(&self) -> &Arc<DatabaseSchema> {
        &self.schema
    }

    /// The rows of a table in the order of their UUIDs.
    pub fn rows(&self, table: TableIx) -> impl Iterator<Item = (Uuid, &Arc<Row>)> {
        self.tables[table.0].rows.iter().map(|(uuid, row)| (*uuid, row))
    }

    /// One row.
    pub fn row(&self, table: TableIx, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables[table.0].rows.get(&uuid)
    }

    /// Number of rows of a table.
    pub fn row_count(&self, table: TableIx) -> usize {
        self.tables[table.0].rows.len()
    }

    /// Number of atoms in all rows, and of values of columns, `_uuid` and `_version` included.
    pub fn contents(&self) -> (usize, usize) {
        let (mut atoms, mut cells) = (0, 0);
        for (schema, table) in self.schema.tables.iter().zip(&self.tables) {
            let of_row =
                |row: &Arc<Row>| -> usize { row.columns.iter().map(|d| d.len() + d.pairs().len()).sum() };
            atoms += table.rows.values().map(|row| 2 + of_row(row)).sum::<usize>();
            cells += table.rows.len() * (2 + schema.columns.len());
        }
        (atoms, cells)
    }

    /// Number of weak references between rows.
    pub fn weak_refs(&self) -> usize {
        self.tables.iter().flat_map(|table| table.weak.values()).map(BTreeSet::len).sum()
    }

    /// Reverts a commit. Commits must be reverted in reverse order, without gaps.
    pub fn revert(&mut self, delta: &Delta) {
        for (key, change) in &delta.changes {
            self.put(*key, change.old.clone());
            self.account(*key, change.new.as_deref(), change.old.as_deref());
        }
    }

    /// Converts the contents to another schema: common tables and columns are kept, new ones get their
    /// defaults, others are dropped. Fails if the contents violate the new schema.
    pub fn convert(&self, schema: Arc<DatabaseSchema>) -> Result<Database, IntegrityError> {
        let mut target = Database::new(schema.clone());
        for (ix, table) in schema.tables.iter().enumerate() {
            let Some(source_ix) = self.schema.table_ix(&table.name) else { continue };
            let source = &self.schema.tables[source_ix.0];
            for (uuid, row) in self.rows(source_ix) {
                let column = |c: &crate::schema::ColumnSchema| {
                    source.column_ix(&c.name).map_or_else(|| c.default.clone(), |s| row.columns[s.0].clone())
                };
                let columns = table.columns.iter().map(column).collect();
                target.put((TableIx(ix), uuid), Some(Arc::new(Row { version: row.version, columns })));
            }
        }
        target.rebuild()?;
        target.sweep();
        Ok(target)
    }

    /// Removes unreferenced rows: a dropped column may have held the last reference to them.
    fn sweep(&mut self) {
        loop {
            let mut orphans = Vec::new();
            for (ix, _) in self.schema.tables.iter().enumerate().filter(|(_, table)| !table.is_root) {
                let rows = &self.tables[ix].rows;
                let unreferenced = |uuid: &&Uuid| !self.tables[ix].strong.contains_key(uuid);
                orphans.extend(rows.keys().filter(unreferenced).map(|uuid| (TableIx(ix), *uuid)));
            }
            if orphans.is_empty() {
                return;
            }
            for key in orphans {
                let old = self.row(key.0, key.1).cloned();
                self.put(key, None);
                self.account(key, old.as_deref(), None);
            }
        }
    }

    /// Inserts or removes a row, without any check or update of derived state.
    pub(crate) fn put(&mut self, (table, uuid): RowKey, row: Option<Arc<Row>>) {
        let rows = &mut self.tables[table.0].rows;
        match row {
            Some(row) => rows.insert(uuid, row),
            None => rows.remove(&uuid),
        };
    }
}

impl Row {
    /// A row of default values.
    pub(crate) fn with_defaults(table: &crate::schema::TableSchema, version: Uuid) -> Row {
        Row { version, columns: table.columns.iter().map(|c| c.default.clone()).collect() }
    }

    /// A column's value.
    pub fn column(&self, ix: ColumnIx) -> &Datum {
        &self.columns[ix.0]
    }

    /// A field's value, `_uuid` and `_version` included.
    pub(crate) fn field(&self, uuid: Uuid, field: Field) -> Datum {
        match field {
            Field::Uuid => Datum::atom(uuid),
            Field::Version => Datum::atom(self.version),
            Field::Column(ix) => self.columns[ix.0].clone(),
        }
    }
}

/// The `<row>` of these fields.
pub(crate) fn row_json(table: &crate::schema::TableSchema, uuid: Uuid, row: &Row, fields: &[Field]) -> Value {
    let member = |field: &Field| (field.name(table).to_string(), datum_to_json(&row.field(uuid, *field)));
    Value::Object(fields.iter().map(member).collect::<Map<_, _>>())
}
