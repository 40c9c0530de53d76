//! The end of a transaction: checks the database's invariants (RFC 7047 sections 3.2 and 4.1.3) for the
//! changed rows and those affected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bookkeeping::{index_key, strong_changes, weak_targets};
use super::{Change, Delta, Row, RowKey, Txn};
use crate::error::{ErrorKind, OpError};
use crate::limits::MAX_ROWS;
use crate::schema::{RefKind, TableIx};
use crate::value::{Atom, Datum, Uuid};

/// Changes of the counts of strong references by this transaction.
#[derive(Default)]
struct Counts(BTreeMap<RowKey, i64>);

impl Txn<'_> {
    /// Checks and commits the transaction. An error leaves no effect.
    pub(super) fn commit(mut self) -> Result<Delta, OpError> {
        self.drop_unchanged();
        let mut counts = Counts::default();
        let changed: Vec<RowKey> = self.before.keys().copied().collect();
        for key in &changed {
            let (old, new) = (self.before[key].clone(), self.row(*key).cloned());
            self.count_strong(&mut counts, *key, old.as_deref(), new.as_deref())?;
        }
        self.check_deleted(&counts, &changed)?;
        let mut suspects: Vec<RowKey> = changed.into_iter().chain(counts.0.keys().copied()).collect();
        while !suspects.is_empty() {
            self.collect_garbage(&mut counts, suspects)?;
            suspects = self.purge_weak(&mut counts)?;
        }
        self.check_row_counts()?;
        self.check_indexes()?;
        self.drop_unchanged();
        Ok(self.finish())
    }

    fn finish(mut self) -> Delta {
        let mut delta = Delta::default();
        for (key, old) in std::mem::take(&mut self.before) {
            let new = self.row(key).cloned();
            self.db.account(key, old.as_deref(), new.as_deref());
            delta.changes.insert(key, Change { old, new });
        }
        delta
    }

    fn count_strong(
        &self,
        counts: &mut Counts,
        key: RowKey,
        old: Option<&Row>,
        new: Option<&Row>,
    ) -> Result<(), OpError> {
        let table = &self.db.schema.tables[key.0.0];
        let mut missing = None;
        strong_changes(table, key, old, new, &mut |target, sign, column| {
            *counts.0.entry(target).or_insert(0) += sign;
            if sign > 0 && self.row(target).is_none() {
                missing.get_or_insert((target, column));
            }
        });
        let Some(((target, uuid), column)) = missing else { return Ok(()) };
        Err(OpError::new(
            ErrorKind::Referential,
            format!(
                "table {} row {} column {} refers to row {uuid} of table {}, which does not exist",
                table.name, key.1, table.columns[column].name, self.db.schema.tables[target.0].name
            ),
        ))
    }

    fn references_to(&self, counts: &Counts, key: RowKey) -> u64 {
        let change = counts.0.get(&key).copied().unwrap_or(0);
        self.db.strong_count(key).saturating_add_signed(change)
    }

    fn check_deleted(&self, counts: &Counts, changed: &[RowKey]) -> Result<(), OpError> {
        for key in changed.iter().filter(|key| self.row(**key).is_none()) {
            let remaining = self.references_to(counts, *key);
            if remaining > 0 {
                let table = &self.db.schema.tables[key.0.0].name;
                let details = format!(
                    "row {} of table {table} cannot be deleted: {remaining} reference(s) to it remain",
                    key.1
                );
                return Err(OpError::new(ErrorKind::Referential, details));
            }
        }
        Ok(())
    }

    fn collect_garbage(&mut self, counts: &mut Counts, mut suspects: Vec<RowKey>) -> Result<(), OpError> {
        while let Some(key) = suspects.pop() {
            if self.db.schema.tables[key.0.0].is_root || self.references_to(counts, key) > 0 {
                continue;
            }
            let Some(row) = self.row(key).cloned() else { continue };
            self.put(key, None);
            self.count_strong(counts, key, Some(&row), None)?;
            let table = self.db.schema.tables[key.0.0].clone();
            strong_changes(&table, key, Some(&row), None, &mut |target, _, _| suspects.push(target));
        }
        Ok(())
    }

    /// Removes weak references to missing rows. Returns the rows whose strong references changed thereby.
    fn purge_weak(&mut self, counts: &mut Counts) -> Result<Vec<RowKey>, OpError> {
        let mut holders: BTreeSet<RowKey> = BTreeSet::new();
        for key in self.before.keys() {
            if self.row(*key).is_some() {
                holders.insert(*key);
            } else {
                holders.extend(self.db.weak_referrers(*key));
            }
        }
        let mut suspects = Vec::new();
        for key in holders {
            let Some(row) = self.row(key).cloned() else { continue };
            let table = self.db.schema.tables[key.0.0].clone();
            let dangling: BTreeSet<RowKey> =
                weak_targets(&table, &row).into_iter().filter(|target| self.row(*target).is_none()).collect();
            if dangling.is_empty() {
                continue;
            }
            let columns = purge_row(&table, &row, &dangling)?;
            self.set_columns(key, columns);
            let new = self.row(key).cloned();
            self.count_strong(counts, key, Some(&row), new.as_deref())?;
            strong_changes(&table, key, Some(&row), new.as_deref(), &mut |target, _, _| {
                suspects.push(target)
            });
        }
        Ok(suspects)
    }

    fn touched_tables(&self) -> BTreeSet<TableIx> {
        self.before.keys().map(|key| key.0).collect()
    }

    fn check_row_counts(&self) -> Result<(), OpError> {
        for ix in self.touched_tables() {
            let (table, rows) = (&self.db.schema.tables[ix.0], self.db.row_count(ix));
            if let Some(max) = table.max_rows.filter(|max| rows > *max as usize) {
                let details =
                    format!("table {} would have {rows} rows, more than its limit of {max}", table.name);
                return Err(OpError::new(ErrorKind::Constraint, details));
            }
            if rows > MAX_ROWS {
                let details = format!("table {} would have more than {MAX_ROWS} rows", table.name);
                return Err(OpError::new(ErrorKind::Resources, details));
            }
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), OpError> {
        for ix in self.touched_tables() {
            let table = &self.db.schema.tables[ix.0];
            for index in 0..table.indexes.len() {
                let mut taken: BTreeMap<Vec<Datum>, Uuid> = BTreeMap::new();
                for uuid in self.touched(ix) {
                    let Some(row) = self.row((ix, uuid)) else { continue };
                    let values = index_key(table, index, row);
                    // A row that the transaction did not change has the value.
                    let outside = self
                        .db
                        .indexed(ix, index, &values)
                        .filter(|other| !self.before.contains_key(&(ix, *other)));
                    let other = outside.or_else(|| taken.insert(values.clone(), uuid));
                    if let Some(other) = other {
                        return Err(self.index_error(ix, index, &values, uuid, other));
                    }
                }
            }
        }
        Ok(())
    }

    fn index_error(&self, ix: TableIx, index: usize, values: &[Datum], a: Uuid, b: Uuid) -> OpError {
        let table = &self.db.schema.tables[ix.0];
        let columns: Vec<&str> = table.indexes[index].iter().map(|c| &*table.columns[c.0].name).collect();
        let role = |uuid: Uuid| match self.before.get(&(ix, uuid)) {
            None => "which is already in the database",
            Some(None) => "which this transaction inserts",
            Some(Some(_)) => "which this transaction modifies",
        };
        OpError::new(
            ErrorKind::Constraint,
            format!(
                "table {} would have two rows with {values:?} in unique index ({}): {a}, {}, and {b}, {}",
                table.name,
                columns.join(", "),
                role(a),
                role(b)
            ),
        )
    }
}

fn purge_row(
    table: &Arc<crate::schema::TableSchema>,
    row: &Row,
    dangling: &BTreeSet<RowKey>,
) -> Result<Vec<Datum>, OpError> {
    let mut columns = row.columns.clone();
    for (column, datum) in table.columns.iter().zip(&mut columns) {
        let gone = |key: bool, atom: &Atom| {
            let hit = |(is_key, target): (bool, TableIx)| {
                is_key == key && atom.as_uuid().is_some_and(|uuid| dangling.contains(&(target, uuid)))
            };
            column.ty.references(RefKind::Weak).any(hit)
        };
        let purged =
            datum.retain(|key, value| !gone(true, key) && !value.is_some_and(|value| gone(false, value)));
        if purged.len() != datum.len() && !column.ty.allows_size(purged.len()) {
            let details = format!(
                "table {} column {} needs at least {} element(s), and the rows it refers to do not exist",
                table.name, column.name, column.ty.min
            );
            return Err(OpError::new(ErrorKind::Constraint, details));
        }
        *datum = purged;
    }
    Ok(columns)
}
