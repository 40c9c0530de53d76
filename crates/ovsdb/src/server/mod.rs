//! [`Server`]: the server side of RFC 7047 and of ovsdb-server(7), without I/O.
//!
//! The owner opens a session for each connection, gives it the bytes that arrive, and sends the bytes that
//! [`Server::session_output`] gives. Time comes with each call. Commits leave through [`Server::take_log`]; whatever a
//! client could learn of a commit stays inside until [`Server::log_synced`] covers it. So a client never sees
//! anything that a crash could take back.
//!
//! An update of a monitor always precedes the reply to the transaction that caused it, in the same session.
//! A session that breaks the protocol or does not read is marked closing, with a reason; no other session notices.

mod durability;
mod locks;
mod methods;
mod monitor;
mod session;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

pub use durability::LogRecord;

use crate::db::{Context, Database, Outcome, transact};
use crate::jsonrpc::{FramerLimits, Message};
use crate::limits::{MAX_BACKLOG_BYTES, MAX_SESSIONS, MAX_TOTAL_HELD_BYTES};
use crate::schema;
use crate::value::{Uuid, UuidSource};
use durability::Durability;
use locks::Locks;
use session::{Kind, Session};
use transactions::Pending;

/// The time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Milliseconds on a clock that never jumps: for timeouts.
    pub mono_ms: u64,
    /// Milliseconds since 1970: for the dates in the log.
    pub wall_ms: i64,
}

/// A session's name; never used again.
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
    /// Of one message.
    pub message: FramerLimits,
    /// Of the output that a session leaves unread, bytes.
    pub backlog_bytes: usize,
    /// Of the input and output that all sessions together have waiting, bytes.
    pub total_held_bytes: usize,
    /// Of sessions at once.
    pub sessions: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            message: FramerLimits::default(),
            backlog_bytes: MAX_BACKLOG_BYTES,
            total_held_bytes: MAX_TOTAL_HELD_BYTES,
            sessions: MAX_SESSIONS,
        }
    }
}

