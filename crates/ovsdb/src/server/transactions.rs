//! Transactions of sessions: run, published to monitors, or kept until a `wait` holds.

use std::sync::Arc;

use serde_json::Value;

use super::{Kind, Server, SessionId, Time};
use crate::db::{Context, Delta, Outcome, transact};
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::Message;
use crate::limits::{MAX_PENDING, MAX_PENDING_PER_SESSION};

/// A transaction that waits.
pub(super) struct Pending {
    pub(super) session: SessionId,
    pub(super) id: Value,
    database: Arc<str>,
    operations: Vec<Value>,
    since_ms: u64,
    timeout_ms: Option<u64>,
}

/// How one run of a transaction ended.
enum Ran {
    /// Answered; the database is as before.
    Unchanged,
    /// Answered; the database changed.
    Changed,
    /// Not answered.
    Waits(Pending),
}

impl Pending {
    pub(super) fn is_for(&self, database: &str) -> bool {
        *self.database == *database
    }

    fn deadline_ms(&self) -> Option<u64> {
        self.timeout_ms.map(|timeout| self.since_ms.saturating_add(timeout))
    }
}

impl Server {
    /// A `transact` request.
    pub(super) fn transact(
        &mut self,
        session: SessionId,
        id: Value,
        database: Arc<str>,
        operations: Vec<Value>,
        now: Time,
    ) {
        let txn = Pending { session, id, database, operations, since_ms: now.mono_ms, timeout_ms: None };
        let Some(waiting) = self.attempt(txn, now) else { return };
        let of_session = self.pending.iter().filter(|p| p.session == session).count();
        if of_session >= MAX_PENDING_PER_SESSION || self.pending.len() >= MAX_PENDING {
            let error = OpError::new(ErrorKind::Resources, "too many transactions wait");
            let message = Message::Error { id: waiting.id, error: error.to_json() };
            self.send(session, message, Kind::Plain);
            return;
        }
        self.pending.push(waiting);
    }

    /// Runs a transaction and answers it, then those that waited for what it did. Gives it back if it must wait.
    fn attempt(&mut self, txn: Pending, now: Time) -> Option<Pending> {
        let database = txn.database.clone();
        match self.run(txn, now) {
            Ran::Unchanged => None,
            Ran::Changed => {
                self.retry(&database, now);
                None
            }
            Ran::Waits(waiting) => Some(waiting),
        }
    }

    /// Runs a transaction once, and answers it unless it must wait.
    fn run(&mut self, mut txn: Pending, now: Time) -> Ran {
        let Some(hosted) = self.databases.get_mut(&txn.database) else { return Ran::Unchanged };
        let (locks, session) = (&self.locks, txn.session);
        let context = Context {
            uuids: &mut *self.uuids,
            owns_lock: &|name| locks.owns(session, name),
            elapsed_ms: now.mono_ms.saturating_sub(txn.since_ms),
            read_only: hosted.read_only,
        };
        let (results, commit) = match transact(&mut hosted.db, &txn.operations, context) {
            Outcome::Done { results, commit } => (results, commit),
            Outcome::Waiting { timeout_ms } => {
                txn.timeout_ms = timeout_ms;
                return Ran::Waits(txn);
            }
        };
        let changed = commit.filter(|commit| !commit.delta.is_empty());
        if let Some(commit) = &changed {
            hosted.last_txn = self.uuids.next_uuid();
            self.log_commit(&txn.database, commit, now.wall_ms);
            self.publish(&txn.database, &commit.delta);
        }
        let kind = Kind::Transact { id: txn.id.clone(), operations: txn.operations.len() };
        self.send(session, Message::Reply { id: txn.id, result: Value::Array(results) }, kind);
        if changed.is_some() { Ran::Changed } else { Ran::Unchanged }
    }

    /// Runs the transactions that wait for a database to change, again as long as one of them changes it.
    fn retry(&mut self, database: &Arc<str>, now: Time) {
        let mut again = true;
        while again {
            again = false;
            for txn in std::mem::take(&mut self.pending) {
                if txn.database != *database {
                    self.pending.push(txn);
                    continue;
                }
                match self.run(txn, now) {
                    Ran::Unchanged => {}
                    Ran::Changed => again = true,
                    Ran::Waits(waiting) => self.pending.push(waiting),
                }
            }
        }
    }

    /// Answers waiting transactions whose time is up. Call it at [`Server::next_deadline_ms`].
    pub fn tick(&mut self, now: Time) {
        if self.next_deadline_ms().is_none_or(|deadline| deadline > now.mono_ms) {
            return;
        }
        // A transaction that is due ends, or waits for something later: the loop ends.
        let due = |p: &Pending| p.deadline_ms().is_some_and(|deadline| deadline <= now.mono_ms);
        while let Some(at) = self.pending.iter().position(due) {
            let txn = self.pending.remove(at);
            let waiting = self.attempt(txn, now);
            self.pending.extend(waiting);
        }
    }

    /// When [`Server::tick`] has something to do next, on the clock of [`Time::mono_ms`].
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.pending.iter().filter_map(Pending::deadline_ms).min()
    }

    /// A `cancel` notification: the transaction ends without an effect.
    pub(super) fn cancel(&mut self, session: SessionId, id: &Value) {
        if let Some(at) = self.pending.iter().position(|p| p.session == session && p.id == *id) {
            let txn = self.pending.remove(at);
            self.send(session, Message::Error { id: txn.id, error: Value::from("canceled") }, Kind::Plain);
        }
    }

    /// Tells the monitors of a database what changed.
    pub(super) fn publish(&mut self, database: &str, delta: &Delta) {
        let seq = self.durability.seq();
        let Some(hosted) = self.databases.get(database) else { return };
        for session in self.sessions.values_mut() {
            let watching = session.monitors.values().filter(|monitor| *monitor.database == *database);
            let messages: Vec<Message> = watching
                .filter_map(|monitor| {
                    let updates = monitor.update(hosted.db.schema(), delta)?;
                    let (method, params) = monitor.notification(updates, hosted.last_txn);
                    Some(Message::Notification { method, params })
                })
                .collect();
            for message in messages {
                session.send(message, Kind::Update, seq);
            }
        }
    }
}
