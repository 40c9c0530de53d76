//! Every bound of this crate in one place.
//!
//! Reaching a bound causes an error that names it (or ends the session with a reason); nothing grows without
//! one. Counts are per process unless the name differs.

/// Largest JSON text a server accepts from a client, bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Maximum JSON text that a client accepts from a server, bytes: a whole database arrives as one reply.
pub const MAX_REPLY_BYTES: usize = 512 << 20;
/// Maximum nesting of arrays and objects in a message. Below `serde_json`'s own limit of 128.
pub const MAX_DEPTH: usize = 120;
/// Maximum JSON values in one message: bounds memory, since a two-byte value costs dozens once parsed.
pub const MAX_NODES: usize = 4 << 20;
/// Maximum concurrent sessions.
pub const MAX_SESSIONS: usize = 1024;
/// Maximum of these over the network: the rest is reserved for local clients.
pub const MAX_REMOTE_SESSIONS: usize = 768;
/// Maximum monitors in one session.
pub const MAX_MONITORS: usize = 256;
/// Maximum monitors of all sessions, beyond [`MONITORS_GRANTED`] of each.
pub const MAX_MONITORS_TOTAL: usize = 2048;
/// Monitors guaranteed to each session: enough for an IDL.
pub const MONITORS_GRANTED: usize = 2;
/// Maximum clauses in the conditions of one monitored table.
pub const MAX_CLAUSES: usize = 65_536;
/// Maximum locks that one session owns or waits for.
pub const MAX_LOCKS: usize = 256;
/// Maximum pending transactions of one session with a `wait` operation.
pub const MAX_PENDING_PER_SESSION: usize = 64;
/// Maximum waiting transactions of all sessions.
pub const MAX_PENDING: usize = 1024;
/// Maximum unread output of one session, bytes; above it the session ends.
pub const MAX_BACKLOG_BYTES: usize = 256 << 20;
/// Maximum input of all sessions in partial messages, bytes; above it the session that holds most ends.
pub const MAX_TOTAL_INPUT_BYTES: usize = 256 << 20;
/// Maximum unread output of all sessions, bytes; above it the session that holds most ends.
pub const MAX_TOTAL_OUTPUT_BYTES: usize = 512 << 20;
/// Above this much unread output, replies to a session pause.
pub const BUSY_OUTPUT_BYTES: usize = 1 << 20;
/// Requests of one session served per turn.
pub const REQUESTS_PER_TURN: usize = 64;
/// Waiting transactions retried per turn.
pub const WAITS_PER_TURN: usize = 16;
/// Output per turn, replies and monitor updates together, bytes: some 20 ms. One message may exceed it.
pub const OUTPUT_PER_TURN_BYTES: usize = 2 << 20;
/// Maximum commits not yet reported to a session; one further behind is closed.
pub const MAX_COMMITS_BEHIND: usize = 4096;
/// Maximum part of an offending request in an error's `syntax` member, bytes.
pub const MAX_SYNTAX_BYTES: usize = 1024;
/// Maximum rows in a table whose schema sets no `maxRows`.
pub const MAX_ROWS: usize = 16 << 20;
/// Maximum transactions of a client in flight.
pub const MAX_IN_FLIGHT: usize = 1024;
/// Maximum header line of a log record, bytes: `OVSDB JSON <length> <40 hexadecimal digits>`.
pub const MAX_LOG_HEADER_BYTES: usize = 128;
