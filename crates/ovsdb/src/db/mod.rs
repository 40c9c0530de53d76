//! The in-memory database: tables of rows, transactions on them (RFC 7047 section 5.2), and the bookkeeping that keeps a
//! commit's cost proportional to its change.
//!
//! [`transact`] runs a list of operations. While it runs, changes are made in place and remembered, so that
//! a failed transaction is undone row by row. At commit, references, garbage, row limits, weak references and unique
//! indexes are checked for the rows that changed, with the help of counts kept from commit to commit. A commit
//! yields a [`Delta`], from which monitors and log records are made.
//!
//! Rows that refer to each other in a cycle keep each other alive: collection is by reference counts, as in
//! `ovsdb-server`. A row's reference to itself does not count.

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

/// One row's contents. Rows are shared, never changed in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `_version`: new whenever the row changes.
    pub version: Uuid,
    /// Its columns, in the schema's order.
    pub columns: Vec<Datum>,
}

/// What a commit did to one row. Not both are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row before; `None` when it was inserted.
    pub old: Option<Arc<Row>>,
    /// The row after; `None` when it was deleted.
    pub new: Option<Arc<Row>>,
}

/// What a commit did: every row that differs, and no other.
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
    /// For each index of the schema: the values of its columns, to the row that has them.
    indexes: Vec<BTreeMap<Vec<Datum>, Uuid>>,
    /// How many strong references each row has from other rows; rows without one are absent.
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

/// The contents of a database break its schema: which row, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("database {database}: {problem}")]
pub struct IntegrityError {
    /// The database's name.
    pub database: String,
    /// What is wrong.
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

    /// Takes back a commit. Commits are taken back in the reverse of their order, none left out.
    pub fn revert(&mut self, delta: &Delta) {
        for (key, change) in &delta.changes {
            self.put(*key, change.old.clone());
            self.account(*key, change.new.as_deref(), change.old.as_deref());
        }
    }

    /// The same contents under another schema: tables and columns that both have are kept, others get their defaults
    /// or are left out. Fails when the contents break the new schema.
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

    /// Removes rows that nothing keeps: a column that is left out may have held the last reference to them.
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

    /// Puts a row in, or takes it out, without any check or bookkeeping.
    pub(crate) fn put(&mut self, (table, uuid): RowKey, row: Option<Arc<Row>>) {
        let rows = &mut self.tables[table.0].rows;
        match row {
            Some(row) => rows.insert(uuid, row),
            None => rows.remove(&uuid),
        };
    }
}

impl Row {
    /// A row in which nothing was set.
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
