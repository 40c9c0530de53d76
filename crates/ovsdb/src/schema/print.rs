//! Schemas to JSON, in the form of `ovsdb-server`'s `get_schema`: defaults omitted, members sorted by name.

use serde_json::{Map, Value};

use super::{BaseType, ColumnSchema, ColumnType, DatabaseSchema, RefKind, TableSchema};
use crate::value::{Datum, datum_to_json};

impl DatabaseSchema {
    /// The `<database-schema>`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        if let Some(cksum) = &self.cksum {
            object.insert("cksum".into(), Value::from(cksum.as_str()));
        }
        object.insert("name".into(), Value::from(&*self.name));
        let tables = self.tables.iter().map(|t| (t.name.to_string(), table_json(t, self.all_root)));
        object.insert("tables".into(), Value::Object(tables.collect()));
        if !self.version.is_empty() {
            object.insert("version".into(), Value::from(self.version.as_str()));
        }
        Value::Object(object)
    }
}

fn table_json(table: &TableSchema, all_root: bool) -> Value {
    let mut object = Map::new();
    let columns = table.columns.iter().map(|c| (c.name.to_string(), column_json(c)));
    object.insert("columns".into(), Value::Object(columns.collect()));
    if !table.indexes.is_empty() {
        let name = |ix: &super::ColumnIx| Value::from(&*table.columns[ix.0].name);
        let index = |columns: &Vec<super::ColumnIx>| Value::Array(columns.iter().map(name).collect());
        object.insert("indexes".into(), Value::Array(table.indexes.iter().map(index).collect()));
    }
    if table.is_root && !all_root {
        object.insert("isRoot".into(), Value::Bool(true));
    }
    if let Some(max_rows) = table.max_rows {
        object.insert("maxRows".into(), Value::from(max_rows));
    }
    Value::Object(object)
}

fn column_json(column: &ColumnSchema) -> Value {
    let mut object = Map::new();
    if column.ephemeral {
        object.insert("ephemeral".into(), Value::Bool(true));
    }
    if !column.mutable {
        object.insert("mutable".into(), Value::Bool(false));
    }
    object.insert("type".into(), type_json(&column.ty));
    Value::Object(object)
}

fn type_json(ty: &ColumnType) -> Value {
    let key = base_json(&ty.key);
    if ty.is_scalar() && key.is_string() {
        return key;
    }
    let mut object = Map::new();
    object.insert("key".into(), key);
    if ty.max == u32::MAX {
        object.insert("max".into(), Value::from("unlimited"));
    } else if ty.max != 1 {
        object.insert("max".into(), Value::from(ty.max));
    }
    if ty.min != 1 {
        object.insert("min".into(), Value::from(ty.min));
    }
    if let Some(value) = &ty.value {
        object.insert("value".into(), base_json(value));
    }
    Value::Object(object)
}

fn base_json(base: &BaseType) -> Value {
    let mut object = Map::new();
    if let Some(allowed) = &base.enumeration {
        object.insert("enum".into(), datum_to_json(&Datum::set(allowed.iter().cloned())));
    }
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.into(), value);
        }
    };
    let real = |x: Option<f64>| x.map(|x| datum_to_json(&Datum::atom(x)));
    put("maxInteger", base.max_integer.map(Value::from));
    put("maxLength", base.max_length.map(Value::from));
    put("maxReal", real(base.max_real));
    put("minInteger", base.min_integer.map(Value::from));
    put("minLength", base.min_length.map(Value::from));
    put("minReal", real(base.min_real));
    if let Some(reference) = &base.reference {
        put("refTable", Some(Value::from(&*reference.table)));
        put("refType", (reference.kind == RefKind::Weak).then(|| Value::from("weak")));
    }
    if object.is_empty() {
        return Value::from(base.ty.as_str());
    }
    object.insert("type".into(), Value::from(base.ty.as_str()));
    Value::Object(object)
}