/// Why a database or a session was not taken.
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
        };
        server.host(Database::new(schema::server()), false, true);
        server
    }

    /// Serves a database. With `persistent`, its commits go to the log; [`LogRecord::database`] tells logs apart.
    /// Sessions that do not follow the `_Server` database are ended, so that they look again.
    pub fn add_database(&mut self, db: Database, persistent: bool) -> Result<(), ServerError> {
        if self.databases.contains_key(&db.schema().name) {
            return Err(ServerError::DuplicateDatabase(db.schema().name.to_string()));
        }
        self.host(db, persistent, false);
        Ok(())
    }

    /// Stops serving a database and gives it back. Its monitors and waiting transactions end. Write its last log
    /// records first: commits that are not synced are no longer taken back by [`Server::log_failed`].
    pub fn remove_database(&mut self, name: &str) -> Option<Database> {
        if name == "_Server" {
            return None;
        }
        let hosted = self.databases.remove(name)?;
        self.durability.forget(name);
        let seq = self.durability.seq();
        for session in self.sessions.values_mut() {
            let gone: Vec<String> = session
                .monitors
                .iter()
                .filter(|(_, m)| *m.database == *name)
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                let Some(monitor) = session.monitors.remove(&key) else { continue };
                let message =
                    Message::Notification { method: "monitor_canceled".into(), params: vec![monitor.id] };
                session.send(message, Kind::Plain, seq);
            }
        }
        let waiting = std::mem::take(&mut self.pending);
        let (gone, left) = waiting.into_iter().partition(|pending| pending.is_for(name));
        self.pending = left;
        for txn in gone {
            self.send(
                txn.session,
                Message::Error { id: txn.id, error: Value::from("canceled") },
                Kind::Plain,
            );
        }
        self.server_transact(json!({"op": "delete", "table": "Database", "where": [["name", "==", name]]}));
        self.databases_changed();
        Some(hosted.db)
    }

    /// Sessions that did not say that they follow the `_Server` database must look again: they are ended.
    fn databases_changed(&mut self) {
        for session in self.sessions.values_mut().filter(|session| !session.change_aware) {
            session.close("the set of databases changed");
        }
    }

    fn host(&mut self, db: Database, persistent: bool, read_only: bool) {
        let schema = db.schema().clone();
        let last_txn = self.uuids.next_uuid();
        self.databases.insert(schema.name.clone(), Hosted { db, persistent, read_only, last_txn });
        let row = json!({"name": &*schema.name, "model": "standalone", "connected": true, "leader": true,
            "schema": schema.to_json().to_string()});
        self.server_transact(json!({"op": "insert", "table": "Database", "row": row}));
        self.databases_changed();
    }

    /// Changes the `_Server` database.
    fn server_transact(&mut self, operation: Value) {
        let Some(hosted) = self.databases.get_mut("_Server") else { return };
        let context =
            Context { uuids: &mut *self.uuids, owns_lock: &|_| false, elapsed_ms: 0, read_only: false };
        if let Outcome::Done { commit: Some(commit), .. } = transact(&mut hosted.db, &[operation], context) {
            self.publish("_Server", &commit.delta);
        }
    }

    /// A database as it is now, commits that are not yet synced included.
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name).map(|hosted| &hosted.db)
    }

    /// Names of its databases, in order.
    pub fn database_names(&self) -> Vec<&str> {
        self.databases.keys().map(|name| name.as_ref()).collect()
    }

    /// Opens a session.
    pub fn session_open(&mut self) -> Result<SessionId, ServerError> {
        if self.sessions.len() >= self.limits.sessions {
            return Err(ServerError::TooManySessions(self.sessions.len()));
        }
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session::new(self.limits.message, self.limits.backlog_bytes));
        Ok(id)
    }

    /// Takes what a client sent and does what it asks. Look at [`Server::session_closing`] afterwards.
    pub fn session_input(&mut self, id: SessionId, bytes: &[u8], now: Time) {
        self.tick(now);
        self.understand(id, bytes, now);
        self.shed();
    }

    /// Cuts off the sessions with most bytes waiting until all together are within the bound.
    fn shed(&mut self) {
        let mut held: usize = self.sessions.values().map(Session::held_bytes).sum();
        while held > self.limits.total_held_bytes {
            let Some(worst) = self.sessions.values_mut().max_by_key(|session| session.held_bytes()) else {
                return;
            };
            let freed = worst.held_bytes();
            worst
                .cut_off(format!("memory for clients is short, and {freed} bytes wait for or from this one"));
            held -= freed;
        }
    }

    /// Asks a client for a sign of life. Whatever it sends next is one; when to ask and to give up is the owner's.
    pub fn session_probe(&mut self, id: SessionId) {
        let message = Message::Request { id: Value::from("echo"), method: "echo".into(), params: Vec::new() };
        self.send(id, message, Kind::Plain);
    }

    fn understand(&mut self, id: SessionId, bytes: &[u8], now: Time) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.framer.feed(bytes);
        }
        while let Some(session) = self.sessions.get_mut(&id).filter(|session| session.closing.is_none()) {
            match session.framer.next_text() {
                Ok(None) => return,
                Err(error) => session.close(error.to_string()),
                Ok(Some(json)) => match Message::from_json(json) {
                    Err(error) => session.close(error.to_string()),
                    Ok(message) => self.message(id, message, now),
                },
            }
        }
    }

    /// Bytes to send to a client, empty if there are none. Call it only when what it gave before is sent: what stays
    /// inside is what counts against the client.
    pub fn session_output(&mut self, id: SessionId) -> Vec<u8> {
        let synced = self.durability.synced();
        self.sessions.get_mut(&id).map(|session| session.take_output(synced)).unwrap_or_default()
    }

    /// The sessions for which [`Server::session_output`] has something.
    pub fn sessions_with_output(&self) -> Vec<SessionId> {
        let synced = self.durability.synced();
        self.sessions.iter().filter(|(_, session)| session.has_output(synced)).map(|(id, _)| *id).collect()
    }

    /// Why the owner must close a session, after it sent the output that is left.
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

    /// Ends a session: its monitors, locks and waiting transactions go with it.
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
        let message = Message::Notification { method: method.into(), params: vec![Value::from(name)] };
        self.send(id, message, Kind::Plain);
    }

    fn send(&mut self, id: SessionId, message: Message, kind: Kind) {
        let seq = self.durability.seq();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.send(message, kind, seq);
        }
    }
}
