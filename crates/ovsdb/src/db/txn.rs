//! [`Txn`]: changes made in place and recorded, so that dropping it without a commit undoes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Database, Row, RowKey};
use crate::schema::TableIx;
use crate::value::{Datum, Uuid, UuidSource};

/// A transaction in progress. It borrows the database exclusively.
pub(super) struct Txn<'a> {
    pub(super) db: &'a mut Database,
    pub(super) uuids: &'a mut dyn UuidSource,
    /// Every row touched, as it was before.
    pub(super) before: BTreeMap<RowKey, Option<Arc<Row>>>,
}

impl<'a> Txn<'a> {
    pub(super) fn new(db: &'a mut Database, uuids: &'a mut dyn UuidSource) -> Self {
        Txn { db, uuids, before: BTreeMap::new() }
    }

    /// The row as this transaction sees it.
    pub(super) fn row(&self, (table, uuid): RowKey) -> Option<&Arc<Row>> {
        self.db.tables[table.0].rows.get(&uuid)
    }

    /// Whether this UUID names a row now, or did before this transaction.
    pub(super) fn knows(&self, key: RowKey) -> bool {
        self.row(key).is_some() || matches!(self.before.get(&key), Some(Some(_)))
    }

    /// Sets or deletes a row.
    pub(super) fn put(&mut self, key: RowKey, row: Option<Arc<Row>>) {
        let current = self.row(key).cloned();
        self.before.entry(key).or_insert(current);
        self.db.put(key, row);
    }

    /// Inserts a row, or replaces the columns of one.
    pub(super) fn set_columns(&mut self, key: RowKey, columns: Vec<Datum>) {
        let version = match (self.row(key), self.before.contains_key(&key)) {
            (Some(row), true) => row.version,
            _ => self.uuids.next_uuid(),
        };
        self.put(key, Some(Arc::new(Row { version, columns })));
    }

    /// The rows of one table that this transaction touched.
    pub(super) fn touched(&self, table: TableIx) -> impl Iterator<Item = Uuid> + '_ {
        self.before
            .range((table, Uuid::ZERO)..)
            .take_while(move |(key, _)| key.0 == table)
            .map(|(key, _)| key.1)
    }

    /// Forgets rows that ended up as they began.
    pub(super) fn drop_unchanged(&mut self) {
        let db = &mut *self.db;
        self.before.retain(|key, old| {
            let now = db.tables[key.0.0].rows.get(&key.1);
            let same = match (&old, now) {
                (Some(old), Some(now)) => old.columns == now.columns,
                (None, None) => true,
                _ => false,
            };
            if same {
                db.put(*key, old.clone());
            }
            !same
        });
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        for (key, old) in std::mem::take(&mut self.before) {
            self.db.put(key, old);
        }
    }
}
