//! Monitors: their selection, and their updates for a commit or a changed condition. RFC 7047 sections 4.1.5
//! and 4.1.6; ovsdb-server(7) sections 4.1.12 to 4.1.16.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::db::{Change, Condition, Database, Delta, Field, Row, parse_fields, row_json};
use crate::error::OpError;
use crate::schema::{ColumnIx, DatabaseSchema, TableIx, TableSchema};
use crate::value::{Datum, NoNames, Uuid, datum_to_json, diff};

/// The request that created the monitor, which selects the form of the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// `monitor`: `update` with whole old and new values.
    V1,
    /// `monitor_cond`: `update2` with differences.
    V2,
    /// `monitor_cond_since`: `update3`, with a transaction id.
    V3,
}

/// Kinds of changes to send.
#[derive(Clone, Copy, Debug)]
struct Select {
    initial: bool,
    insert: bool,
    delete: bool,
    modify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Initial,
    Insert,
    Delete,
    Modify,
}

impl Select {
    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Initial => self.initial,
            Kind::Insert => self.insert,
            Kind::Delete => self.delete,
            Kind::Modify => self.modify,
        }
    }
}

#[derive(Debug)]
struct MonitoredTable {
    /// Each column once, with the kinds of changes that include it.
    columns: Vec<(Field, Select)>,
    condition: Condition,
}

/// One monitor of a session.
#[derive(Debug)]
pub(super) struct Monitor {
    /// The client's id for it.
    pub(super) id: Value,
    pub(super) database: Arc<str>,
    pub(super) version: Version,
    tables: BTreeMap<TableIx, MonitoredTable>,
}

impl Monitor {
    /// Reads `<monitor-requests>` or `<monitor-cond-requests>`.
    pub(super) fn parse(
        id: Value,
        schema: &DatabaseSchema,
        version: Version,
        requests: &Value,
    ) -> Result<Monitor, OpError> {
        let Some(object) = requests.as_object() else {
            return Err(OpError::syntax(requests, "the monitor requests must be an object of tables"));
        };
        let mut tables = BTreeMap::new();
        for (name, json) in object {
            let ix = schema.table_ix(name).ok_or_else(|| no_table(name))?;
            tables.insert(ix, MonitoredTable::parse(&schema.tables[ix.0], version, as_list(json))?);
        }
        Ok(Monitor { id, database: schema.name.clone(), version, tables })
    }

    /// `<table-updates>` with the present contents.
    pub(super) fn initial(&self, db: &Database) -> Value {
        let mut updates = Updates::default();
        for (ix, table) in &self.tables {
            let schema = &db.schema().tables[ix.0];
            for (uuid, row) in db.rows(*ix).filter(|(uuid, row)| table.condition.any(*uuid, row)) {
                updates.add(
                    schema,
                    uuid,
                    table.row_update(schema, self.version, Kind::Initial, uuid, None, Some(row)),
                );
            }
        }
        updates.into_json()
    }

    /// `<table-updates>` of a commit, or `None` if none is visible to the client.
    pub(super) fn update(&self, schema: &DatabaseSchema, delta: &Delta) -> Option<Value> {
        let mut updates = Updates::default();
        for ((ix, uuid), change) in &delta.changes {
            if let Some(table) = self.tables.get(ix) {
                let schema = &schema.tables[ix.0];
                updates.add(schema, *uuid, table.change(schema, self.version, *uuid, change));
            }
        }
        updates.into_some()
    }

