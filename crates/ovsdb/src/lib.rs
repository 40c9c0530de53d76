//! ovsdb
#![forbid(unsafe_code)]
pub mod error;
pub mod limits;
pub mod schema;
pub mod value;
