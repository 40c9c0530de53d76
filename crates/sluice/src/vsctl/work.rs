//! [`Work`]: the database as seen by one transaction, its own changes included, and its operations.
//!
//! New rows have provisional UUIDs (never equal to a version-4 UUID), which become named UUIDs in the
//! operations. Restoring an old value is no change. A `wait` operation verifies each column whose change
//! depends on its old value.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::client::Replica;
use ovsdb::schema::{ColumnIx, ColumnSchema, DatabaseSchema, TableIx, TableSchema};
use ovsdb::value::{Atom, Datum, Uuid, datum_to_json};
use serde_json::{Map, Value, json};

use super::Stop;

#[derive(Debug, Default)]
struct Touched {
    new: bool,
    deleted: bool,
    columns: BTreeMap<ColumnIx, Datum>,
    verified: BTreeSet<ColumnIx>,
}

/// The operations of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) operations: Vec<Value>,
    /// Provisional UUIDs and the operations that insert their rows.
    pub(crate) inserts: Vec<(Uuid, usize)>,
    /// The operation that reads `next_cfg` after its increment.
    pub(crate) next_cfg: Option<usize>,
}

/// Whether the UUID is that of [`Work::provisional`], which no row may request.
pub(crate) fn is_provisional(uuid: Uuid) -> bool {
    uuid.as_bytes()[..8] == [0xff; 8]
}

/// One transaction in the making.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    replica: &'a Replica,
    schema: &'a DatabaseSchema,
    touched: BTreeMap<(TableIx, Uuid), Touched>,
    last_provisional: u64,
}

/// A row, existing or new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) table: TableIx,
    pub(crate) uuid: Uuid,
}

impl<'a> Work<'a> {
    pub(crate) fn new(replica: &'a Replica) -> Self {
        Work { replica, schema: replica.schema(), touched: BTreeMap::new(), last_provisional: 0 }
    }