    /// Sets new conditions (`<monitor-cond-update-requests>`): returns the updates for rows thereby revealed
    /// or hidden.
    pub(super) fn change_conditions(
        &mut self,
        db: &Database,
        requests: &Value,
    ) -> Result<Option<Value>, OpError> {
        let Some(object) = requests.as_object() else {
            return Err(OpError::syntax(requests, "the new conditions must be an object of tables"));
        };
        let mut conditions = BTreeMap::new();
        for (name, json) in object {
            let ix = db.schema().table_ix(name).filter(|ix| self.tables.contains_key(ix));
            let ix = ix.ok_or_else(|| no_table(name))?;
            let schema = &db.schema().tables[ix.0];
            let mut condition: Option<Condition> = None;
            for request in as_list(json) {
                let found = match request_member(request, &["columns", "where"], "where")? {
                    Some(json) => Condition::parse(schema, json, &mut NoNames)?,
                    None => Condition::default(),
                };
                condition = Some(condition.map_or(found.clone(), |so_far| so_far.or(found)));
            }
            conditions.insert(ix, condition.unwrap_or_default());
        }
        let mut updates = Updates::default();
        for (ix, condition) in conditions {
            let schema = &db.schema().tables[ix.0];
            let Some(table) = self.tables.get_mut(&ix) else { continue };
            for (uuid, row) in db.rows(ix) {
                let update = match (table.condition.any(uuid, row), condition.any(uuid, row)) {
                    (false, true) => {
                        table.row_update(schema, self.version, Kind::Insert, uuid, None, Some(row))
                    }
                    (true, false) => {
                        table.row_update(schema, self.version, Kind::Delete, uuid, Some(row), None)
                    }
                    _ => None,
                };
                updates.add(schema, uuid, update);
            }
            table.condition = condition;
        }
        Ok(updates.into_some())
    }

    /// The notification that carries `updates`.
    pub(super) fn notification(&self, updates: Value, last_txn: Uuid) -> (String, Vec<Value>) {
        match self.version {
            Version::V1 => ("update".into(), vec![self.id.clone(), updates]),
            Version::V2 => ("update2".into(), vec![self.id.clone(), updates]),
            Version::V3 => {
                ("update3".into(), vec![self.id.clone(), Value::from(last_txn.to_string()), updates])
            }
        }
    }
}

fn no_table(name: &str) -> OpError {
    OpError::new(crate::error::ErrorKind::Syntax, format!("there is no monitored table {name}"))
}

/// A single request is equivalent to an array of one.
fn as_list(json: &Value) -> &[Value] {
    match json {
        Value::Array(list) => list,
        other => std::slice::from_ref(other),
    }
}

fn request_member<'a>(json: &'a Value, allowed: &[&str], name: &str) -> Result<Option<&'a Value>, OpError> {
    let Some(object) = json.as_object() else {
        return Err(OpError::syntax(json, "a monitor request must be an object"));
    };
    match object.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(extra) => Err(OpError::syntax(json, format!("member \"{extra}\" is not allowed here"))),
        None => Ok(object.get(name)),
    }
}

#[derive(Default)]
struct Updates(BTreeMap<Arc<str>, Map<String, Value>>);

impl Updates {
    fn add(&mut self, table: &TableSchema, uuid: Uuid, update: Option<Value>) {
        if let Some(update) = update {
            self.0.entry(table.name.clone()).or_default().insert(uuid.to_string(), update);
        }
    }

    fn into_json(self) -> Value {
        Value::Object(
            self.0.into_iter().map(|(name, rows)| (name.to_string(), Value::Object(rows))).collect(),
        )
    }

    fn into_some(self) -> Option<Value> {
        (!self.0.is_empty()).then(|| self.into_json())
    }
}

impl MonitoredTable {
    fn parse(table: &TableSchema, version: Version, requests: &[Value]) -> Result<Self, OpError> {
        let allowed: &[&str] =
            if version == Version::V1 { &["columns", "select"] } else { &["columns", "select", "where"] };
        let mut columns: Vec<(Field, Select)> = Vec::new();
        let mut condition: Option<Condition> = None;
        for request in requests {
            let select = parse_select(request_member(request, allowed, "select")?)?;
            let fields = match request_member(request, allowed, "columns")? {
                Some(json) => parse_fields(table, json)?,
                None => {
                    let all = (0..table.columns.len()).map(|ix| Field::Column(ColumnIx(ix)));
                    all.chain([Field::Version]).collect()
                }
            };
            for field in fields {
                if columns.iter().any(|(other, _)| *other == field) {
                    let details = format!("column {} is named more than once", field.name(table));
                    return Err(OpError::syntax(request, details));
                }
                columns.push((field, select));
            }
            let found = match request_member(request, allowed, "where")? {
                Some(json) => Condition::parse(table, json, &mut NoNames)?,
                None => Condition::default(),
            };
            condition = Some(condition.map_or(found.clone(), |so_far| so_far.or(found)));
        }
        Ok(MonitoredTable { columns, condition: condition.unwrap_or_default() })
    }

