//! [`RowView`]: typed reading of a row's columns by name.
//!
//! An unknown column, or a value of another type, reads like an empty column: a reader for a newer schema
//! works on an older one.

use std::collections::BTreeMap;

use crate::schema::TableSchema;
use crate::value::{Atom, Datum, Uuid};

/// One row of a [`super::Replica`].
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    table: &'a TableSchema,
    uuid: Uuid,
    columns: &'a [Datum],
}

impl<'a> RowView<'a> {
    pub(super) fn new(table: &'a TableSchema, uuid: Uuid, columns: &'a [Datum]) -> Self {
        RowView { table, uuid, columns }
    }

    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The table's name.
    pub fn table(&self) -> &'a str {
        &self.table.name
    }

    /// A column's value.
    pub fn datum(&self, column: &str) -> Option<&'a Datum> {
        self.table.column_ix(column).and_then(|ix| self.columns.get(ix.0))
    }

    fn atoms(&self, column: &str) -> &'a [Atom] {
        self.datum(column).map_or(&[], Datum::atoms)
    }

    fn pairs(&self, column: &str) -> &'a [(Atom, Atom)] {
        self.datum(column).map_or(&[], Datum::pairs)
    }

    /// A string; empty if absent.
    pub fn str(&self, column: &str) -> &'a str {
        self.opt_str(column).unwrap_or("")
    }

    /// An optional string.
    pub fn opt_str(&self, column: &str) -> Option<&'a str> {
        self.atoms(column).first().and_then(Atom::as_str)
    }

    /// An integer; 0 if absent.
    pub fn int(&self, column: &str) -> i64 {
        self.opt_int(column).unwrap_or(0)
    }

    /// An optional integer.
    pub fn opt_int(&self, column: &str) -> Option<i64> {
        self.atoms(column).first().and_then(Atom::as_integer)
    }

    /// An optional real.
    pub fn opt_real(&self, column: &str) -> Option<f64> {
        self.atoms(column).first().and_then(Atom::as_real)
    }

    /// A boolean; false if absent.
    pub fn bool(&self, column: &str) -> bool {
        self.opt_bool(column).unwrap_or(false)
    }

    /// An optional boolean.
    pub fn opt_bool(&self, column: &str) -> Option<bool> {
        self.atoms(column).first().and_then(Atom::as_bool)
    }

    /// An optional UUID.
    pub fn opt_uuid(&self, column: &str) -> Option<Uuid> {
        self.atoms(column).first().and_then(Atom::as_uuid)
    }

    /// A set of UUIDs, sorted.
    pub fn uuid_set(&self, column: &str) -> Vec<Uuid> {
        self.atoms(column).iter().filter_map(Atom::as_uuid).collect()
    }

    /// A set of strings, sorted.
    pub fn string_set(&self, column: &str) -> Vec<&'a str> {
        self.atoms(column).iter().filter_map(Atom::as_str).collect()
    }

    /// A set of integers, sorted.
    pub fn int_set(&self, column: &str) -> Vec<i64> {
        self.atoms(column).iter().filter_map(Atom::as_integer).collect()
    }

    /// A map from string to string.
    pub fn string_map(&self, column: &str) -> BTreeMap<&'a str, &'a str> {
        self.pairs(column).iter().filter_map(|(k, v)| Some((k.as_str()?, v.as_str()?))).collect()
    }

    /// One value of a map from string to string.
    pub fn map_str(&self, column: &str, key: &str) -> Option<&'a str> {
        let pairs = self.pairs(column);
        let at = pairs.binary_search_by(|(k, _)| k.as_str().unwrap_or("").cmp(key)).ok()?;
        pairs[at].1.as_str()
    }

    /// A map from string to integer.
    pub fn int_map(&self, column: &str) -> BTreeMap<&'a str, i64> {
        self.pairs(column).iter().filter_map(|(k, v)| Some((k.as_str()?, v.as_integer()?))).collect()
    }

    /// A map from integer to UUID, like `Bridge.flow_tables` and `QoS.queues`.
    pub fn int_uuid_map(&self, column: &str) -> BTreeMap<i64, Uuid> {
        self.pairs(column).iter().filter_map(|(k, v)| Some((k.as_integer()?, v.as_uuid()?))).collect()
    }

    /// A map from integer to integer, as `AutoAttach.mappings`.
    pub fn int_int_map(&self, column: &str) -> BTreeMap<i64, i64> {
        self.pairs(column).iter().filter_map(|(k, v)| Some((k.as_integer()?, v.as_integer()?))).collect()
    }

    /// A map from string to UUID, as `Open_vSwitch.datapaths`.
    pub fn string_uuid_map(&self, column: &str) -> BTreeMap<&'a str, Uuid> {
        self.pairs(column).iter().filter_map(|(k, v)| Some((k.as_str()?, v.as_uuid()?))).collect()
    }
}
