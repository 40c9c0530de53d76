//! State kept between commits: counts of strong references, sources of weak references, unique indexes.

use std::collections::BTreeSet;

use super::{Database, IntegrityError, Row, RowKey};
use crate::schema::{RefKind, TableIx, TableSchema};
use crate::value::{Atom, Datum, Uuid, diff};

/// Calls `each` with every strong reference in `new` but not in `old` (`+1`) or in `old` but not in `new`
/// (`-1`), except a row's references to itself.
pub(super) fn strong_changes(
    table: &TableSchema,
    key: RowKey,
    old: Option<&Row>,
    new: Option<&Row>,
    each: &mut dyn FnMut(RowKey, i64, usize),
) {
    for (ix, column) in table.columns.iter().enumerate() {
        for (is_key, target) in column.ty.references(RefKind::Strong) {
            let (old, new) = (old.map(|r| &r.columns[ix]), new.map(|r| &r.columns[ix]));
            if old == new {
                continue;
            }
            let mut count = |atom: &Atom, sign: i64| {
                if let Atom::Uuid(uuid) = atom
                    && (target, *uuid) != key
                {
                    each((target, *uuid), sign, ix);
                }
            };
            match (old, new) {
                (Some(old), Some(new)) if !column.ty.is_map() => {
                    for atom in diff(old, new, false).atoms() {
                        count(atom, if new.contains(atom) { 1 } else { -1 });
                    }
                }
                _ => {
                    new.into_iter().flat_map(|d| atoms(d, is_key)).for_each(|atom| count(atom, 1));
                    old.into_iter().flat_map(|d| atoms(d, is_key)).for_each(|atom| count(atom, -1));
                }
            }
        }
    }
}

fn atoms(datum: &Datum, keys: bool) -> Box<dyn Iterator<Item = &Atom> + '_> {
    if keys { Box::new(datum.keys()) } else { Box::new(datum.pairs().iter().map(|(_, value)| value)) }
}

/// The rows that a row refers to weakly.
pub(super) fn weak_targets(table: &TableSchema, row: &Row) -> BTreeSet<RowKey> {
    let mut targets = BTreeSet::new();
    for (column, datum) in table.columns.iter().zip(&row.columns) {
        for (is_key, target) in column.ty.references(RefKind::Weak) {
            targets.extend(atoms(datum, is_key).filter_map(Atom::as_uuid).map(|uuid| (target, uuid)));
        }
    }
    targets
}

/// A row's values in the columns of an index.
pub(super) fn index_key(table: &TableSchema, index: usize, row: &Row) -> Vec<Datum> {
    table.indexes[index].iter().map(|ix| row.columns[ix.0].clone()).collect()
}

impl Database {
    /// Updates the state for a change of a row. The row itself is already stored.
    pub(super) fn account(&mut self, key: RowKey, old: Option<&Row>, new: Option<&Row>) {
        let schema = self.schema.clone();
        let table = &schema.tables[key.0.0];
        strong_changes(table, key, old, new, &mut |(target, uuid), sign, _| {
            let counts = &mut self.tables[target.0].strong;
            let count = counts.get(&uuid).copied().unwrap_or(0).saturating_add_signed(sign);
            if count == 0 {
                counts.remove(&uuid);
            } else {
                counts.insert(uuid, count);
            }
        });
        let before = old.map(|row| weak_targets(table, row)).unwrap_or_default();
        let after = new.map(|row| weak_targets(table, row)).unwrap_or_default();
        for (target, uuid) in before.difference(&after) {
            let referrers = &mut self.tables[target.0].weak;
            if let Some(set) = referrers.get_mut(uuid) {
                set.remove(&key);
                if set.is_empty() {
                    referrers.remove(uuid);
                }
            }
        }
        for (target, uuid) in after.difference(&before) {
            self.tables[target.0].weak.entry(*uuid).or_default().insert(key);
        }
        self.account_indexes(table, key, old, new);
    }

