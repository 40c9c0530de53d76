//! Database schemas (RFC 7047 section 3.2): parsed from JSON, printed to it, and two built-in ones:
//! [`open_vswitch`] and [`server`].
//!
//! A [`DatabaseSchema`] is valid by construction: every reference names an existing table, every index a
//! column. Tables and columns are sorted by name and addressed by position ([`TableIx`], [`ColumnIx`]). The
//! `_uuid` and `_version` columns are implied and not listed.

mod builtin;
mod notation;
mod parse;
mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use builtin::{OPEN_VSWITCH_VERSION, open_vswitch, server};
pub use parse::SchemaError;

use crate::error::{ErrorKind, OpError};
use crate::value::{Atom, AtomicType, Datum};

/// Position of a table in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIx(pub usize);

/// Position of a column in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnIx(pub usize);

/// Whether a reference keeps its row alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    /// The row must exist, and is kept while referenced.
    Strong,
    /// The reference disappears with the row.
    Weak,
}

/// Target of a column's UUIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The table's name.
    pub table: Arc<str>,
    /// The table's position.
    pub table_ix: TableIx,
    /// Strong or weak.
    pub kind: RefKind,
}

/// `<base-type>`: an atomic type and its constraints.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseType {
    /// The atomic type.
    pub ty: AtomicType,
    /// The only values allowed, sorted; `None` allows all.
    pub enumeration: Option<Arc<[Atom]>>,
    /// Minimum integer.
    pub min_integer: Option<i64>,
    /// Greatest integer.
    pub max_integer: Option<i64>,
    /// Minimum real.
    pub min_real: Option<f64>,
    /// Greatest real.
    pub max_real: Option<f64>,
    /// Minimum length, characters.
    pub min_length: Option<u32>,
    /// Greatest length, characters.
    pub max_length: Option<u32>,
    /// The table that UUIDs refer to.
    pub reference: Option<Reference>,
}

/// `<type>`: of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnType {
    /// Type of the elements, or of a map's keys.
    pub key: BaseType,
    /// Type of a map's values; `None` for sets.
    pub value: Option<BaseType>,
    /// Minimum number of elements, 0 or 1.
    pub min: u32,
    /// Greatest number of elements; `u32::MAX` is unlimited.
    pub max: u32,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSchema {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: ColumnType,
    /// Whether it may change after the row's insertion.
    pub mutable: bool,
    /// Whether its value is left out of the log.
    pub ephemeral: bool,
    /// Its value in a new row.
    pub default: Datum,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// Its name.
    pub name: Arc<str>,
    /// Its columns, sorted by name.
    pub columns: Vec<ColumnSchema>,
    /// Whether its rows are kept without references.
    pub is_root: bool,
    /// Greatest number of rows.
    pub max_rows: Option<u32>,
    /// Sets of columns whose combined values are unique.
    pub indexes: Vec<Vec<ColumnIx>>,
}

/// A database's schema.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSchema {
    /// The database's name.
    pub name: Arc<str>,
    /// `x.y.z`, or empty if the schema has none.
    pub version: String,
    /// The checksum in the schema.
    pub cksum: Option<String>,
    /// Its tables, sorted by name.
    pub tables: Vec<Arc<TableSchema>>,
    /// No table has `isRoot`, so all are.
    pub all_root: bool,
}

impl BaseType {
    /// The type without constraints.
    pub fn new(ty: AtomicType) -> Self {
        BaseType {
            ty,
            enumeration: None,
            min_integer: None,
            max_integer: None,
            min_real: None,
            max_real: None,
            min_length: None,
            max_length: None,
            reference: None,
        }
    }

    /// Whether an atom of this type meets the constraints.
    pub fn check(&self, atom: &Atom) -> Result<(), OpError> {
        let violation = |text: String| Err(OpError::new(ErrorKind::Constraint, text));
        if let Some(allowed) = &self.enumeration {
            if allowed.binary_search(atom).is_ok() {
                return Ok(());
            }
            let allowed: Vec<String> = allowed.iter().map(Atom::to_string).collect();
            return violation(format!("{atom} is not one of the allowed values ([{}])", allowed.join(", ")));
        }
        let in_range = match atom {
            Atom::Integer(n) => {
                self.min_integer.is_none_or(|m| *n >= m) && self.max_integer.is_none_or(|m| *n <= m)
            }
            Atom::Real(x) => self.min_real.is_none_or(|m| *x >= m) && self.max_real.is_none_or(|m| *x <= m),
            Atom::String(s) if self.min_length.is_some() || self.max_length.is_some() => {
                let length = s.chars().count() as u64;
                self.min_length.is_none_or(|m| length >= u64::from(m))
                    && self.max_length.is_none_or(|m| length <= u64::from(m))
            }
            _ => true,
        };
        if in_range { Ok(()) } else { violation(self.range_violation(atom)) }
    }

