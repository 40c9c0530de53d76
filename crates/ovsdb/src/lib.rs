//! ovsdb
#![forbid(unsafe_code)]
pub mod db;
pub mod error;
pub mod limits;
pub mod schema;
pub mod value;
