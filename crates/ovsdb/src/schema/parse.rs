//! Schemas from JSON (RFC 7047 section 3.2), with validation.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    BaseType, ColumnIx, ColumnSchema, ColumnType, DatabaseSchema, RefKind, Reference, TableIx, TableNames,
    TableSchema,
};
use crate::value::{AtomicType, NoNames, datum_from_json, is_identifier, number_to_i64};

/// Place and reason of an invalid schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("database schema: {place}: {problem}")]
pub struct SchemaError {
    /// Table and column, as a path.
    pub place: String,
    /// The fault.
    pub problem: String,
}

type Result<T> = std::result::Result<T, SchemaError>;

fn fail<T>(place: &str, problem: impl Into<String>) -> Result<T> {
    Err(SchemaError { place: place.to_string(), problem: problem.into() })
}

/// A table before its names are resolved.
pub(super) struct RawTable {
    pub(super) name: String,
    pub(super) columns: Vec<RawColumn>,
    pub(super) is_root: bool,
    pub(super) max_rows: Option<u32>,
    pub(super) indexes: Vec<Vec<String>>,
}

/// A column before its names are resolved.
pub(super) struct RawColumn {
    pub(super) name: String,
    pub(super) ty: ColumnType,
    pub(super) mutable: bool,
    pub(super) ephemeral: bool,
}

impl DatabaseSchema {
    /// Reads a `<database-schema>`.
    pub fn from_json(json: &Value) -> Result<DatabaseSchema> {
        let object = members(json, "top", &["name", "version", "cksum", "tables"])?;
        let name = string(object, "name", "top")?;
        let Some(Value::Object(tables)) = object.get("tables") else {
            return fail("top", "\"tables\" must be an object");
        };
        let version = match object.get("version") {
            None => "",
            Some(Value::String(text)) if is_version(text) => text,
            Some(_) => return fail("version", "must be a string of three numbers joined by dots"),
        };
        let cksum = match object.get("cksum") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return fail("cksum", "must be a string"),
        };
        let raw = tables.iter().map(|(name, json)| raw_table(name, json)).collect::<Result<Vec<_>>>()?;
        DatabaseSchema::assemble(name, version, cksum, raw)
    }
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn members<'a>(json: &'a Value, place: &str, allowed: &[&str]) -> Result<&'a Map<String, Value>> {
    let Some(object) = json.as_object() else {
        return fail(place, "must be an object");
    };
    match object.keys().find(|key| !allowed.contains(&key.as_str()) && !key.starts_with('_')) {
        Some(extra) => fail(place, format!("\"{extra}\" is not allowed here")),
        None => Ok(object),
    }
}

fn string<'a>(object: &'a Map<String, Value>, key: &str, place: &str) -> Result<&'a str> {
    match object.get(key).and_then(Value::as_str) {
        Some(text) if is_identifier(text) => Ok(text),
        _ => fail(place, format!("\"{key}\" must be a string that is an identifier")),
    }
}

fn boolean(object: &Map<String, Value>, key: &str, default: bool, place: &str) -> Result<bool> {
    match object.get(key) {
        None => Ok(default),
        Some(Value::Bool(b)) => Ok(*b),
        Some(_) => fail(place, format!("\"{key}\" must be true or false")),
    }
}

fn raw_table(name: &str, json: &Value) -> Result<RawTable> {
    if !is_identifier(name) || name.starts_with('_') {
        return fail(name, "is not a table name");
    }
    let object = members(json, name, &["columns", "maxRows", "isRoot", "indexes"])?;
    let Some(Value::Object(columns)) = object.get("columns") else {
        return fail(name, "\"columns\" must be an object");
    };
    let max_rows = match object.get("maxRows") {
        None => None,
        Some(json) => match json.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) if n > 0 => Some(n),
            _ => return fail(name, "\"maxRows\" must be a positive integer"),
        },
    };
    let mut indexes = Vec::new();
    if let Some(json) = object.get("indexes") {
        let sets: Option<Vec<Vec<String>>> =
            json.as_array().and_then(|list| list.iter().map(strings).collect());
        match sets {
            Some(sets) => indexes = sets,
            None => return fail(name, "\"indexes\" must be an array of arrays of column names"),
        }
    }
    Ok(RawTable {
        name: name.to_string(),
        columns: columns
            .iter()
            .map(|(column, json)| raw_column(name, column, json))
            .collect::<Result<_>>()?,
        is_root: boolean(object, "isRoot", false, name)?,
        max_rows,
        indexes,
    })
}

