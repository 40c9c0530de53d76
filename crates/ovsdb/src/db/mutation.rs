//! Mutations (RFC 7047 section 5.1 `<mutation>`): arithmetic on numbers, insertion and deletion on sets and maps.

use serde_json::Value;

use super::condition::{Field, type_mismatch, unknown_column};
use crate::error::{ErrorKind, OpError};
use crate::schema::{BaseType, ColumnIx, ColumnType, TableSchema};
use crate::value::{Atom, AtomicType, Datum, NamedUuids, datum_from_json, union};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Insert,
    Delete,
}

/// One mutation of one column.
#[derive(Clone, Debug)]
pub(super) struct Mutation {
    column: ColumnIx,
    mutator: Mutator,
    argument: Datum,
}

impl Mutator {
    fn from_name(name: &str) -> Option<Mutator> {
        Some(match name {
            "+=" => Mutator::Add,
            "-=" => Mutator::Subtract,
            "*=" => Mutator::Multiply,
            "/=" => Mutator::Divide,
            "%=" => Mutator::Modulo,
            "insert" => Mutator::Insert,
            "delete" => Mutator::Delete,
            _ => return None,
        })
    }

    fn is_arithmetic(self) -> bool {
        !matches!(self, Mutator::Insert | Mutator::Delete)
    }

    fn applies_to(self, ty: &ColumnType) -> bool {
        match self {
            Mutator::Insert | Mutator::Delete => !ty.is_scalar(),
            Mutator::Modulo => !ty.is_map() && ty.key.ty == AtomicType::Integer,
            _ => !ty.is_map() && matches!(ty.key.ty, AtomicType::Integer | AtomicType::Real),
        }
    }
}

impl Mutation {
    /// Reads `[<column>, <mutator>, <value>]`.
    pub(super) fn parse(
        table: &TableSchema,
        json: &Value,
        names: &mut dyn NamedUuids,
    ) -> Result<Mutation, OpError> {
        let parts = json.as_array().map(Vec::as_slice);
        let Some([Value::String(name), Value::String(mutator), argument]) = parts else {
            return Err(OpError::syntax(json, "Parse error in mutation."));
        };
        let field = Field::find(table, name).ok_or_else(|| unknown_column(table, name, json))?;
        let column = match field {
            Field::Column(ix) if table.columns[ix.0].mutable => ix,
            _ => {
                let details = format!("Cannot mutate immutable column {name} in table {}.", table.name);
                return Err(OpError::new(ErrorKind::Constraint, details).at(json));
            }
        };
        let kind = Mutator::from_name(mutator)
            .ok_or_else(|| OpError::new(ErrorKind::UnknownMutator, format!("No mutator named {mutator}.")))?;
        let ty = &table.columns[column.0].ty;
        if !kind.applies_to(ty) {
            return Err(type_mismatch(mutator, name, ty, json));
        }
        let argument = datum_from_json(argument, &argument_type(kind, ty, argument), names)?;
        Ok(Mutation { column, mutator: kind, argument })
    }

    /// Changes the column in a row's columns.
    pub(super) fn apply(&self, table: &TableSchema, columns: &mut [Datum]) -> Result<(), OpError> {
        let ty = &table.columns[self.column.0].ty;
        let datum = &mut columns[self.column.0];
        let result = match self.mutator {
            Mutator::Insert => union(datum, &self.argument),
            Mutator::Delete => delete(datum, &self.argument),
            _ => {
                let result = self.arithmetic(datum)?;
                ty.check_constraints(&result)?;
                result
            }
        };
        if !ty.allows_size(result.len()) {
            let details = format!("Attempted to store {} elements in {}.", result.len(), ty.describe());
            return Err(OpError::new(ErrorKind::Constraint, details));
        }
        *datum = result;
        Ok(())
    }

    fn arithmetic(&self, datum: &Datum) -> Result<Datum, OpError> {
        let Some(argument) = self.argument.as_atom() else { return Ok(datum.clone()) };
        let atoms: Vec<Atom> =
            datum.atoms().iter().map(|atom| self.compute(atom, argument)).collect::<Result<_, _>>()?;
        Datum::distinct_set(atoms).ok_or_else(|| {
            OpError::new(ErrorKind::Constraint, "the mutation makes two elements of the set equal")
        })
    }

    fn compute(&self, atom: &Atom, argument: &Atom) -> Result<Atom, OpError> {
        let range = || OpError::new(ErrorKind::Range, "the result of the mutation is out of range");
        let domain = || OpError::new(ErrorKind::Domain, "Division by zero.");
        match (atom, argument) {
            (Atom::Integer(a), Atom::Integer(b)) => {
                let result = match self.mutator {
                    Mutator::Divide | Mutator::Modulo if *b == 0 => return Err(domain()),
                    Mutator::Add => a.checked_add(*b),
                    Mutator::Subtract => a.checked_sub(*b),
                    Mutator::Multiply => a.checked_mul(*b),
                    Mutator::Divide => a.checked_div(*b),
                    _ => Some(a.wrapping_rem(*b)),
                };
                result.map(Atom::Integer).ok_or_else(range)
            }
            (Atom::Real(a), Atom::Real(b)) => {
                let result = match self.mutator {
                    Mutator::Add => a + b,
                    Mutator::Subtract => a - b,
                    Mutator::Multiply => a * b,
                    _ if *b == 0.0 => return Err(domain()),
                    _ => a / b,
                };
                if result.is_finite() { Ok(Atom::Real(result)) } else { Err(range()) }
            }
            _ => Ok(atom.clone()),
        }
    }
}

/// Type of the argument: a number without constraints, or any number of elements; a deletion from a map may
/// list only keys.
fn argument_type(mutator: Mutator, ty: &ColumnType, json: &Value) -> ColumnType {
    if mutator.is_arithmetic() {
        return ColumnType::scalar(ty.key.ty);
    }
    let mut argument = ColumnType { min: 0, ..ty.clone() };
    if mutator == Mutator::Delete {
        argument.max = u32::MAX;
        // A value to delete need not be valid in the column.
        argument.key = BaseType::new(ty.key.ty);
        let pairs = json.get(0).and_then(Value::as_str) == Some("map");
        argument.value = ty.value.as_ref().filter(|_| pairs).map(|value| BaseType::new(value.ty));
    }
    argument
}

fn delete(datum: &Datum, argument: &Datum) -> Datum {
    datum.retain(|key, value| match value {
        Some(value) if argument.is_map() => argument.get(key) != Some(value),
        _ => !argument.contains(key),
    })
}
