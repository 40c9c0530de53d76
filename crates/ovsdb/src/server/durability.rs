//! The seam to the log: commits go out as records, and come back as synced or failed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Server;
use crate::db::{Commit, Delta};
use crate::log::commit_record;

/// A commit that the owner must write to the database's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its place in the order of commits, for [`Server::log_synced`].
    pub seq: u64,
    /// The database it belongs to.
    pub database: Arc<str>,
    /// What to append to the file.
    pub bytes: Vec<u8>,
    /// The client asked for durability: do not call [`Server::log_synced`] before an fsync covers it.
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
    /// Commits that may have to be taken back, oldest first.
    unsynced: VecDeque<Unsynced>,
}

impl Durability {
    /// The last commit's place.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Length of the last record that was not taken yet.
    pub(super) fn last_record_bytes(&self) -> usize {
        self.records.last().map_or(0, |record| record.bytes.len())
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// A database is no longer served: its commits can no longer be taken back.
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
            // Only ephemeral columns changed, and nothing before it can fail.
            return;
        }
        let (seq, database) = (durability.seq, database.clone());
        durability.unsynced.push_back(Unsynced { seq, database, delta: commit.delta.clone() });
    }

    /// The records to write, in order, since the last call.
    pub fn take_log(&mut self) -> Vec<LogRecord> {
        std::mem::take(&mut self.durability.records)
    }

    /// The place of the last commit that has a record; 0 before the first.
    pub fn log_seq(&self) -> u64 {
        self.durability.seq
    }

    /// All records up to this one are in the file: what rests on them may leave.
    pub fn log_synced(&mut self, up_to: u64) {
        let durability = &mut self.durability;
        durability.synced = durability.synced.max(up_to.min(durability.seq));
        while durability.unsynced.front().is_some_and(|commit| commit.seq <= durability.synced) {
            durability.unsynced.pop_front();
        }
    }

    /// A record could not be written. Every commit that is not synced is taken back, newest first, and its client gets
    /// an `I/O error`. A session that was about to be told contents that no longer are is ended. The owner has cut the
    /// file back to the last synced record before it calls this.
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
