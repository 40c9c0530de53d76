//! [`Server`]: the server side of RFC 7047 and of ovsdb-server(7), without I/O.
//!
//! The owner opens a session for each connection, hands it received bytes, and sends the bytes of
//! [`Server::session_output`]. Time is an argument of each call. Commits leave through [`Server::take_log`].
//! Output that reveals a commit stays inside until [`Server::log_synced`] covers it, so a client never sees
//! contents that a crash could revert.
//!
//! A monitor update always precedes the reply to the transaction that caused it, in the same session. A
//! session that violates the protocol or does not read is marked closing, with a reason; no other session is
//! affected.
//!
//! The bounds of unread output cover encoded messages, before encoding. During encoding, one message also
//! exists as a tree of JSON values, at worst a whole database.

mod conversion;
mod durability;
mod locks;
mod methods;
mod monitor;
mod session;
mod tables;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

pub use durability::LogRecord;
pub use tables::{LoggedChange, MemoryUse};

use crate::db::{Context, Database, Outcome, transact};
use crate::jsonrpc::{FramerLimits, RpcMessage};
use crate::limits::{
    MAX_BACKLOG_BYTES, MAX_MONITORS_TOTAL, MAX_PENDING, MAX_REMOTE_SESSIONS, MAX_SESSIONS,
    MAX_TOTAL_INPUT_BYTES, MAX_TOTAL_OUTPUT_BYTES, OUTPUT_PER_TURN_BYTES, REQUESTS_PER_TURN, WAITS_PER_TURN,
};
use crate::schema;
use crate::value::{Uuid, UuidSource};
use durability::Durability;
use locks::Locks;
use session::{Kind, Session, SessionMemory};
use std::sync::atomic::Ordering;
use transactions::Pending;

/// The time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Milliseconds on a clock that never jumps: for timeouts.
    pub mono_ms: u64,
    /// Milliseconds since 1970: for the dates in the log.
    pub wall_ms: i64,
}

/// A session's id; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ovsdb#{}", self.0)
    }
}

/// Bounds of a server; the defaults are those of [`crate::limits`].
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Limits of one message.
    pub message: FramerLimits,
    /// Output that a session leaves unread, bytes.
    pub backlog_bytes: usize,
    /// Input of all sessions in partial messages, bytes.
    pub total_input_bytes: usize,
    /// Unread output of all sessions, bytes.
    pub total_output_bytes: usize,
    /// Sessions at once.
    pub sessions: usize,
    /// Sessions over the network, as a part of all sessions.
    pub remote_sessions: usize,
    /// Monitors of all sessions, beyond those guaranteed to each.
    pub monitors: usize,
    /// Waiting transactions of all sessions.
    pub waits: usize,
    /// Output per turn, bytes.
    pub output_per_turn: usize,
    /// Requests per session, and waiting transactions, served per turn.
    pub per_turn: (usize, usize),
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            message: FramerLimits::default(),
            backlog_bytes: MAX_BACKLOG_BYTES,
            total_input_bytes: MAX_TOTAL_INPUT_BYTES,
            total_output_bytes: MAX_TOTAL_OUTPUT_BYTES,
            sessions: MAX_SESSIONS,
            remote_sessions: MAX_REMOTE_SESSIONS,
            monitors: MAX_MONITORS_TOTAL,
            waits: MAX_PENDING,
            output_per_turn: OUTPUT_PER_TURN_BYTES,
            per_turn: (REQUESTS_PER_TURN, WAITS_PER_TURN),
        }
    }
}

/// Origin of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The owner of the server. The session stays when the set of databases changes, or the schema of one is replaced.
    Owner,
    /// This machine.
    Local,
    /// The network.
    Remote,
}

/// Counts of reached bounds over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions ended for the memory that they held.
    pub cut_off: u64,
    /// Monitors refused.
    pub monitors_refused: u64,
    /// Transactions rejected because too many wait.
    pub waits_refused: u64,
    /// Runs of transactions that waited.
    pub waits_run: u64,
}

/// Reason for rejecting a database or a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// Two databases of one name.
    #[error("database {0} is already served")]
    DuplicateDatabase(String),
    /// The bound of sessions.
    #[error("{0} sessions are open, which is the limit")]
    TooManySessions(usize),
}

struct Hosted {
    db: Database,
    /// Whether commits go to the log.
    persistent: bool,
    /// Whether clients may only read.
    read_only: bool,
    last_txn: Uuid,
}

