//! The JSON form of values (RFC 7047 section 5.1): `["uuid",U]`, `["named-uuid",N]`, `["set",[…]]`, `["map",[…]]`.

use serde_json::Value;

use super::number::{number_to_i64, real_to_json};
use super::{Atom, AtomicType, Datum, Uuid};
use crate::error::{ErrorKind, OpError};
use crate::schema::{BaseType, ColumnType};

/// Resolves `["named-uuid", NAME]` within one transaction.
pub trait NamedUuids {
    /// The UUID of that name; `None` if names are not allowed.
    fn resolve(&mut self, name: &str) -> Option<Uuid>;
}

/// Allows no names: for everything outside a transaction.
pub struct NoNames;

impl NamedUuids for NoNames {
    fn resolve(&mut self, _name: &str) -> Option<Uuid> {
        None
    }
}

/// An `<id>` of RFC 7047: a C identifier.
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Parses a value of a column's type: checks types, number of elements, duplicates, then the type's
/// constraints.
pub fn datum_from_json(json: &Value, ty: &ColumnType, names: &mut dyn NamedUuids) -> Result<Datum, OpError> {
    let datum = if let Some(value_type) = &ty.value {
        map_from_json(json, &ty.key, value_type, ty, names)?
    } else {
        set_from_json(json, ty, names)?
    };
    ty.check_constraints(&datum)?;
    Ok(datum)
}

fn tagged<'a>(json: &'a Value, tag: &str) -> Option<&'a Value> {
    match json.as_array().map(Vec::as_slice) {
        Some([Value::String(found), content]) if found == tag => Some(content),
        _ => None,
    }
}

fn check_size(json: &Value, ty: &ColumnType, size: usize) -> Result<(), OpError> {
    if ty.allows_size(size) {
        return Ok(());
    }
    let kind = if ty.value.is_some() { "map" } else { "set" };
    let wanted = match (ty.min, ty.max) {
        (1, 1) => "exactly one member".to_string(),
        (min, max) => format!("{min} to {max} members"),
    };
    Err(OpError::syntax(json, format!("{kind} must have {wanted} but {size} are present")))
}

fn map_from_json(
    json: &Value,
    key: &BaseType,
    value: &BaseType,
    ty: &ColumnType,
    names: &mut dyn NamedUuids,
) -> Result<Datum, OpError> {
    let Some(Value::Array(elements)) = tagged(json, "map") else {
        return Err(OpError::syntax(json, "expected [\"map\", <array>]"));
    };
    check_size(json, ty, elements.len())?;
    let mut pairs = Vec::with_capacity(elements.len());
    for element in elements {
        let Some([k, v]) = element.as_array().map(Vec::as_slice) else {
            return Err(OpError::syntax(element, "expected 2-element array"));
        };
        pairs.push((atom_from_json(k, key.ty, names)?, atom_from_json(v, value.ty, names)?));
    }
    Datum::distinct_map(pairs).ok_or_else(|| OpError::new(ErrorKind::Duplicate, "map contains duplicate key"))
}

fn set_from_json(json: &Value, ty: &ColumnType, names: &mut dyn NamedUuids) -> Result<Datum, OpError> {
    let Some(Value::Array(elements)) = tagged(json, "set") else {
        return Ok(Datum::atom(atom_from_json(json, ty.key.ty, names)?));
    };
    check_size(json, ty, elements.len())?;
    let mut atoms = Vec::with_capacity(elements.len());
    for element in elements {
        atoms.push(atom_from_json(element, ty.key.ty, names)?);
    }
    Datum::distinct_set(atoms).ok_or_else(|| OpError::new(ErrorKind::Duplicate, "set contains duplicate"))
}

fn atom_from_json(json: &Value, ty: AtomicType, names: &mut dyn NamedUuids) -> Result<Atom, OpError> {
    let atom = match (ty, json) {
        (AtomicType::Integer, Value::Number(n)) => number_to_i64(n).map(Atom::Integer),
        (AtomicType::Real, Value::Number(n)) => n.as_f64().filter(|x| x.is_finite()).map(Atom::Real),
        (AtomicType::Boolean, Value::Bool(b)) => Some(Atom::Boolean(*b)),
        (AtomicType::String, Value::String(s)) if s.contains('\0') => {
            return Err(OpError::syntax(json, "a string may not contain a NUL character"));
        }
        (AtomicType::String, Value::String(s)) => Some(Atom::string(s)),
        (AtomicType::Uuid, _) => return uuid_from_json(json, names).map(Atom::Uuid),
        _ => None,
    };
    atom.ok_or_else(|| OpError::syntax(json, format!("expected {}", ty.as_str())))
}

fn uuid_from_json(json: &Value, names: &mut dyn NamedUuids) -> Result<Uuid, OpError> {
    if let Some(Value::String(text)) = tagged(json, "uuid") {
        return text.parse().map_err(|_| OpError::syntax(json, format!("\"{text}\" is not a valid UUID")));
    }
    if let Some(Value::String(name)) = tagged(json, "named-uuid")
        && is_identifier(name)
        && let Some(uuid) = names.resolve(name)
    {
        return Ok(uuid);
    }
    Err(OpError::syntax(json, "expected [\"uuid\", <string>]"))
}

/// The JSON of an atom.
pub(crate) fn atom_to_json(atom: &Atom) -> Value {
    match atom {
        Atom::Integer(n) => Value::from(*n),
        Atom::Real(x) => real_to_json(*x),
        Atom::Boolean(b) => Value::Bool(*b),
        Atom::String(s) => Value::from(&**s),
        Atom::Uuid(u) => Value::Array(vec![Value::from("uuid"), Value::from(u.to_string())]),
    }
}

/// The JSON of a value; a set of one element is the element alone.
pub fn datum_to_json(datum: &Datum) -> Value {
    if let Some(atom) = datum.as_atom() {
        return atom_to_json(atom);
    }
    let (tag, content) = if datum.is_map() {
        let pair = |(k, v): &(Atom, Atom)| Value::Array(vec![atom_to_json(k), atom_to_json(v)]);
        ("map", datum.pairs().iter().map(pair).collect())
    } else {
        ("set", datum.atoms().iter().map(atom_to_json).collect())
    };
    Value::Array(vec![Value::from(tag), Value::Array(content)])
}