fn strings(json: &Value) -> Option<Vec<String>> {
    json.as_array()?.iter().map(|item| item.as_str().map(str::to_string)).collect()
}

fn raw_column(table: &str, name: &str, json: &Value) -> Result<RawColumn> {
    let place = format!("{table}.{name}");
    if !is_identifier(name) || name.starts_with('_') {
        return fail(&place, "is not a column name");
    }
    let object = members(json, &place, &["type", "ephemeral", "mutable"])?;
    let Some(ty) = object.get("type") else {
        return fail(&place, "\"type\" is missing");
    };
    Ok(RawColumn {
        name: name.to_string(),
        ty: column_type(ty, &place)?,
        mutable: boolean(object, "mutable", true, &place)?,
        ephemeral: boolean(object, "ephemeral", false, &place)?,
    })
}

fn column_type(json: &Value, place: &str) -> Result<ColumnType> {
    if json.is_string() {
        return Ok(ColumnType { key: base_type(json, place)?, value: None, min: 1, max: 1 });
    }
    let object = members(json, place, &["key", "value", "min", "max"])?;
    let Some(key) = object.get("key") else {
        return fail(place, "\"key\" is missing");
    };
    let value = object.get("value").map(|json| base_type(json, place)).transpose()?;
    let min = match object.get("min").map(Value::as_u64) {
        None => 1,
        Some(Some(n @ 0..=1)) => n as u32,
        Some(_) => return fail(place, "\"min\" must be 0 or 1"),
    };
    let max = match object.get("max") {
        None => 1,
        Some(Value::String(text)) if text == "unlimited" => u32::MAX,
        Some(json) => match json.as_u64() {
            Some(n) if n >= 1 && n < u64::from(u32::MAX) => n as u32,
            _ => return fail(place, "\"max\" must be a positive integer or \"unlimited\""),
        },
    };
    Ok(ColumnType { key: base_type(key, place)?, value, min, max })
}

fn base_type(json: &Value, place: &str) -> Result<BaseType> {
    let named = |name: &str| match AtomicType::from_name(name) {
        Some(ty) => Ok(BaseType::new(ty)),
        None => fail(place, format!("\"{name}\" is not an atomic type")),
    };
    if let Some(name) = json.as_str() {
        return named(name);
    }
    let object = json.as_object();
    let Some(object) = object else {
        return fail(place, "a base type must be a string or an object");
    };
    let mut base = named(object.get("type").and_then(Value::as_str).unwrap_or(""))?;
    for (key, json) in object {
        constraint(&mut base, key, json, place)?;
    }
    check_bounds(&base, place)?;
    Ok(base)
}

fn constraint(base: &mut BaseType, key: &str, json: &Value, place: &str) -> Result<()> {
    let integer = || match json {
        Value::Number(n) => number_to_i64(n),
        _ => None,
    };
    let length = || integer().and_then(|n| u32::try_from(n).ok());
    let ok = match (key, base.ty) {
        ("type", _) => return Ok(()),
        ("enum", _) => return enumeration(base, json, place),
        ("minInteger", AtomicType::Integer) => set(&mut base.min_integer, integer()),
        ("maxInteger", AtomicType::Integer) => set(&mut base.max_integer, integer()),
        ("minReal", AtomicType::Real) => set(&mut base.min_real, json.as_f64()),
        ("maxReal", AtomicType::Real) => set(&mut base.max_real, json.as_f64()),
        ("minLength", AtomicType::String) => set(&mut base.min_length, length()),
        ("maxLength", AtomicType::String) => set(&mut base.max_length, length()),
        ("refTable", AtomicType::Uuid) => {
            let kind = base.reference.take().map_or(RefKind::Strong, |r| r.kind);
            let table = json.as_str().filter(|name| !name.is_empty()).map(Arc::from);
            set(&mut base.reference, table.map(|table| Reference { table, table_ix: TableIx(0), kind }))
        }
        ("refType", AtomicType::Uuid) => {
            let kind = match json.as_str() {
                Some("strong") => RefKind::Strong,
                Some("weak") => RefKind::Weak,
                _ => return fail(place, "\"refType\" must be \"strong\" or \"weak\""),
            };
            let table = base.reference.take().map_or_else(|| Arc::from(""), |r| r.table);
            set(&mut base.reference, Some(Reference { table, table_ix: TableIx(0), kind }))
        }
        (other, ty) => return fail(place, format!("\"{other}\" is not allowed for type {}", ty.as_str())),
    };
    if ok { Ok(()) } else { fail(place, format!("\"{key}\" has a value of the wrong type or out of range")) }
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    *field = value;
    field.is_some()
}

