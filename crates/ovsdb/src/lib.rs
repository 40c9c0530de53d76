//! OVSDB, the database protocol of Open vSwitch (RFC 7047 and the extensions of `ovsdb-server`): both sides
//! of it, without I/O.
//!
//! - [`value`], [`schema`]: values, column types, the schemas `Open_vSwitch` and `_Server`.
//! - [`db`]: the database in memory and its transactions.
//! - [`log`]: the file format; bytes in, bytes out.
//! - [`jsonrpc`]: messages on a stream.
//! - [`server`]: databases and sessions. [`client`]: a replica and transactions, over a connection or in one process
//!   with the server.
//! - [`fuzz`]: fuzz targets. [`limits`]: every bound.
//!
//! Nothing here reads a clock, draws random numbers, opens a file or a socket, or starts a thread: time is an
//! argument of each call, UUIDs come from a [`value::UuidSource`]. Input is untrusted: an invalid one causes
//! an error, never a panic, and memory stays within [`limits`].
//!
//! Omitted, because a switch's own database does not use them: clusters (RAFT), replication between servers,
//! role-based access control, `convert` to another schema than the database's own.

#![forbid(unsafe_code)]

pub mod client;
pub mod db;
pub mod error;
pub mod fuzz;
pub mod jsonrpc;
pub mod limits;
pub mod log;
pub mod schema;
pub mod server;
pub mod value;
