//! Interface to the log: commits go out as records, and return as synced or failed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Server;
use crate::db::{Commit, Delta};
use crate::log::commit_record;

/// A commit that the owner must write to the database's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Sequence number of the commit, for [`Server::log_synced`].
    pub seq: u64,
    /// The database it belongs to.
    pub database: Arc<str>,
    /// Bytes to append to the file.
    pub bytes: Vec<u8>,
    /// The client requires durability: do not call [`Server::log_synced`] before an fsync covers it.
    pub durable_required: bool,
}

struct Unsynced {
    seq: u64,
    database: Arc<str>,
    delta: Delta,
}

#[derive(Default)]
pub(super) struct Durability {
    seq: u64,
    synced: u64,
    records: Vec<LogRecord>,
    /// Commits that may be reverted, oldest first.
    unsynced: VecDeque<Unsynced>,
}

impl Durability {
    /// The last commit's place.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Length of the last record not taken yet.
    pub(super) fn last_record_bytes(&self) -> usize {
        self.records.last().map_or(0, |record| record.bytes.len())
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Drops a removed database: its commits can no longer be reverted.
    pub(super) fn forget(&mut self, database: &str) {
        self.unsynced.retain(|commit| *commit.database != *database);
    }
}

impl Server {
    /// Notes a commit of a persistent database for the log.
    pub(super) fn log_commit(&mut self, database: &Arc<str>, commit: &Commit, wall_ms: i64) {
        let Some(hosted) = self.databases.get(database).filter(|hosted| hosted.persistent) else { return };
        let durability = &mut self.durability;
        if let Some(bytes) = commit_record(&hosted.db, &commit.delta, &commit.comment, wall_ms) {
            durability.seq += 1;
            let (seq, database) = (durability.seq, database.clone());
            durability.records.push(LogRecord { seq, database, bytes, durable_required: commit.durable });
        } else if durability.unsynced.is_empty() {
            // Only ephemeral columns changed, and no earlier commit can fail.
            return;
        }
        let (seq, database) = (durability.seq, database.clone());
        durability.unsynced.push_back(Unsynced { seq, database, delta: commit.delta.clone() });
    }

    /// The records to write, in order, since the last call.
    pub fn take_log(&mut self) -> Vec<LogRecord> {
        std::mem::take(&mut self.durability.records)
    }

    /// Sequence number of the last commit with a record; 0 before the first.
    pub fn log_seq(&self) -> u64 {
        self.durability.seq
    }

    /// All records up to this one are in the file: releases output that depends on them.
    pub fn log_synced(&mut self, up_to: u64) {
        let durability = &mut self.durability;
        durability.synced = durability.synced.max(up_to.min(durability.seq));
        while durability.unsynced.front().is_some_and(|commit| commit.seq <= durability.synced) {
            durability.unsynced.pop_front();
        }
    }

    /// A record could not be written. Reverts every unsynced commit, newest first, and sends its client an
    /// `I/O error`. Ends sessions with queued updates of reverted contents. Before this call the owner
    /// truncates the file to the last synced record.
    pub fn log_failed(&mut self, reason: &str) {
        while let Some(commit) = self.durability.unsynced.pop_back() {
            if let Some(hosted) = self.databases.get_mut(&commit.database) {
                hosted.db.revert(&commit.delta);
                hosted.last_txn = self.uuids.next_uuid();
            }
        }
        let synced = self.durability.synced;
        self.durability.records.clear();
        for session in self.sessions.values_mut() {
            session.fail_after(synced, reason);
        }
        self.durability.synced = self.durability.seq;
    }
}
