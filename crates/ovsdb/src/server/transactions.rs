//! Transactions of sessions: run, published to monitors, or kept until a `wait` holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::session::{Session, Unreported};
use super::{Kind, Server, SessionId, Time};
use crate::db::{Context, Delta, Outcome, transact};
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::RpcMessage;
use crate::limits::MAX_PENDING_PER_SESSION;

/// A transaction that waits.
pub(super) struct Pending {
    pub(super) session: SessionId,
    pub(super) id: Value,
    database: Arc<str>,
    operations: Vec<Value>,
    since_ms: u64,
    timeout_ms: Option<u64>,
    /// A table that it waits for has changed.
    pub(super) is_due: bool,
}

/// Outcome of one run of a transaction.
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

    /// Whether rows of one of its `wait` operations may have changed.
    fn looks_at(&self, database: &str, tables: &BTreeSet<&str>) -> bool {
        let member = |op: &Value, name: &str, is: &dyn Fn(&str) -> bool| {
            op.get(name).and_then(Value::as_str).is_some_and(is)
        };
        let waits = |op: &Value| {
            member(op, "op", &|name| name == "wait") && member(op, "table", &|name| tables.contains(name))
        };
        self.is_for(database) && self.operations.iter().any(waits)
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
        let since_ms = now.mono_ms;
        let txn = Pending { session, id, database, operations, since_ms, timeout_ms: None, is_due: false };
        let Some(waiting) = self.attempt(txn, now) else { return };
        let of_session = self.pending.iter().filter(|p| p.session == session).count();
        if of_session >= MAX_PENDING_PER_SESSION || self.pending.len() >= self.limits.waits {
            self.counters.waits_refused += 1;
            let error = OpError::new(ErrorKind::Resources, "too many transactions wait");
            let message = RpcMessage::Error { id: waiting.id, error: error.to_json() };
            self.send(session, message, Kind::Plain);
            return;
        }
        self.pending.push(waiting);
    }

    /// Runs a transaction and replies, then retries those that waited for its changes. Returns it if it must
    /// wait.
    fn attempt(&mut self, txn: Pending, now: Time) -> Option<Pending> {
        match self.run(txn, now) {
            Ran::Unchanged => None,
            Ran::Changed => {
                self.retry(now);
                None
            }
            Ran::Waits(waiting) => Some(waiting),
        }
    }

    /// Runs a transaction once, and replies unless it must wait.
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
            self.publish(&txn.database, &commit.delta, Some(session));
            self.changed(&txn.database, &commit.delta);
        }
        let kind = Kind::Transact { id: txn.id.clone(), operations: txn.operations.len() };
        self.send(session, RpcMessage::Reply { id: txn.id, result: Value::Array(results) }, kind);
        if changed.is_some() { Ran::Changed } else { Ran::Unchanged }
    }

    /// Marks transactions that wait for a changed table.
    fn changed(&mut self, database: &str, delta: &Delta) {
        let Some(hosted) = self.databases.get(database).filter(|_| !self.pending.is_empty()) else { return };
        let schema = hosted.db.schema();
        let tables: BTreeSet<&str> = delta.changes.keys().map(|(ix, _)| &*schema.tables[ix.0].name).collect();
        for txn in self.pending.iter_mut().filter(|txn| txn.looks_at(database, &tables)) {
            txn.is_due = true;
        }
    }

    /// Retries waiting transactions whose tables changed, up to the limit per turn. Oldest first, each at
    /// most once before the others, whatever they change for each other.
    pub(super) fn retry(&mut self, now: Time) {
        let mut turns = self.limits.per_turn.1;
        let mut at = 0;
        while turns > 0 && self.pending.iter().any(|txn| txn.is_due) {
            if at >= self.pending.len() {
                at = 0;
            }
            if !self.pending[at].is_due {
                at += 1;
                continue;
            }
            turns -= 1;
            self.counters.waits_run += 1;
            let mut txn = self.pending.remove(at);
            txn.is_due = false;
            if let Ran::Waits(waiting) = self.run(txn, now) {
                self.pending.insert(at, waiting);
                at += 1;
            }
        }
    }

    /// Replies to waiting transactions that timed out. Call it at [`Server::next_deadline_ms`].
    pub fn tick(&mut self, now: Time) {
        if self.next_deadline_ms().is_none_or(|deadline| deadline > now.mono_ms) {
            return;
        }
        // A due transaction ends, or gets a later deadline, so the loop terminates.
        let due = |p: &Pending| p.deadline_ms().is_some_and(|deadline| deadline <= now.mono_ms);
        for _ in 0..self.limits.per_turn.1 {
            let Some(at) = self.pending.iter().position(due) else { return };
            let txn = self.pending.remove(at);
            let waiting = self.attempt(txn, now);
            self.pending.extend(waiting);
        }
    }

    /// Time of the next call of [`Server::tick`], on the clock of [`Time::mono_ms`].
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.pending.iter().filter_map(Pending::deadline_ms).min()
    }

    /// A `cancel` notification: ends the transaction without an effect.
    pub(super) fn cancel(&mut self, session: SessionId, id: &Value) {
        if let Some(at) = self.pending.iter().position(|p| p.session == session && p.id == *id) {
            let txn = self.pending.remove(at);
            self.send(session, RpcMessage::Error { id: txn.id, error: Value::from("canceled") }, Kind::Plain);
        }
    }

    /// Reports changes to the log of tables and to the monitors of a database: to those of `author` before any other
    /// output, to others within the turn. Sessions that do not read get them later, and cost no time or memory until then.
    pub(super) fn publish(&mut self, database: &Arc<str>, delta: &Delta, author: Option<SessionId>) {
        self.note_changes(database, delta);
        let watches = |s: &Session| s.monitors.values().any(|monitor| *monitor.database == **database);
        let watching = self.sessions.iter().filter(|(_, session)| watches(session)).map(|(id, _)| *id);
        let watching: Vec<SessionId> = watching.collect();
        let Some(hosted) = self.databases.get(database).filter(|_| !watching.is_empty()) else { return };
        let unreported = Unreported {
            database: database.clone(),
            delta: Arc::new(delta.clone()),
            last_txn: hosted.last_txn,
            seq: self.durability.seq(),
            bytes: self.durability.last_record_bytes(),
        };
        for id in watching {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.defer(unreported.clone());
            }
            self.catch_up(id, author == Some(id));
        }
    }

    /// Reports commits to a session, while it reads and the turn allows, or all of them.
    pub(super) fn catch_up(&mut self, id: SessionId, all: bool) {
        while let Some(session) = self.sessions.get_mut(&id)
            && (all || self.turn_left > 0 && session.can_report())
            && let Some(unreported) = session.unreported.pop_front()
        {
            session.untold_bytes -= unreported.bytes;
            let Some(hosted) = self.databases.get(&unreported.database) else { continue };
            let (schema, monitors) = (hosted.db.schema().clone(), std::mem::take(&mut session.monitors));
            for monitor in monitors.values().filter(|monitor| monitor.database == unreported.database) {
                if let Some(updates) = monitor.update(&schema, &unreported.delta) {
                    let (method, params) = monitor.notification(updates, unreported.last_txn);
                    let message = RpcMessage::Notification { method, params };
                    self.send_at(id, message, Kind::Update, unreported.seq);
                }
            }
            if let Some(session) = self.sessions.get_mut(&id) {
                session.monitors = monitors;
            }
        }
    }
}
