//! Conditions (RFC 7047 section 5.1 `<condition>`, with the relational operators on optional numbers and the bare
//! booleans that ovsdb-server(7) adds).

use serde_json::Value;

use super::Row;
use crate::error::{ErrorKind, OpError};
use crate::limits::MAX_CLAUSES;
use crate::schema::{ColumnIx, ColumnType, TableSchema};
use crate::value::{AtomicType, Datum, NamedUuids, Uuid, datum_from_json};

/// A column of a table, or one of the two common to all tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// `_uuid`.
    Uuid,
    /// `_version`.
    Version,
    /// A column of the schema.
    Column(ColumnIx),
}

impl Field {
    /// The field of that name.
    pub fn find(table: &TableSchema, name: &str) -> Option<Field> {
        match name {
            "_uuid" => Some(Field::Uuid),
            "_version" => Some(Field::Version),
            _ => table.column_ix(name).map(Field::Column),
        }
    }

    /// Its name.
    pub fn name(self, table: &TableSchema) -> &str {
        match self {
            Field::Uuid => "_uuid",
            Field::Version => "_version",
            Field::Column(ix) => &table.columns[ix.0].name,
        }
    }

    pub(super) fn ty(self, table: &TableSchema) -> ColumnType {
        match self {
            Field::Uuid | Field::Version => ColumnType::scalar(AtomicType::Uuid),
            Field::Column(ix) => table.columns[ix.0].ty.clone(),
        }
    }
}

/// `unknown column` for a name that the table lacks.
pub(super) fn unknown_column(table: &TableSchema, name: &str, json: &Value) -> OpError {
    OpError::new(ErrorKind::UnknownColumn, format!("No column {name} in table {}.", table.name)).at(json)
}

/// The error of a function or mutator that does not apply to a column's type.
pub(super) fn type_mismatch(symbol: &str, column: &str, ty: &ColumnType, json: &Value) -> OpError {
    let ty = ty.describe();
    let details =
        format!("Type mismatch: \"{symbol}\" operator may not be applied to column {column} of type {ty}.");
    OpError::syntax(json, details)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Lt,
    Le,
    Eq,
    Ne,
    Ge,
    Gt,
    Includes,
    Excludes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    Constant(bool),
    Compare { field: Field, function: Function, value: Datum },
}

/// A list of clauses. Operations require all of them, monitors any of them; an empty list always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    clauses: Vec<Clause>,
}

impl Condition {
    /// Reads `[<condition>*]`.
    pub fn parse(
        table: &TableSchema,
        json: &Value,
        names: &mut dyn NamedUuids,
    ) -> Result<Condition, OpError> {
        let Some(list) = json.as_array() else {
            return Err(OpError::syntax(json, "a condition must be an array of clauses"));
        };
        if list.len() > MAX_CLAUSES {
            return Err(OpError::new(ErrorKind::Resources, format!("more than {MAX_CLAUSES} clauses")));
        }
        let clauses = list.iter().map(|item| clause(table, item, names)).collect::<Result<_, _>>()?;
        Ok(Condition { clauses })
    }

    /// Combines two conditions with "or", with the semantics of monitors.
    pub fn or(mut self, other: Condition) -> Condition {
        if self.clauses.is_empty() || other.clauses.is_empty() {
            return Condition::default();
        }
        self.clauses.extend(other.clauses);
        self
    }

    /// Whether all clauses hold for the row.
    pub fn all(&self, uuid: Uuid, row: &Row) -> bool {
        self.clauses.iter().all(|clause| clause.holds(uuid, row))
    }

    /// Whether the row satisfies any clause, or there is none.
    pub fn any(&self, uuid: Uuid, row: &Row) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| clause.holds(uuid, row))
    }

    /// The values fixed by `==` clauses, to find rows without a scan.
    pub(super) fn fixed(&self) -> impl Iterator<Item = (Field, &Datum)> {
        self.clauses.iter().filter_map(|clause| match clause {
            Clause::Compare { field, function: Function::Eq, value } => Some((*field, value)),
            _ => None,
        })
    }
}

impl Clause {
    fn holds(&self, uuid: Uuid, row: &Row) -> bool {
        match self {
            Clause::Constant(value) => *value,
            Clause::Compare { field: Field::Column(ix), function, value } => {
                function.test(row.column(*ix), value)
            }
            Clause::Compare { field, function, value } => function.test(&row.field(uuid, *field), value),
        }
    }
}

impl Function {
    fn from_name(name: &str) -> Option<Function> {
        Some(match name {
            "<" => Function::Lt,
            "<=" => Function::Le,
            "==" => Function::Eq,
            "!=" => Function::Ne,
            ">=" => Function::Ge,
            ">" => Function::Gt,
            "includes" => Function::Includes,
            "excludes" => Function::Excludes,
            _ => return None,
        })
    }

    fn is_relational(self) -> bool {
        matches!(self, Function::Lt | Function::Le | Function::Ge | Function::Gt)
    }

    fn test(self, column: &Datum, value: &Datum) -> bool {
        if self.is_relational() {
            // An empty optional number is neither less nor greater.
            return match (column.as_atom(), value.as_atom()) {
                (Some(a), Some(b)) => match self {
                    Function::Lt => a < b,
                    Function::Le => a <= b,
                    Function::Ge => a >= b,
                    _ => a > b,
                },
                _ => false,
            };
        }
        match self {
            Function::Eq => column == value,
            Function::Ne => column != value,
            Function::Includes => column.includes(value),
            _ => column.excludes(value),
        }
    }
}

fn clause(table: &TableSchema, json: &Value, names: &mut dyn NamedUuids) -> Result<Clause, OpError> {
    let (name, symbol, argument) = match json {
        Value::Bool(value) => return Ok(Clause::Constant(*value)),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(name), Value::String(symbol), argument] => (name, symbol, argument),
            _ => return Err(OpError::syntax(json, "Parse error in condition.")),
        },
        _ => return Err(OpError::syntax(json, "Parse error in condition.")),
    };
    let field = Field::find(table, name).ok_or_else(|| unknown_column(table, name, json))?;
    let function = Function::from_name(symbol)
        .ok_or_else(|| OpError::new(ErrorKind::UnknownFunction, format!("No function named {symbol}.")))?;
    let mut ty = field.ty(table);
    if function.is_relational() {
        if !ty.is_single() || !matches!(ty.key.ty, AtomicType::Integer | AtomicType::Real) {
            return Err(type_mismatch(symbol, name, &ty, json));
        }
        ty.min = 1;
    } else if matches!(function, Function::Includes | Function::Excludes) && !ty.is_scalar() {
        ty.min = 0;
        if function == Function::Excludes {
            ty.max = u32::MAX;
        }
    }
    Ok(Clause::Compare { field, function, value: datum_from_json(argument, &ty, names)? })
}
