//! [`Server`]: the server side of RFC 7047 and of ovsdb-server(7), without I/O.
//!
//! The owner opens a session for each connection, gives it the bytes that arrive, and sends the bytes that
//! [`Server::session_output`] gives. Time comes with each call. Commits leave through [`Server::take_log`]; whatever a
//! client could learn of a commit stays inside until [`Server::log_synced`] covers it. So a client never sees
//! anything that a crash could take back.
//!
//! An update of a monitor always precedes the reply to the transaction that caused it, in the same session.
//! A session that breaks the protocol or does not read is marked closing, with a reason; no other session notices.
//!
//! The bounds of unread output hold for encoded messages, and before one is encoded. While a message is made, its JSON is there as a tree
//! of values beside them: one at a time, at worst all of a database.

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
use crate::limits::{
    MAX_BACKLOG_BYTES, MAX_MONITORS_TOTAL, MAX_PENDING, MAX_REMOTE_SESSIONS, MAX_SESSIONS,
    MAX_TOTAL_INPUT_BYTES, MAX_TOTAL_OUTPUT_BYTES, OUTPUT_PER_TURN_BYTES, REQUESTS_PER_TURN, WAITS_PER_TURN,
};
use crate::schema;
use crate::value::{Uuid, UuidSource};
use durability::Durability;
use locks::Locks;
use session::{Held, Kind, Session};
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
    /// Of the input that all sessions together sent and that is no whole message yet, bytes.
    pub total_input_bytes: usize,
    /// Of the output that all sessions together leave unread, bytes.
    pub total_output_bytes: usize,
    /// Of sessions at once.
    pub sessions: usize,
    /// Of these, of those that come by the network.
    pub remote_sessions: usize,
    /// Of monitors of all sessions, beside those granted to each.
    pub monitors: usize,
    /// Of waiting transactions of all sessions.
    pub waits: usize,
    /// Of output that a turn makes, bytes.
    pub output_per_turn: usize,
    /// Of requests of a session, and of waiting transactions, that one turn answers.
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

/// Where a session comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine.
    Local,
    /// The network.
    Remote,
}

/// How often the bounds of all sessions together were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions ended for the memory that they held.
    pub cut_off: u64,
    /// Monitors refused.
    pub monitors_refused: u64,
    /// Transactions refused that would have had to wait.
    pub waits_refused: u64,
    /// Runs of transactions that waited.
    pub waits_run: u64,
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
    held: Held,
    counters: Counters,
    /// Output that the present turn may still make, bytes.
    turn_left: usize,
    /// The session that was served last.
    served: SessionId,
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
            held: Held::default(),
            counters: Counters::default(),
            turn_left: limits.output_per_turn,
            served: SessionId(0),
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
            session.untold.retain(|commit| *commit.database != *name);
            session.untold_bytes = session.untold.iter().map(|commit| commit.bytes).sum();
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
            self.publish(&Arc::from("_Server"), &commit.delta, None);
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

    /// Opens a session of this machine.
    pub fn session_open(&mut self) -> Result<SessionId, ServerError> {
        self.session_open_from(Origin::Local)
    }

    /// Opens a session. Those of the network leave some for this machine.
    pub fn session_open_from(&mut self, origin: Origin) -> Result<SessionId, ServerError> {
        let is_remote = origin == Origin::Remote;
        let of_network = self.sessions.values().filter(|session| session.is_remote).count();
        if self.sessions.len() >= self.limits.sessions {
            return Err(ServerError::TooManySessions(self.sessions.len()));
        }
        if is_remote && of_network >= self.limits.remote_sessions {
            return Err(ServerError::TooManySessions(of_network));
        }
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let session =
            Session::new(self.limits.message, self.limits.backlog_bytes, is_remote, self.held.clone());
        self.sessions.insert(id, session);
        Ok(id)
    }

    /// Takes what a client sent and does what it asks, as far as a turn goes: while [`Server::has_work`] says so, call
    /// [`Server::work`]. Look at [`Server::session_closing`] afterwards.
    pub fn session_input(&mut self, id: SessionId, bytes: &[u8], now: Time) {
        self.tick(now);
        // The bound is kept before the memory is taken.
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

    /// Whether a client's input is wanted. While not, leave it in the socket: it has requests that wait for their turn, or answers
    /// that it does not read.
    pub fn session_wants_input(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| !session.unanswered)
    }

    /// A client takes no more: its transactions are still carried out, other requests of its are skipped.
    pub fn session_deafen(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.deafen();
        }
    }

    /// Whether whole requests of a client may wait for their turn.
    pub fn session_has_requests(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.unanswered && session.closing.is_none())
    }

    /// Whether all that a client asked for is answered, waiting transactions aside, and has left.
    pub fn session_is_idle(&self, id: SessionId) -> bool {
        !self.session_has_requests(id) && self.sessions.get(&id).is_none_or(|s| s.output_bytes() == 0)
    }

    /// Whether [`Server::work`] has something to do at once.
    pub fn has_work(&self) -> bool {
        self.sessions.values().any(|s| s.can_be_answered() || s.can_be_told())
            || self.pending.iter().any(|p| p.is_due)
    }

    /// Goes on for a turn with requests and waiting transactions that an earlier one left.
    pub fn work(&mut self, now: Time) {
        self.turn_left = self.limits.output_per_turn;
        self.tick(now);
        self.retry(now);
        let able = |(id, s): (&SessionId, &Session)| (s.can_be_answered() || s.can_be_told()).then_some(*id);
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

    /// How often bounds were reached.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Cuts off the sessions that hold most until so many bytes are free.
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

    /// Asks a client for a sign of life. Whatever it sends next is one; when to ask and to give up is the owner's.
    pub fn session_probe(&mut self, id: SessionId) {
        let message = Message::Request { id: Value::from("echo"), method: "echo".into(), params: Vec::new() };
        self.send(id, message, Kind::Plain);
    }

    fn understand(&mut self, id: SessionId, now: Time) {
        for _ in 0..self.limits.per_turn.0 {
            if self.turn_left == 0 {
                return;
            }
            let Some(session) = self.sessions.get_mut(&id).filter(|session| session.can_be_answered()) else {
                return;
            };
            let text = session.framer.next_text();
            session.count_input();
            match text {
                Ok(None) => session.unanswered = false,
                Err(error) => session.close(error.to_string()),
                Ok(Some(json)) => match Message::from_json(json) {
                    Err(error) => session.close(error.to_string()),
                    Ok(message) if session.deaf && !is_transaction(&message) => {}
                    Ok(message) => self.message(id, message, now),
                },
            }
        }
    }

    /// Bytes to send to a client, empty if there are none. Call it only when what it gave before is sent: what stays
    /// inside is what counts against the client.
    pub fn session_output(&mut self, id: SessionId) -> Vec<u8> {
        self.session_output_some(id, usize::MAX)
    }

    /// The same, `max` bytes at most: the rest stays where it is counted.
    pub fn session_output_some(&mut self, id: SessionId, max: usize) -> Vec<u8> {
        let synced = self.durability.synced();
        self.sessions.get_mut(&id).map(|session| session.take_output(synced, max)).unwrap_or_default()
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
        self.send_at(id, message, kind, seq);
    }

    /// Sends what rests on commits up to `seq`. Where the message would pass a bound, sessions are cut off before it is encoded.
    fn send_at(&mut self, id: SessionId, message: Message, kind: Kind, seq: u64) {
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

fn is_transaction(message: &Message) -> bool {
    matches!(message, Message::Request { method, .. } if method == "transact")
}
