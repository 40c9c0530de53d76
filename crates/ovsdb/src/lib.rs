//! OVSDB, the database protocol of Open vSwitch (RFC 7047 and what `ovsdb-server` added to it): both sides of it,
//! without I/O.
//!
//! - [`value`], [`schema`]: values, column types, the schemas `Open_vSwitch` and `_Server`.
//! - [`db`]: the database in memory and its transactions.
//! - [`log`]: the file format; bytes in, bytes out.
//! - [`jsonrpc`]: messages on a stream.
//! - [`server`]: databases and sessions. [`client`]: a replica and transactions, over a connection or in one process
//!   with the server.
//! - [`fuzz`]: entry points for fuzzing. [`limits`]: every bound.
//!
//! Nothing here reads a clock, draws randomness, opens a file or a socket, or starts a thread: time comes with each
//! call, UUIDs from a [`value::UuidSource`]. Every input may be hostile: it is answered with an error, never a
//! panic, and takes memory within the bounds of [`limits`].
//!
//! Not here: clusters (RAFT), replication between servers, role-based access control, online schema conversion by a
//! client (`convert`), which a switch's own database has no use for.

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
