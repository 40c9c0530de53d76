//! Every bound of this crate in one place.
//!
//! A bound that is reached is answered with an error that names it (or ends the session with a reason);
//! nothing grows without one. Counts are per process unless the name says otherwise.

/// Largest JSON text a server accepts from a client, bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Largest JSON text a client accepts from a server, bytes: a whole database arrives as one reply.
pub const MAX_REPLY_BYTES: usize = 512 << 20;
/// Deepest nesting of arrays and objects in a message. Below `serde_json`'s own limit of 128.
pub const MAX_DEPTH: usize = 120;
/// Most JSON values in one message: bounds memory, since a two-byte value costs dozens once parsed.
pub const MAX_NODES: usize = 4 << 20;
/// Most sessions at once.
pub const MAX_SESSIONS: usize = 1024;
/// Of these, most that may come by the network: the rest is for local clients.
pub const MAX_REMOTE_SESSIONS: usize = 768;
/// Most monitors in one session.
pub const MAX_MONITORS: usize = 256;
/// Most monitors of all sessions, beside [`MONITORS_GRANTED`] of each.
pub const MAX_MONITORS_TOTAL: usize = 2048;
/// Monitors that each session may have however many others have: what an IDL takes.
pub const MONITORS_GRANTED: usize = 2;
/// Most clauses in the conditions of one monitored table.
pub const MAX_CLAUSES: usize = 65_536;
/// Most locks that one session owns or waits for.
pub const MAX_LOCKS: usize = 256;
/// Most transactions of one session that wait for a `wait` operation to hold.
pub const MAX_PENDING_PER_SESSION: usize = 64;
/// Most waiting transactions of all sessions.
pub const MAX_PENDING: usize = 1024;
/// Output bytes that one session may leave unread before it is cut off.
pub const MAX_BACKLOG_BYTES: usize = 256 << 20;
/// Input bytes that all sessions together may have sent without a whole message; above it the one with most is cut off.
pub const MAX_TOTAL_INPUT_BYTES: usize = 256 << 20;
/// Output bytes that all sessions together may leave unread; above it the one with most is cut off.
pub const MAX_TOTAL_OUTPUT_BYTES: usize = 512 << 20;
/// A session that leaves more output than this unread is answered further when it has read.
pub const BUSY_OUTPUT_BYTES: usize = 1 << 20;
/// Requests of one session that are answered before others have their turn.
pub const REQUESTS_PER_TURN: usize = 64;
/// Waiting transactions that are run again before others have their turn.
pub const WAITS_PER_TURN: usize = 16;
/// Output that one turn makes, answers and updates of monitors together, bytes: some 20 ms. One message more may be under way.
pub const OUTPUT_PER_TURN_BYTES: usize = 2 << 20;
/// Commits of which one session may have to be told yet; one that is further behind is cut off.
pub const MAX_COMMITS_BEHIND: usize = 4096;
/// Longest part of an offending request that an error's `syntax` member repeats, bytes.
pub const MAX_SYNTAX_BYTES: usize = 1024;
/// Most rows in a table whose schema sets no `maxRows`.
pub const MAX_ROWS: usize = 16 << 20;
/// Most transactions that a client may have in flight.
pub const MAX_IN_FLIGHT: usize = 1024;
/// Longest line that opens a log record, bytes: `OVSDB JSON <length> <40 hexadecimal digits>`.
pub const MAX_LOG_HEADER_BYTES: usize = 128;