    pub(crate) fn schema(&self) -> &'a DatabaseSchema {
        self.schema
    }

    pub(crate) fn table_schema(&self, table: TableIx) -> &'a TableSchema {
        &self.schema.tables[table.0]
    }

    pub(crate) fn column_schema(&self, table: TableIx, column: ColumnIx) -> &'a ColumnSchema {
        &self.table_schema(table).columns[column.0]
    }

    /// The table of that exact name.
    pub(crate) fn table(&self, name: &str) -> Result<TableIx, Stop> {
        self.schema.table_ix(name).ok_or_else(|| Stop::fatal(format!("the database has no table {name}")))
    }

    /// The column of that exact name.
    pub(crate) fn column(&self, table: TableIx, name: &str) -> Result<ColumnIx, Stop> {
        let schema = self.table_schema(table);
        schema
            .column_ix(name)
            .ok_or_else(|| Stop::fatal(format!("the database has no column {name} in table {}", schema.name)))
    }

    /// A UUID for a row that may be inserted.
    pub(crate) fn provisional(&mut self) -> Uuid {
        self.last_provisional += 1;
        let mut bytes = [0xff; 16];
        bytes[8..].copy_from_slice(&self.last_provisional.to_be_bytes());
        Uuid::from_bytes(bytes)
    }

    pub(crate) fn insert(&mut self, table: TableIx, uuid: Uuid) -> Row {
        self.touched.insert((table, uuid), Touched { new: true, ..Touched::default() });
        Row { table, uuid }
    }

    pub(crate) fn insert_new(&mut self, table: TableIx) -> Row {
        let uuid = self.provisional();
        self.insert(table, uuid)
    }

    pub(crate) fn is_new(&self, row: Row) -> bool {
        self.touched.get(&(row.table, row.uuid)).is_some_and(|touched| touched.new)
    }

    pub(crate) fn delete(&mut self, row: Row) {
        if self.is_new(row) {
            self.touched.remove(&(row.table, row.uuid));
        } else {
            self.touched.entry((row.table, row.uuid)).or_default().deleted = true;
        }
    }

    pub(crate) fn exists(&self, row: Row) -> bool {
        match self.touched.get(&(row.table, row.uuid)) {
            Some(touched) if touched.deleted => false,
            Some(touched) if touched.new => true,
            _ => self.replica.row(&self.table_schema(row.table).name, row.uuid).is_some(),
        }
    }

    /// The rows of a table, in the order of the stock tools.
    pub(crate) fn rows(&self, table: TableIx) -> Vec<Row> {
        let known = self.replica.rows(&self.table_schema(table).name).map(|view| view.uuid());
        let new = self.touched.iter().filter(|((of, _), touched)| *of == table && touched.new);
        let mut uuids: Vec<Uuid> = known.chain(new.map(|((_, uuid), _)| *uuid)).collect();
        hash_order(&mut uuids);
        let rows = uuids.into_iter().map(|uuid| Row { table, uuid });
        rows.filter(|row| self.exists(*row)).collect()
    }

    fn stored(&self, row: Row, column: ColumnIx) -> Datum {
        let schema = self.table_schema(row.table);
        let view = self.replica.row(&schema.name, row.uuid);
        let column = &schema.columns[column.0];
        view.and_then(|view| view.datum(&column.name)).unwrap_or(&column.default).clone()
    }

    pub(crate) fn get(&self, row: Row, column: ColumnIx) -> Datum {
        let changed = self.touched.get(&(row.table, row.uuid)).and_then(|t| t.columns.get(&column));
        changed.cloned().unwrap_or_else(|| self.stored(row, column))
    }

    pub(crate) fn set(&mut self, row: Row, column: ColumnIx, datum: Datum) {
        self.touched.entry((row.table, row.uuid)).or_default().columns.insert(column, datum);
    }

    /// Makes the transaction depend on the column's value.
    pub(crate) fn verify(&mut self, row: Row, column: ColumnIx) {
        self.touched.entry((row.table, row.uuid)).or_default().verified.insert(column);
    }

    /// Reads a column by name.
    pub(crate) fn named(&self, row: Row, column: &str) -> Result<Datum, Stop> {
        Ok(self.get(row, self.column(row.table, column)?))
    }

    /// Writes a column by name.
    pub(crate) fn set_named(&mut self, row: Row, column: &str, datum: impl Into<Datum>) -> Result<(), Stop> {
        let column = self.column(row.table, column)?;
        self.set(row, column, datum.into());
        Ok(())
    }

    /// A string column by name; empty if it is unset.
    pub(crate) fn text(&self, row: Row, column: &str) -> Result<String, Stop> {
        let datum = self.named(row, column)?;
        Ok(datum.atoms().first().and_then(Atom::as_str).unwrap_or("").to_string())
    }

    /// The rows that a column refers to and that exist.
    pub(crate) fn refs(&self, row: Row, column: &str, table: TableIx) -> Result<Vec<Row>, Stop> {
        let datum = self.named(row, column)?;
        let rows = datum.atoms().iter().filter_map(Atom::as_uuid).map(|uuid| Row { table, uuid });
        Ok(rows.filter(|row| self.exists(*row)).collect())
    }

    /// Changes a set of references, depending on its old value.
    pub(crate) fn change_refs(
        &mut self,
        row: Row,
        column: &str,
        change: impl FnOnce(&mut BTreeSet<Uuid>),
    ) -> Result<(), Stop> {
        let ix = self.column(row.table, column)?;
        let mut uuids: BTreeSet<Uuid> = self.get(row, ix).atoms().iter().filter_map(Atom::as_uuid).collect();
        change(&mut uuids);
        self.verify(row, ix);
        self.set(row, ix, Datum::set(uuids));
        Ok(())
    }

    /// The operations, or `None` without changes. `next_cfg_of` is the row whose configuration number to
    /// increment.
    pub(crate) fn plan(&self, comments: &[String], next_cfg_of: Option<Row>) -> Option<Plan> {
        let mut plan = Plan::default();
        let mut changes = Vec::new();
        let mut waits = Vec::new();
        for ((table, uuid), touched) in &self.touched {
            let row = Row { table: *table, uuid: *uuid };
            let name = &*self.table_schema(*table).name;
            if !touched.new && !touched.verified.is_empty() && self.exists_in_replica(row) {
                waits.push(self.wait_operation(row, &touched.verified));
            }
            if touched.deleted {
                // The server keeps other rows only while referenced.
                if !self.table_schema(*table).is_root {
                    continue;
                }
                changes.push(json!({"op": "delete", "table": name, "where": self.selector(*uuid)}));
                continue;
            }
            let changed =
                touched.columns.iter().filter(|(ix, d)| touched.new || self.stored(row, **ix) != **d);
            let columns: Map<String, Value> = changed
                .map(|(ix, datum)| {
                    (self.column_schema(*table, *ix).name.to_string(), self.with_names(datum_to_json(datum)))
                })
                .collect();
            if touched.new {
                plan.inserts.push((*uuid, changes.len()));
                let (member, id) = match is_provisional(*uuid) {
                    true => ("uuid-name", row_name(*uuid)),
                    false => ("uuid", uuid.to_string()),
                };
                changes.push(json!({"op": "insert", "table": name, member: id, "row": columns}));
            } else if !columns.is_empty() {
                changes.push(
                    json!({"op": "update", "table": name, "where": self.selector(*uuid), "row": columns}),
                );
            }
        }
        if changes.is_empty() {
            return None;
        }
        for (_, operation) in &mut plan.inserts {
            *operation += waits.len();
        }
        plan.operations = waits;
        plan.operations.extend(changes);
        if let Some(row) = next_cfg_of {
            let table = &*self.table_schema(row.table).name;
            let selector = self.selector(row.uuid);
            plan.operations.push(json!({"op": "mutate", "table": table, "where": selector,
                "mutations": [["next_cfg", "+=", 1]]}));
            plan.next_cfg = Some(plan.operations.len());
            plan.operations.push(json!({"op": "select", "table": table, "where": self.selector(row.uuid),
                "columns": ["next_cfg"]}));
        }
        plan.operations.extend(comments.iter().map(|text| json!({"op": "comment", "comment": text})));
        Some(plan)
    }

    fn exists_in_replica(&self, row: Row) -> bool {
        self.replica.row(&self.table_schema(row.table).name, row.uuid).is_some()
    }

    fn wait_operation(&self, row: Row, columns: &BTreeSet<ColumnIx>) -> Value {
        let name = |ix: &ColumnIx| self.column_schema(row.table, *ix).name.to_string();
        let values: Map<String, Value> =
            columns.iter().map(|ix| (name(ix), datum_to_json(&self.stored(row, *ix)))).collect();
        let names: Vec<String> = columns.iter().map(name).collect();
        json!({"op": "wait", "table": &*self.table_schema(row.table).name, "where": self.selector(row.uuid),
            "columns": names, "until": "==", "rows": [values], "timeout": 0})
    }

    fn selector(&self, uuid: Uuid) -> Value {
        json!([["_uuid", "==", self.with_names(json!(["uuid", uuid.to_string()]))]])
    }

    /// Provisional UUIDs become named ones.
    fn with_names(&self, value: Value) -> Value {
        let Value::Array(items) = value else { return value };
        if let [Value::String(tag), Value::String(text)] = items.as_slice()
            && tag == "uuid"
            && let Ok(uuid) = text.parse::<Uuid>()
            && is_provisional(uuid)
        {
            return json!(["named-uuid", row_name(uuid)]);
        }
        Value::Array(items.into_iter().map(|item| self.with_names(item)).collect())
    }
}