    fn range_violation(&self, atom: &Atom) -> String {
        fn text<T: std::fmt::Display>(value: &str, least: Option<T>, greatest: Option<T>) -> Option<String> {
            match (least, greatest) {
                (Some(a), Some(b)) => {
                    Some(format!("{value} is not in the valid range {a} to {b} (inclusive)"))
                }
                (Some(a), None) => Some(format!("{value} is less than minimum allowed value {a}")),
                (None, Some(b)) => Some(format!("{value} is greater than maximum allowed value {b}")),
                (None, None) => None,
            }
        }
        let value = atom.to_string();
        let length = || text(&format!("length of \"{value}\""), self.min_length, self.max_length);
        text(&value, self.min_integer, self.max_integer)
            .or_else(|| text(&value, self.min_real, self.max_real))
            .or_else(length)
            .unwrap_or_default()
    }
}

impl ColumnType {
    /// A required scalar without constraints.
    pub fn scalar(ty: AtomicType) -> Self {
        ColumnType { key: BaseType::new(ty), value: None, min: 1, max: 1 }
    }

    /// Whether it is a map type.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Exactly one atom.
    pub fn is_scalar(&self) -> bool {
        !self.is_map() && self.min == 1 && self.max == 1
    }

    /// At most one atom: its difference is its new value.
    pub fn is_single(&self) -> bool {
        !self.is_map() && self.max == 1
    }

    /// Whether a value may have that many elements.
    pub fn allows_size(&self, size: usize) -> bool {
        size as u64 >= u64::from(self.min) && (self.max == u32::MAX || size as u64 <= u64::from(self.max))
    }

    /// The value of a column that was never set.
    pub fn default_datum(&self) -> Datum {
        match (&self.value, self.min) {
            (None, 0) => Datum::empty_set(),
            (None, _) => Datum::atom(self.key.ty.default_atom()),
            (Some(_), 0) => Datum::empty_map(),
            (Some(value), _) => Datum::map([(self.key.ty.default_atom(), value.ty.default_atom())]),
        }
    }

    /// Checks each element against its base type's constraints.
    pub fn check_constraints(&self, datum: &Datum) -> Result<(), OpError> {
        for key in datum.keys() {
            self.key.check(key)?;
        }
        if let Some(value_type) = &self.value {
            for (_, value) in datum.pairs() {
                value_type.check(value)?;
            }
        }
        Ok(())
    }

    /// Description of the type, for error messages.
    pub fn describe(&self) -> String {
        let key = self.key.ty.as_str();
        let (kind, elements) = match &self.value {
            Some(value) => ("map", format!("({key}, {}) pairs", value.ty.as_str())),
            None if self.is_scalar() => return key.to_string(),
            None => ("set", format!("{key}s")),
        };
        match (self.min, self.max) {
            (0, u32::MAX) => format!("{kind} of {elements}"),
            (min, u32::MAX) => format!("{kind} of {min} or more {elements}"),
            (0, max) => format!("{kind} of up to {max} {elements}"),
            (min, max) => format!("{kind} of {min} to {max} {elements}"),
        }
    }

    /// The references of this kind among the column's keys and values.
    pub fn references(&self, kind: RefKind) -> impl Iterator<Item = (bool, TableIx)> + '_ {
        let of = move |base: Option<&BaseType>| {
            base.and_then(|b| b.reference.as_ref()).filter(|r| r.kind == kind).map(|r| r.table_ix)
        };
        let key = of(Some(&self.key)).map(|ix| (true, ix));
        let value = of(self.value.as_ref()).map(|ix| (false, ix));
        key.into_iter().chain(value)
    }
}

impl TableSchema {
    /// Position of the column of that name.
    pub fn column_ix(&self, name: &str) -> Option<ColumnIx> {
        self.columns.binary_search_by(|c| (*c.name).cmp(name)).ok().map(ColumnIx)
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.column_ix(name).map(|ix| &self.columns[ix.0])
    }
}

impl DatabaseSchema {
    /// The tables, and the columns of common tables (`TABLE:COLUMN`), that `other` lacks.
    pub fn absent_from(&self, other: &DatabaseSchema) -> Vec<String> {
        let mut absent = Vec::new();
        for table in &self.tables {
            let Some(ix) = other.table_ix(&table.name) else {
                absent.push(format!("table {}", table.name));
                continue;
            };
            let kept = &other.tables[ix.0];
            let gone = table.columns.iter().filter(|c| kept.column_ix(&c.name).is_none());
            absent.extend(gone.map(|c| format!("column {}:{}", table.name, c.name)));
        }
        absent
    }

    /// Position of the table of that name.
    pub fn table_ix(&self, name: &str) -> Option<TableIx> {
        self.tables.binary_search_by(|t| (*t.name).cmp(name)).ok().map(TableIx)
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableSchema>> {
        self.table_ix(name).map(|ix| &self.tables[ix.0])
    }

    /// Sorts tables and columns, fills in positions and checks every name.
    fn assemble(
        name: &str,
        version: &str,
        cksum: Option<String>,
        tables: Vec<parse::RawTable>,
    ) -> Result<DatabaseSchema, SchemaError> {
        parse::assemble(name, version, cksum, tables)
    }
}

/// Positions of tables by name, during construction of a schema.
pub(crate) type TableNames = BTreeMap<Arc<str>, TableIx>;