    fn change(&self, schema: &TableSchema, version: Version, uuid: Uuid, change: &Change) -> Option<Value> {
        let seen = |row: &Option<Arc<Row>>| row.clone().filter(|row| self.condition.any(uuid, row));
        let (old, new) = (seen(&change.old), seen(&change.new));
        let kind = match (&old, &new) {
            (None, None) => return None,
            (None, Some(_)) => Kind::Insert,
            (Some(_), None) => Kind::Delete,
            (Some(_), Some(_)) => Kind::Modify,
        };
        self.row_update(schema, version, kind, uuid, old.as_deref(), new.as_deref())
    }

    fn row_update(
        &self,
        schema: &TableSchema,
        version: Version,
        kind: Kind,
        uuid: Uuid,
        old: Option<&Row>,
        new: Option<&Row>,
    ) -> Option<Value> {
        let fields: Vec<Field> =
            self.columns.iter().filter(|(_, select)| select.has(kind)).map(|(field, _)| *field).collect();
        if fields.is_empty() && !self.columns.is_empty() {
            return None;
        }
        match (version, old, new) {
            (Version::V1, None, Some(new)) => Some(json!({"new": row_json(schema, uuid, new, &fields)})),
            (Version::V1, Some(old), None) => Some(json!({"old": row_json(schema, uuid, old, &fields)})),
            (Version::V1, Some(old), Some(new)) => {
                let changed = changed_fields(&fields, old, new);
                let old = (!changed.is_empty()).then(|| row_json(schema, uuid, old, &changed))?;
                Some(json!({"old": old, "new": row_json(schema, uuid, new, &fields)}))
            }
            (_, None, Some(new)) => {
                let kind = if kind == Kind::Initial { "initial" } else { "insert" };
                let set =
                    fields.into_iter().filter(|field| !is_default(schema, *field, new)).collect::<Vec<_>>();
                Some(json!({kind: row_json(schema, uuid, new, &set)}))
            }
            (_, Some(_), None) => Some(json!({"delete": null})),
            (_, Some(old), Some(new)) => {
                let changed = changed_fields(&fields, old, new);
                let member = |field: &Field| {
                    let (old, new) = (old.field(uuid, *field), new.field(uuid, *field));
                    (field.name(schema).to_string(), datum_to_json(&difference(schema, *field, &old, &new)))
                };
                let row: Map<String, Value> = changed.iter().map(member).collect();
                (!row.is_empty()).then(|| json!({"modify": row}))
            }
            (_, None, None) => None,
        }
    }
}

fn changed_fields(fields: &[Field], old: &Row, new: &Row) -> Vec<Field> {
    let differs = |field: &&Field| match field {
        Field::Uuid => false,
        Field::Version => old.version != new.version,
        Field::Column(ix) => old.column(*ix) != new.column(*ix),
    };
    fields.iter().filter(differs).copied().collect()
}

fn is_default(schema: &TableSchema, field: Field, row: &Row) -> bool {
    matches!(field, Field::Column(ix) if schema.columns[ix.0].default == *row.column(ix))
}

fn difference(schema: &TableSchema, field: Field, old: &Datum, new: &Datum) -> Datum {
    match field {
        Field::Column(ix) => diff(old, new, schema.columns[ix.0].ty.is_single()),
        _ => new.clone(),
    }
}

fn parse_select(json: Option<&Value>) -> Result<Select, OpError> {
    let mut select = Select { initial: true, insert: true, delete: true, modify: true };
    let Some(json) = json else { return Ok(select) };
    let Some(object) = json.as_object() else {
        return Err(OpError::syntax(json, "\"select\" must be an object"));
    };
    for (name, value) in object {
        let flag = match name.as_str() {
            "initial" => &mut select.initial,
            "insert" => &mut select.insert,
            "delete" => &mut select.delete,
            "modify" => &mut select.modify,
            _ => return Err(OpError::syntax(json, format!("member \"{name}\" is not allowed here"))),
        };
        *flag = value
            .as_bool()
            .ok_or_else(|| OpError::syntax(json, format!("\"{name}\" must be true or false")))?;
    }
    Ok(select)
}
