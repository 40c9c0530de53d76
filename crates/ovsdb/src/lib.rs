//! ovsdb
#![forbid(unsafe_code)]
pub mod client;
pub mod db;
pub mod error;
pub mod jsonrpc;
pub mod limits;
pub mod log;
pub mod schema;
pub mod server;
pub mod value;