    fn account_indexes(&mut self, table: &TableSchema, key: RowKey, old: Option<&Row>, new: Option<&Row>) {
        for (ix, index) in self.tables[key.0.0].indexes.iter_mut().enumerate() {
            let old = old.map(|row| index_key(table, ix, row));
            let new = new.map(|row| index_key(table, ix, row));
            if old == new {
                continue;
            }
            // Another row of the same commit may already have taken over the old value.
            if let Some(old) = old
                && index.get(&old) == Some(&key.1)
            {
                index.remove(&old);
            }
            if let Some(new) = new {
                index.insert(new, key.1);
            }
        }
    }

    /// Rebuilds the state from the rows, and checks them against the schema.
    pub(crate) fn rebuild(&mut self) -> Result<(), IntegrityError> {
        for (ix, table) in self.tables.iter_mut().enumerate() {
            table.indexes = vec![Default::default(); self.schema.tables[ix].indexes.len()];
            table.strong.clear();
            table.weak.clear();
        }
        for ix in 0..self.tables.len() {
            let rows: Vec<_> = self.rows(TableIx(ix)).map(|(uuid, row)| (uuid, row.clone())).collect();
            for (uuid, row) in rows {
                self.account((TableIx(ix), uuid), None, Some(&row));
            }
        }
        self.verify()
    }

    fn verify(&self) -> Result<(), IntegrityError> {
        let fail = |problem: String| Err(IntegrityError { database: self.schema.name.to_string(), problem });
        for (ix, (table, schema)) in self.tables.iter().zip(&self.schema.tables).enumerate() {
            for (uuid, row) in &table.rows {
                if let Some(problem) = self.row_problem((TableIx(ix), *uuid), row) {
                    return fail(format!("table {} row {uuid}: {problem}", schema.name));
                }
            }
            if schema.max_rows.is_some_and(|max| table.rows.len() > max as usize) {
                return fail(format!("table {} has more rows than its maxRows", schema.name));
            }
            if let Some((uuid, _)) = table.strong.iter().find(|(uuid, _)| !table.rows.contains_key(uuid)) {
                return fail(format!("table {} lacks row {uuid}, to which another row refers", schema.name));
            }
            if table.indexes.iter().any(|index| index.len() != table.rows.len()) {
                return fail(format!(
                    "table {} has two rows with the same values in a unique index",
                    schema.name
                ));
            }
        }
        Ok(())
    }

    fn row_problem(&self, key: RowKey, row: &Row) -> Option<String> {
        let schema = &self.schema.tables[key.0.0];
        for (column, datum) in schema.columns.iter().zip(&row.columns) {
            let typed = datum.is_map() == column.ty.is_map()
                && datum.keys().all(|atom| atom.atomic_type() == column.ty.key.ty)
                && datum
                    .pairs()
                    .iter()
                    .all(|(_, v)| Some(v.atomic_type()) == column.ty.value.as_ref().map(|b| b.ty));
            if !typed || !column.ty.allows_size(datum.len()) {
                return Some(format!("column {} is not a {}", column.name, column.ty.describe()));
            }
            if let Err(error) = column.ty.check_constraints(datum) {
                return Some(format!("column {}: {}", column.name, error.details));
            }
        }
        None
    }

    /// Number of strong references to a row from other rows.
    pub(super) fn strong_count(&self, (table, uuid): RowKey) -> u64 {
        self.tables[table.0].strong.get(&uuid).copied().unwrap_or(0)
    }

    /// The rows that refer weakly to a row.
    pub(super) fn weak_referrers(&self, (table, uuid): RowKey) -> impl Iterator<Item = RowKey> + '_ {
        self.tables[table.0].weak.get(&uuid).into_iter().flatten().copied()
    }

    /// The row with these values in a unique index, as of the last commit.
    pub(super) fn indexed(&self, table: TableIx, index: usize, values: &[Datum]) -> Option<Uuid> {
        self.tables[table.0].indexes[index].get(values).copied()
    }
}