/// A database server.
pub struct Server {
    uuids: Box<dyn UuidSource + Send>,
    server_id: Uuid,
    limits: ServerLimits,
    databases: BTreeMap<Arc<str>, Hosted>,
    sessions: BTreeMap<SessionId, Session>,
    next_session: u64,
    locks: Locks,
    pending: Vec<Pending>,
    durability: Durability,
    held: SessionMemory,
    counters: Counters,
    /// Output that the present turn may still make, bytes.
    turn_left: usize,
    /// The session that was served last.
    served: SessionId,
    /// Tables whose changes are logged: database and table.
    logged: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Changes of these.
    changes: Vec<LoggedChange>,
    /// Whether clients get conditional monitors.
    conditional: bool,
}

impl Server {
    /// A server with only the `_Server` database.
    pub fn new(mut uuids: Box<dyn UuidSource + Send>, limits: ServerLimits) -> Self {
        let server_id = uuids.next_uuid();
        let mut server = Server {
            uuids,
            server_id,
            limits,
            databases: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 1,
            locks: Locks::default(),
            pending: Vec::new(),
            durability: Durability::default(),
            held: SessionMemory::default(),
            counters: Counters::default(),
            turn_left: limits.output_per_turn,
            served: SessionId(0),
            logged: BTreeSet::new(),
            changes: Vec::new(),
            conditional: true,
        };
        server.host(Database::new(schema::server()), false, true);
        server
    }

    /// Adds a database. With `persistent`, its commits go to the log; [`LogRecord::database`] identifies it.
    /// Sessions that are not database-change-aware are ended, so they reconnect and read the list again.
    pub fn add_database(&mut self, db: Database, persistent: bool) -> Result<(), ServerError> {
        if self.databases.contains_key(&db.schema().name) {
            return Err(ServerError::DuplicateDatabase(db.schema().name.to_string()));
        }
        self.host(db, persistent, false);
        Ok(())
    }

    /// Removes a database and returns it. Its monitors and waiting transactions end. Write its last log
    /// records first: [`Server::log_failed`] no longer reverts its unsynced commits.
    pub fn remove_database(&mut self, name: &str) -> Option<Database> {
        if name == "_Server" {
            return None;
        }
        let hosted = self.databases.remove(name)?;
        self.durability.forget(name);
        self.logged.retain(|(database, _)| **database != *name);
        self.cancel_all(name, |_| true);
        self.server_transact(json!({"op": "delete", "table": "Database", "where": [["name", "==", name]]}));
        self.end_unaware("the set of databases changed");
        Some(hosted.db)
    }

