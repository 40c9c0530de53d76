//! [`Wire`]: the common part of the server's and the owner's schema; applies updates to the replica.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ClientConfig;
use super::replica::{Columns, Replica};
use crate::schema::{BaseType, ColumnIx, ColumnSchema, ColumnType, DatabaseSchema, TableIx};
use crate::value::{Datum, NoNames, Uuid, apply_diff, datum_from_json};

#[derive(Debug)]
struct WireColumn {
    /// In the owner's schema.
    ix: ColumnIx,
    name: Arc<str>,
    /// The server's type without its constraints: its values are not validated.
    ty: ColumnType,
    /// The server's difference is the new value.
    single: bool,
    /// The server's default, omitted from new rows.
    default: Datum,
}

#[derive(Debug)]
struct WireTable {
    ix: TableIx,
    name: Arc<str>,
    columns: Vec<WireColumn>,
    /// A row of defaults.
    blank: Columns,
}

/// The tables and columns that are replicated.
#[derive(Debug, Default)]
pub(super) struct Wire {
    tables: Vec<WireTable>,
    pub(super) missing: Vec<String>,
}

impl Wire {
    pub(super) fn new(config: &ClientConfig, remote: &DatabaseSchema) -> Wire {
        let mut wire = Wire::default();
        for (name, columns) in &config.tables {
            let Some(ix) = config.schema.table_ix(name) else {
                wire.missing.push(name.clone());
                continue;
            };
            let Some(remote) = remote.table(name) else {
                wire.missing.push(name.clone());
                continue;
            };
            let local = &config.schema.tables[ix.0];
            let wanted: Vec<&str> = match columns {
                Some(names) => names.iter().map(String::as_str).collect(),
                None => local.columns.iter().map(|c| &*c.name).collect(),
            };
            let mut table = WireTable {
                ix,
                name: local.name.clone(),
                columns: Vec::new(),
                blank: local.columns.iter().map(|c| c.default.clone()).collect(),
            };
            for column in wanted {
                match (local.column_ix(column), remote.column(column)) {
                    (Some(ix), Some(theirs)) if same_atoms(&local.columns[ix.0].ty, &theirs.ty) => {
                        table.columns.push(WireColumn::new(ix, theirs));
                    }
                    _ => wire.missing.push(format!("{name}.{column}")),
                }
            }
            wire.tables.push(table);
        }
        wire
    }

    /// `<monitor-requests>`.
    pub(super) fn requests(&self) -> Value {
        let request = |table: &WireTable| {
            let names = table.columns.iter().map(|c| Value::from(&*c.name)).collect();
            let object = Map::from_iter([("columns".to_string(), Value::Array(names))]);
            (table.name.to_string(), Value::Array(vec![Value::Object(object)]))
        };
        Value::Object(self.tables.iter().map(request).collect())
    }

    /// Replaces the replica's contents; deletes absent rows.
    pub(super) fn snapshot(
        &self,
        replica: &mut Replica,
        updates: &Value,
        differences: bool,
    ) -> Result<(), String> {
        let mut seen: BTreeSet<(TableIx, Uuid)> = BTreeSet::new();
        self.each_row(updates, |table, uuid, update| {
            seen.insert((table.ix, uuid));
            let row = if differences { &update["initial"] } else { &update["new"] };
            let columns = table.insert(row)?;
            if replica.columns(table.ix, uuid) != Some(&columns) {
                replica.put(table.ix, uuid, Some(columns));
            }
            Ok(())
        })?;
        for ix in (0..replica.schema().tables.len()).map(TableIx) {
            for uuid in replica.uuids(ix).into_iter().filter(|uuid| !seen.contains(&(ix, *uuid))) {
                replica.put(ix, uuid, None);
            }
        }
        Ok(())
    }

    /// Applies the updates of a commit.
    pub(super) fn update(
        &self,
        replica: &mut Replica,
        updates: &Value,
        differences: bool,
    ) -> Result<(), String> {
        self.each_row(updates, |table, uuid, update| {
            let columns =
                if differences { table.update2(replica, uuid, update)? } else { table.update1(update)? };
            replica.put(table.ix, uuid, columns);
            Ok(())
        })
    }

    fn each_row(
        &self,
        updates: &Value,
        mut each: impl FnMut(&WireTable, Uuid, &Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let tables = updates.as_object().ok_or("updates that are not an object")?;
        for (name, rows) in tables {
            let table = self.tables.iter().find(|table| *table.name == **name);
            let table = table.ok_or_else(|| format!("an update of table {name}, which is not monitored"))?;
            let rows =
                rows.as_object().ok_or_else(|| format!("an update of table {name} that is not an object"))?;
            for (uuid, update) in rows {
                let uuid: Uuid = uuid.parse().map_err(|error| format!("table {name}: {error}"))?;
                each(table, uuid, update).map_err(|error| format!("table {name} row {uuid}: {error}"))?;
            }
        }
        Ok(())
    }
}

/// Whether values of one type are readable as the other, constraints and numbers of elements aside.
fn same_atoms(a: &ColumnType, b: &ColumnType) -> bool {
    a.key.ty == b.key.ty && a.value.as_ref().map(|v| v.ty) == b.value.as_ref().map(|v| v.ty)
}

impl WireColumn {
    fn new(ix: ColumnIx, theirs: &ColumnSchema) -> WireColumn {
        let ty = ColumnType {
            key: BaseType::new(theirs.ty.key.ty),
            value: theirs.ty.value.as_ref().map(|v| BaseType::new(v.ty)),
            min: 0,
            max: u32::MAX,
        };
        WireColumn {
            ix,
            name: theirs.name.clone(),
            ty,
            single: theirs.ty.is_single(),
            default: theirs.default.clone(),
        }
    }

    fn read(&self, json: &Value) -> Result<Datum, String> {
        datum_from_json(json, &self.ty, &mut NoNames)
            .map_err(|error| format!("column {}: {error}", self.name))
    }
}

impl WireTable {
    fn object<'v>(&self, row: &'v Value) -> Result<&'v Map<String, Value>, String> {
        row.as_object().ok_or_else(|| "a row that is not an object".to_string())
    }

    fn insert(&self, row: &Value) -> Result<Columns, String> {
        let object = self.object(row)?;
        let mut columns = self.blank.to_vec();
        for column in &self.columns {
            columns[column.ix.0] = match object.get(&*column.name) {
                Some(json) => column.read(json)?,
                None => column.default.clone(),
            };
        }
        Ok(columns.into())
    }

    fn update1(&self, update: &Value) -> Result<Option<Columns>, String> {
        match update.get("new") {
            Some(row) => self.insert(row).map(Some),
            None if update.get("old").is_some() => Ok(None),
            None => Err("an update with neither an old nor a new row".into()),
        }
    }

    fn update2(&self, replica: &Replica, uuid: Uuid, update: &Value) -> Result<Option<Columns>, String> {
        if let Some(row) = update.get("insert").or(update.get("initial")) {
            return self.insert(row).map(Some);
        }
        if update.get("delete").is_some() {
            return Ok(None);
        }
        let row = self.object(update.get("modify").ok_or("an update of no known kind")?)?;
        let old = replica.columns(self.ix, uuid).ok_or("a modification of a row that is not known")?;
        let mut columns = old.to_vec();
        for column in &self.columns {
            if let Some(json) = row.get(&*column.name) {
                let slot = &mut columns[column.ix.0];
                *slot = apply_diff(slot, &column.read(json)?, column.single);
            }
        }
        Ok(Some(columns.into()))
    }
}
