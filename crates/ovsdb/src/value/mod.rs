//! Values: [`Uuid`], [`Atom`], [`Datum`], their JSON form (RFC 7047 section 5.1) and the differences between
//! two values in `update2` notifications and log records.
//!
//! A [`Datum`] is canonical by construction: sorted, without duplicates, a set of one element equal to that
//! element alone. So equality of values is equality of datums. Tables are unknown here; constraints come from
//! [`crate::schema::ColumnType`].

mod atom;
mod datum;
mod diff;
mod json;
mod number;
#[cfg(test)]
mod tests;
pub mod text;
mod uuid;

pub use atom::{Atom, AtomicType};
pub use datum::Datum;
pub(crate) use diff::union;
pub use diff::{apply_diff, diff};
pub(crate) use json::is_identifier;
pub use json::{NamedUuids, NoNames, datum_from_json, datum_to_json};
pub use number::{format_real, number_to_i64};
pub use uuid::{SeededUuids, Uuid, UuidParseError, UuidSource};