fn row_name(uuid: Uuid) -> String {
    format!("row{}", uuid.to_string().replace('-', "_"))
}

/// The iteration order of OVS's hash map (`lib/hmap.h`): buckets by the first 32 bits, a power of two of them
/// that grows at two rows per bucket. The order within a bucket depends on insertion, which is unknown here.
fn hash_order(uuids: &mut [Uuid]) {
    let mask = match uuids.len() {
        0 | 1 => 0,
        n => ((n / 2 + 1).next_power_of_two() - 1).max(3) as u32,
    };
    let bucket = |uuid: &Uuid| {
        let [a, b, c, d, ..] = *uuid.as_bytes();
        u32::from_be_bytes([a, b, c, d]) & mask
    };
    uuids.sort_by_key(|uuid| (bucket(uuid), *uuid));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_the_stock_tools() {
        let uuid = |text: &str| format!("{text}-0000-4000-8000-000000000000").parse::<Uuid>().unwrap();
        let mut uuids: Vec<Uuid> = ["89364219", "e50ead02", "7d678538"].map(uuid).to_vec();
        hash_order(&mut uuids);
        assert_eq!(uuids, ["7d678538", "89364219", "e50ead02"].map(uuid));
        let mut two = vec![uuid("00000003"), uuid("ffffff00")];
        hash_order(&mut two);
        assert_eq!(two[0], uuid("ffffff00"));
    }
}
