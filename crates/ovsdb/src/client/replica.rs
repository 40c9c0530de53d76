//! [`Replica`]: the rows replicated by a client, and their changes since the owner's last query.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RowView;
use crate::db::Database;
use crate::schema::{DatabaseSchema, TableIx};
use crate::value::{Datum, Uuid};

/// A row's columns in the order of the owner's schema.
pub(super) type Columns = Arc<[Datum]>;

/// Kind of a row's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Inserted,
    /// Values changed.
    Modified,
    /// Deleted.
    Deleted,
}

/// A changed row.
#[derive(Clone, Debug)]
pub struct Change {
    /// The table's name.
    pub table: Arc<str>,
    /// The row.
    pub uuid: Uuid,
    /// The net change: a row inserted and deleted again is unchanged.
    pub kind: ChangeKind,
    schema: Arc<DatabaseSchema>,
    table_ix: TableIx,
    old: Option<Columns>,
}

impl Change {
    /// The row as it was; `None` if it is new.
    pub fn old(&self) -> Option<RowView<'_>> {
        let table = &self.schema.tables[self.table_ix.0];
        self.old.as_ref().map(|columns| RowView::new(table, self.uuid, columns))
    }
}

/// The rows replicated by a client. They outlive a connection.
#[derive(Clone, Debug)]
pub struct Replica {
    schema: Arc<DatabaseSchema>,
    tables: Vec<BTreeMap<Uuid, Columns>>,
    /// Rows changed since the owner's last query, with their former values.
    before: BTreeMap<(TableIx, Uuid), Option<Columns>>,
}

impl Replica {
    pub(super) fn new(schema: Arc<DatabaseSchema>) -> Self {
        let tables = vec![BTreeMap::new(); schema.tables.len()];
        Replica { schema, tables, before: BTreeMap::new() }
    }

    /// The rows of a database without a server.
    pub fn of_database(db: &Database) -> Self {
        let mut replica = Replica::new(db.schema().clone());
        for (ix, rows) in replica.tables.iter_mut().enumerate() {
            rows.extend(db.rows(TableIx(ix)).map(|(uuid, row)| (uuid, row.columns.as_slice().into())));
        }
        replica
    }

    /// The owner's schema.
    pub fn schema(&self) -> &Arc<DatabaseSchema> {
        &self.schema
    }

    /// The rows of a table in the order of their UUIDs; none if the schema lacks the table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = RowView<'_>> {
        let ix = self.schema.table_ix(table);
        ix.into_iter().flat_map(move |ix| {
            let schema = &self.schema.tables[ix.0];
            self.tables[ix.0].iter().map(move |(uuid, columns)| RowView::new(schema, *uuid, columns))
        })
    }

    /// One row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<RowView<'_>> {
        let ix = self.schema.table_ix(table)?;
        let columns = self.tables[ix.0].get(&uuid)?;
        Some(RowView::new(&self.schema.tables[ix.0], uuid, columns))
    }

    /// Number of rows of a table.
    pub fn row_count(&self, table: &str) -> usize {
        self.schema.table_ix(table).map_or(0, |ix| self.tables[ix.0].len())
    }

    /// Number of values of columns in all rows.
    pub fn cells(&self) -> usize {
        self.schema
            .tables
            .iter()
            .zip(&self.tables)
            .map(|(schema, rows)| schema.columns.len() * rows.len())
            .sum()
    }

    pub(super) fn columns(&self, ix: TableIx, uuid: Uuid) -> Option<&Columns> {
        self.tables[ix.0].get(&uuid)
    }

    pub(super) fn uuids(&self, ix: TableIx) -> Vec<Uuid> {
        self.tables[ix.0].keys().copied().collect()
    }

    pub(super) fn put(&mut self, ix: TableIx, uuid: Uuid, columns: Option<Columns>) {
        let rows = &mut self.tables[ix.0];
        let old = match columns {
            Some(columns) => rows.insert(uuid, columns),
            None => rows.remove(&uuid),
        };
        self.before.entry((ix, uuid)).or_insert(old);
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for ((table_ix, uuid), old) in std::mem::take(&mut self.before) {
            let kind = match (&old, self.tables[table_ix.0].get(&uuid)) {
                (None, Some(_)) => ChangeKind::Inserted,
                (Some(_), None) => ChangeKind::Deleted,
                (Some(old), Some(new)) if old != new => ChangeKind::Modified,
                _ => continue,
            };
            let table = self.schema.tables[table_ix.0].name.clone();
            changes.push(Change { table, uuid, kind, schema: self.schema.clone(), table_ix, old });
        }
        changes
    }
}