fn enumeration(base: &mut BaseType, json: &Value, place: &str) -> Result<()> {
    let ty = ColumnType { key: BaseType::new(base.ty), value: None, min: 1, max: u32::MAX };
    match datum_from_json(json, &ty, &mut NoNames) {
        Ok(datum) => {
            base.enumeration = Some(datum.atoms().into());
            Ok(())
        }
        Err(error) => fail(place, format!("\"enum\": {error}")),
    }
}

fn check_bounds(base: &BaseType, place: &str) -> Result<()> {
    let integers = matches!((base.min_integer, base.max_integer), (Some(a), Some(b)) if a > b);
    let reals = matches!((base.min_real, base.max_real), (Some(a), Some(b)) if a > b);
    let lengths = matches!((base.min_length, base.max_length), (Some(a), Some(b)) if a > b);
    if integers || reals || lengths {
        return fail(place, "the least value allowed exceeds the greatest");
    }
    if base.reference.as_ref().is_some_and(|r| r.table.is_empty()) {
        return fail(place, "\"refType\" needs \"refTable\"");
    }
    Ok(())
}

pub(super) fn assemble(
    name: &str,
    version: &str,
    cksum: Option<String>,
    mut raw: Vec<RawTable>,
) -> Result<DatabaseSchema> {
    raw.sort_by(|a, b| a.name.cmp(&b.name));
    let names: TableNames =
        raw.iter().enumerate().map(|(ix, table)| (Arc::from(table.name.as_str()), TableIx(ix))).collect();
    if names.len() != raw.len() {
        return fail("tables", "a table occurs twice");
    }
    let all_root = !raw.iter().any(|table| table.is_root);
    let mut tables = Vec::with_capacity(raw.len());
    for table in raw {
        tables.push(Arc::new(assemble_table(table, &names, all_root)?));
    }
    Ok(DatabaseSchema { name: Arc::from(name), version: version.to_string(), cksum, tables, all_root })
}

fn assemble_table(mut raw: RawTable, names: &TableNames, all_root: bool) -> Result<TableSchema> {
    raw.columns.sort_by(|a, b| a.name.cmp(&b.name));
    let mut columns = Vec::with_capacity(raw.columns.len());
    for mut column in raw.columns {
        let place = format!("{}.{}", raw.name, column.name);
        resolve(&mut column.ty.key, names, &place)?;
        if let Some(value) = &mut column.ty.value {
            resolve(value, names, &place)?;
        }
        // Deleting the target changes a column of weak references, whatever the schema states.
        let weak = column.ty.references(RefKind::Weak).next().is_some();
        columns.push(ColumnSchema {
            name: Arc::from(column.name),
            default: column.ty.default_datum(),
            ty: column.ty,
            mutable: column.mutable || weak,
            ephemeral: column.ephemeral,
        });
    }
    let mut table = TableSchema {
        name: Arc::from(raw.name),
        columns,
        is_root: raw.is_root || all_root,
        max_rows: raw.max_rows,
        indexes: Vec::new(),
    };
    if table.columns.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return fail(&table.name, "a column occurs twice");
    }
    for index in raw.indexes {
        let index = assemble_index(&table, &index)?;
        table.indexes.push(index);
    }
    Ok(table)
}

fn assemble_index(table: &TableSchema, names: &[String]) -> Result<Vec<ColumnIx>> {
    let place = format!("{}.indexes", table.name);
    let mut seen = BTreeSet::new();
    let mut index = Vec::with_capacity(names.len());
    for name in names {
        let Some(ix) = table.column_ix(name) else {
            return fail(&place, format!("\"{name}\" is not a column"));
        };
        if table.columns[ix.0].ephemeral {
            return fail(&place, format!("\"{name}\" is ephemeral and cannot be part of an index"));
        }
        if !seen.insert(ix) {
            return fail(&place, format!("\"{name}\" occurs twice"));
        }
        index.push(ix);
    }
    if index.is_empty() { fail(&place, "an index needs a column") } else { Ok(index) }
}

fn resolve(base: &mut BaseType, names: &TableNames, place: &str) -> Result<()> {
    if let Some(reference) = &mut base.reference {
        match names.get(&reference.table) {
            Some(ix) => reference.table_ix = *ix,
            None => {
                return fail(place, format!("refers to table \"{}\", which does not exist", reference.table));
            }
        }
    }
    Ok(())
}
