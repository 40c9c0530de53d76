//! Parses the members of operations: required ones, optional ones, and their types.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::condition::{Field, unknown_column};
use crate::error::{ErrorKind, OpError};
use crate::schema::{ColumnIx, TableSchema};
use crate::value::{Datum, NamedUuids, datum_from_json};

/// One operation's members, removed one by one; [`Members::finish`] rejects the rest.
pub(super) struct Members<'a> {
    json: &'a Value,
    object: &'a Map<String, Value>,
    place: String,
    seen: Vec<&'static str>,
}

impl<'a> Members<'a> {
    /// `place` identifies the operation in error messages.
    pub(super) fn new(json: &'a Value, place: String) -> Result<Self, OpError> {
        match json.as_object() {
            Some(object) => Ok(Members { json, object, place, seen: Vec::new() }),
            None => Err(OpError::new(ErrorKind::Syntax, format!("{place}: an object is expected"))),
        }
    }

    /// A `syntax error` about this operation.
    pub(super) fn error(&self, problem: impl std::fmt::Display) -> OpError {
        OpError::syntax(self.json, format!("{}: {problem}", self.place))
    }

    /// The operation itself.
    pub(super) fn json(&self) -> &'a Value {
        self.json
    }

    pub(super) fn optional(&mut self, name: &'static str) -> Option<&'a Value> {
        self.seen.push(name);
        self.object.get(name)
    }

    pub(super) fn required(&mut self, name: &'static str) -> Result<&'a Value, OpError> {
        self.optional(name).ok_or_else(|| self.error(format_args!("required member \"{name}\" is missing")))
    }

    fn mistyped(&self, name: &str, what: &str) -> OpError {
        self.error(format_args!("member \"{name}\" must be {what}"))
    }

    pub(super) fn string(&mut self, name: &'static str) -> Result<&'a str, OpError> {
        self.required(name)?.as_str().ok_or_else(|| self.mistyped(name, "a string"))
    }

    pub(super) fn array(&mut self, name: &'static str) -> Result<&'a Value, OpError> {
        let json = self.required(name)?;
        if json.is_array() { Ok(json) } else { Err(self.mistyped(name, "an array")) }
    }

    pub(super) fn object(&mut self, name: &'static str) -> Result<&'a Value, OpError> {
        let json = self.required(name)?;
        if json.is_object() { Ok(json) } else { Err(self.mistyped(name, "an object")) }
    }

    pub(super) fn boolean(&mut self, name: &'static str) -> Result<bool, OpError> {
        self.required(name)?.as_bool().ok_or_else(|| self.mistyped(name, "true or false"))
    }

    /// An optional identifier string.
    pub(super) fn identifier(&mut self, name: &'static str) -> Result<Option<&'a str>, OpError> {
        match self.optional(name) {
            None => Ok(None),
            Some(Value::String(text)) if crate::value::is_identifier(text) => Ok(Some(text)),
            Some(_) => Err(self.mistyped(name, "an identifier")),
        }
    }

    /// Rejects unknown members.
    pub(super) fn finish(&self) -> Result<(), OpError> {
        match self.object.keys().find(|key| !self.seen.contains(&key.as_str())) {
            Some(extra) => Err(self.error(format_args!("member \"{extra}\" is not allowed here"))),
            None => Ok(()),
        }
    }
}

/// Reads `[<column>*]`: names without duplicates.
pub(crate) fn parse_fields(table: &TableSchema, json: &Value) -> Result<Vec<Field>, OpError> {
    let Some(list) = json.as_array() else {
        return Err(OpError::syntax(json, "an array of column names is expected"));
    };
    let mut seen = BTreeSet::new();
    let mut fields = Vec::with_capacity(list.len());
    for item in list {
        let Some(name) = item.as_str() else {
            return Err(OpError::syntax(json, "an array of column names is expected"));
        };
        let Some(field) = Field::find(table, name) else {
            return Err(OpError::syntax(json, format!("table {} has no column {name}", table.name)));
        };
        if !seen.insert(field) {
            return Err(OpError::syntax(json, format!("column {name} is named twice")));
        }
        fields.push(field);
    }
    Ok(fields)
}

/// Parses a `<row>`, which may include `_uuid` and `_version`, for the operation to interpret.
pub(super) fn parse_row(
    table: &TableSchema,
    json: &Value,
    names: &mut dyn NamedUuids,
) -> Result<Vec<(Field, Datum)>, OpError> {
    let Some(object) = json.as_object() else {
        return Err(OpError::syntax(json, "a row must be an object"));
    };
    let mut values = Vec::with_capacity(object.len());
    for (name, value) in object {
        let field = Field::find(table, name).ok_or_else(|| unknown_column(table, name, json))?;
        let datum = match field {
            Field::Column(ix) => datum_from_json(value, &table.columns[ix.0].ty, names)?,
            _ => datum_from_json(value, &field.ty(table), names)?,
        };
        values.push((field, datum));
    }
    Ok(values)
}

/// The first column of the row that may not be changed.
pub(super) fn immutable<'t>(table: &'t TableSchema, values: &[(Field, Datum)]) -> Option<&'t str> {
    values.iter().find_map(|(field, _)| match field {
        Field::Column(ColumnIx(ix)) if table.columns[*ix].mutable => None,
        other => Some(other.name(table)),
    })
}