    /// Ends the monitors of a database in sessions of some origins, and its waiting transactions.
    fn cancel_all(&mut self, name: &str, of: impl Fn(Origin) -> bool) {
        let seq = self.durability.seq();
        for session in self.sessions.values_mut().filter(|session| of(session.origin)) {
            session.unreported.retain(|commit| *commit.database != *name);
            session.untold_bytes = session.unreported.iter().map(|commit| commit.bytes).sum();
            let gone: Vec<String> = session
                .monitors
                .iter()
                .filter(|(_, m)| *m.database == *name)
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                let Some(monitor) = session.monitors.remove(&key) else { continue };
                let message =
                    RpcMessage::Notification { method: "monitor_canceled".into(), params: vec![monitor.id] };
                session.send(message, Kind::Plain, seq);
            }
        }
        let waiting = std::mem::take(&mut self.pending);
        let (gone, left) = waiting.into_iter().partition(|pending| pending.is_for(name));
        self.pending = left;
        for txn in gone {
            self.send(
                txn.session,
                RpcMessage::Error { id: txn.id, error: Value::from("canceled") },
                Kind::Plain,
            );
        }
    }

    /// Ends sessions that are not database-change-aware, except that of the owner.
    fn end_unaware(&mut self, why: &str) {
        let unaware = |s: &&mut Session| !s.change_aware && s.origin != Origin::Owner;
        self.sessions.values_mut().filter(unaware).for_each(|session| session.close(why));
    }

    fn host(&mut self, db: Database, persistent: bool, read_only: bool) {
        let schema = db.schema().clone();
        let last_txn = self.uuids.next_uuid();
        self.databases.insert(schema.name.clone(), Hosted { db, persistent, read_only, last_txn });
        let row = json!({"name": &*schema.name, "model": "standalone", "connected": true, "leader": true,
            "schema": schema.to_json().to_string()});
        self.server_transact(json!({"op": "insert", "table": "Database", "row": row}));
        self.end_unaware("the set of databases changed");
    }

    /// Changes the `_Server` database.
    fn server_transact(&mut self, operation: Value) {
        let Some(hosted) = self.databases.get_mut("_Server") else { return };
        let context =
            Context { uuids: &mut *self.uuids, owns_lock: &|_| false, elapsed_ms: 0, read_only: false };
        if let Outcome::Done { commit: Some(commit), .. } = transact(&mut hosted.db, &[operation], context) {
            self.publish(&Arc::from("_Server"), &commit.delta, None);
        }
    }

    /// The present contents of a database, unsynced commits included.
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name).map(|hosted| &hosted.db)
    }

    /// Names of its databases, in order.
    pub fn database_names(&self) -> Vec<&str> {
        self.databases.keys().map(|name| name.as_ref()).collect()
    }

    /// Opens a session of this machine.
    pub fn session_open(&mut self) -> Result<SessionId, ServerError> {
        self.session_open_from(Origin::Local)
    }

    /// Opens a session. Network sessions leave a reserve for local ones.
    pub fn session_open_from(&mut self, origin: Origin) -> Result<SessionId, ServerError> {
        let is_remote = origin == Origin::Remote;
        let of_network = self.sessions.values().filter(|session| session.origin == Origin::Remote).count();
        if self.sessions.len() >= self.limits.sessions {
            return Err(ServerError::TooManySessions(self.sessions.len()));
        }
        if is_remote && of_network >= self.limits.remote_sessions {
            return Err(ServerError::TooManySessions(of_network));
        }
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let session = Session::new(self.limits.message, self.limits.backlog_bytes, origin, self.held.clone());
        self.sessions.insert(id, session);
        Ok(id)
    }

    /// Processes a client's input, within a turn: while [`Server::has_work`], call [`Server::work`]. Check
    /// [`Server::session_closing`] afterwards.
    pub fn session_input(&mut self, id: SessionId, bytes: &[u8], now: Time) {
        self.tick(now);
        // Enforces the bound before allocating.
        let more = |s: &Session| s.framer.held_after(bytes.len()).saturating_sub(s.input_bytes());
        let held = self.held.input.load(Ordering::Relaxed) + self.sessions.get(&id).map_or(0, more);
        if held > self.limits.total_input_bytes {
            self.shed(held - self.limits.total_input_bytes, |_, s| s.input_bytes(), "half-sent messages");
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.closing.is_none()) else {
            return;
        };
        session.framer.feed(bytes);
        session.count_input();
        session.unanswered = true;
        self.understand(id, now);
    }

    /// Whether to read a client's input. If not, leave it in the socket: the client has requests pending, or
    /// does not read its replies.
    pub fn session_wants_input(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| !session.unanswered)
    }

    /// A client no longer reads: only its transactions are executed, other requests skipped.
    pub fn session_transact_only(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.transact_only();
        }
    }

    /// Whether whole requests of a client may wait for their turn.
    pub fn session_has_requests(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.unanswered && session.closing.is_none())
    }

    /// Whether all of a client's requests are answered, waiting transactions aside, and the output taken.
    pub fn session_is_idle(&self, id: SessionId) -> bool {
        !self.session_has_requests(id) && self.sessions.get(&id).is_none_or(|s| s.output_bytes() == 0)
    }

    /// Whether a client uses its session: it has a monitor, a lock, or a request pending.
    pub fn session_is_used(&self, id: SessionId) -> bool {
        let asks = |s: &Session| s.unanswered || !s.monitors.is_empty();
        self.sessions.get(&id).is_some_and(asks)
            || self.locks.has(id)
            || self.pending.iter().any(|p| p.session == id)
    }

    /// Whether [`Server::work`] has something to do at once.
    pub fn has_work(&self) -> bool {
        self.sessions.values().any(|s| s.can_reply() || s.can_report())
            || self.pending.iter().any(|p| p.is_due)
    }

    /// Continues for a turn with requests and waiting transactions left by an earlier one.
    pub fn work(&mut self, now: Time) {
        self.turn_left = self.limits.output_per_turn;
        self.tick(now);
        self.retry(now);
        let able = |(id, s): (&SessionId, &Session)| (s.can_reply() || s.can_report()).then_some(*id);
        let (next, first): (Vec<SessionId>, Vec<SessionId>) =
            self.sessions.iter().filter_map(able).partition(|id| *id > self.served);
        for id in next.into_iter().chain(first) {
            if self.turn_left == 0 {
                break;
            }
            self.catch_up(id, false);
            self.understand(id, now);
            self.served = id;
        }
    }

    /// Counts of reached bounds.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Ends the sessions that hold most until that many bytes are free.
    fn shed(&mut self, bytes: usize, held: impl Fn(SessionId, &Session) -> usize, what: &str) {
        let mut freed = 0;
        while freed < bytes
            && let Some((id, worst)) =
                self.sessions.iter_mut().max_by_key(|(id, session)| held(**id, session))
        {
            let its = held(*id, worst);
            if its == 0 {
                return;
            }
            worst.cut_off(format!("memory for {what} of all clients is short, and this one has {its} bytes"));
            self.counters.cut_off += 1;
            freed += its;
        }
    }

    /// Sends a client an echo request. Any input is an answer; the owner decides on intervals and timeouts.
    pub fn session_probe(&mut self, id: SessionId) {
        let message =
            RpcMessage::Request { id: Value::from("echo"), method: "echo".into(), params: Vec::new() };
        self.send(id, message, Kind::Plain);
    }

    fn understand(&mut self, id: SessionId, now: Time) {
        for _ in 0..self.limits.per_turn.0 {
            if self.turn_left == 0 {
                return;
            }
            let Some(session) = self.sessions.get_mut(&id).filter(|session| session.can_reply()) else {
                return;
            };
            let text = session.framer.next_text();
            session.count_input();
            match text {
                Ok(None) => session.unanswered = false,
                Err(error) => session.close(error.to_string()),
                Ok(Some(json)) => match RpcMessage::from_json(json) {
                    Err(error) => session.close(error.to_string()),
                    Ok(message) if session.output_stopped && !is_transaction(&message) => {}
                    Ok(message) => self.message(id, message, now),
                },
            }
        }
    }

    /// Bytes to send to a client, empty if none. Call it only after its previous result is sent: only bytes
    /// inside count against the client.
    pub fn session_output(&mut self, id: SessionId) -> Vec<u8> {
        self.session_output_some(id, usize::MAX)
    }

    /// At most `max` of the bytes to send to a client: the rest stays inside and counts.
    pub fn session_output_some(&mut self, id: SessionId, max: usize) -> Vec<u8> {
        let synced = self.durability.synced();
        self.sessions.get_mut(&id).map(|session| session.take_output(synced, max)).unwrap_or_default()
    }

    /// The sessions with output for [`Server::session_output`].
    pub fn sessions_with_output(&self) -> Vec<SessionId> {
        let synced = self.durability.synced();
        self.sessions.iter().filter(|(_, session)| session.has_output(synced)).map(|(id, _)| *id).collect()
    }

    /// The reason to close a session, after sending its remaining output.
    pub fn session_closing(&self, id: SessionId) -> Option<&str> {
        self.sessions.get(&id).and_then(|session| session.closing.as_deref())
    }

    /// All sessions that the owner must close.
    pub fn closing_sessions(&self) -> Vec<(SessionId, String)> {
        let closing = |(id, s): (&SessionId, &Session)| s.closing.clone().map(|reason| (*id, reason));
        self.sessions.iter().filter_map(closing).collect()
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Ends a session, with its monitors, locks and waiting transactions.
    pub fn session_close(&mut self, id: SessionId) {
        if self.sessions.remove(&id).is_none() {
            return;
        }
        self.pending.retain(|pending| pending.session != id);
        for (name, heir) in self.locks.leave(id) {
            self.notify_lock(heir, "locked", &name);
        }
    }

    fn notify_lock(&mut self, id: SessionId, method: &str, name: &str) {
        let message = RpcMessage::Notification { method: method.into(), params: vec![Value::from(name)] };
        self.send(id, message, Kind::Plain);
    }

    fn send(&mut self, id: SessionId, message: RpcMessage, kind: Kind) {
        let seq = self.durability.seq();
        self.send_at(id, message, kind, seq);
    }

    /// Sends a message that depends on commits up to `seq`. If it would exceed a bound, sessions end before
    /// it is encoded.
    fn send_at(&mut self, id: SessionId, message: RpcMessage, kind: Kind, seq: u64) {
        let held = self.held.output.load(Ordering::Relaxed);
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.takes_output()) else {
            return;
        };
        let own = session.room_bytes();
        let made = match message.encode_within(own.min(self.limits.total_output_bytes.saturating_sub(held))) {
            Ok(bytes) => {
                let made = bytes.len();
                session.push(bytes, kind, seq);
                made
            }
            Err(long) if long.bytes > own => {
                session.passes_bound(long.bytes);
                long.bytes
            }
            Err(long) => {
                let made = long.bytes;
                let with = |other, s: &Session| s.output_bytes() + if other == id { made } else { 0 };
                self.shed(held + made - self.limits.total_output_bytes, with, "unread output");
                let session = self.sessions.get_mut(&id).filter(|session| session.takes_output());
                if let Some(session) = session {
                    session.push(long.encode(), kind, seq);
                }
                made
            }
        };
        self.turn_left = self.turn_left.saturating_sub(made);
    }
}

fn is_transaction(message: &RpcMessage) -> bool {
    matches!(message, RpcMessage::Request { method, .. } if method == "transact")
}
