//! One session: its input framer, its monitors, and its output, part of which may wait for the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::Origin;
use super::monitor::Monitor;
use crate::db::Delta;
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::{Framer, FramerLimits, RpcMessage};
use crate::limits::{BUSY_OUTPUT_BYTES, MAX_COMMITS_BEHIND};
use crate::value::Uuid;

/// Treatment of a piece of output if the commits it depends on fail to reach the log.
#[derive(Debug)]
pub(super) enum Kind {
    /// It does not depend on the database.
    Plain,
    /// A monitor's update: it is left out.
    Update,
    /// The reply to a transaction with that many operations: becomes an I/O error.
    Transact { id: Value, operations: usize },
    /// Contents that the client now believes: the session ends.
    State,
}

/// A commit not yet reported to a session. Sessions share its changes.
#[derive(Clone, Debug)]
pub(super) struct Unreported {
    pub(super) database: Arc<str>,
    pub(super) delta: Arc<Delta>,
    pub(super) last_txn: Uuid,
    pub(super) seq: u64,
    /// Length of its record.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Releasable once the log is synced up to here.
    seq: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

/// Memory held by all sessions, bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionMemory {
    pub(super) input: Arc<AtomicUsize>,
    pub(super) output: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) framer: Framer,
    /// Whole requests may wait in the framer.
    pub(super) unanswered: bool,
    /// It accepts no more output: no output is generated, and of its pending input only transactions run.
    pub(super) output_stopped: bool,
    /// Where its client is.
    pub(super) origin: Origin,
    held: SessionMemory,
    /// Bytes of its input, a part of `held`.
    input_bytes: usize,
    /// By the text of their id.
    pub(super) monitors: BTreeMap<String, Monitor>,
    /// Reason to close the session.
    pub(super) closing: Option<String>,
    pub(super) change_aware: bool,
    /// Commits not yet reported to its monitors, oldest first.
    pub(super) unreported: VecDeque<Unreported>,
    pub(super) untold_bytes: usize,
    chunks: VecDeque<Chunk>,
    backlog_bytes: usize,
    backlog_limit_bytes: usize,
}

impl Session {
    pub(super) fn new(
        limits: FramerLimits,
        backlog_limit_bytes: usize,
        origin: Origin,
        held: SessionMemory,
    ) -> Self {
        Session {
            framer: Framer::new(limits),
            unanswered: false,
            output_stopped: false,
            origin,
            held,
            input_bytes: 0,
            monitors: BTreeMap::new(),
            closing: None,
            change_aware: false,
            unreported: VecDeque::new(),
            untold_bytes: 0,
            chunks: VecDeque::new(),
            backlog_bytes: 0,
            backlog_limit_bytes,
        }
    }

    /// Ends the session; the first reason wins.
    pub(super) fn close(&mut self, reason: impl Into<String>) {
        if self.closing.is_none() {
            self.closing = Some(reason.into());
        }
    }

    /// Whether it accepts output.
    pub(super) fn takes_output(&self) -> bool {
        self.closing.is_none() && !self.output_stopped
    }

    /// Remaining bytes of unread output.
    pub(super) fn room_bytes(&self) -> usize {
        self.backlog_limit_bytes.saturating_sub(self.backlog_bytes)
    }

    /// Appends a message to the output within its own bound; otherwise ends the session.
    pub(super) fn send(&mut self, message: RpcMessage, kind: Kind, seq: u64) {
        if !self.takes_output() {
            return;
        }
        match message.encode_within(self.room_bytes()) {
            Ok(bytes) => self.push(bytes, kind, seq),
            Err(long) => self.passes_bound(long.bytes),
        }
    }

    /// A message of this length does not fit: the session ends.
    pub(super) fn passes_bound(&mut self, bytes: usize) {
        self.cut_off(format!(
            "the client does not read: {} bytes wait for it, more than the limit of {}",
            self.backlog_bytes.saturating_add(bytes),
            self.backlog_limit_bytes
        ));
    }

    /// Adds an encoded message to the output.
    pub(super) fn push(&mut self, bytes: Vec<u8>, kind: Kind, seq: u64) {
        self.grow(bytes.len());
        self.chunks.push_back(Chunk { seq, kind, bytes });
    }

    /// Leaves a commit for later, when the client reads.
    pub(super) fn defer(&mut self, unreported: Unreported) {
        if self.closing.is_some() {
            return;
        }
        self.untold_bytes += unreported.bytes;
        if self.unreported.len() >= MAX_COMMITS_BEHIND || self.untold_bytes > self.backlog_limit_bytes {
            let (commits, bytes) = (self.unreported.len(), self.untold_bytes);
            self.cut_off(format!(
                "the client does not read: {commits} commits of {bytes} bytes wait for it, more than the limit"
            ));
            return;
        }
        self.unreported.push_back(unreported);
    }

    /// Whether it has commits to be reported, and reads.
    pub(super) fn can_report(&self) -> bool {
        !self.unreported.is_empty() && self.closing.is_none() && self.backlog_bytes < BUSY_OUTPUT_BYTES
    }

    /// Whether it has pending requests, and reads replies.
    pub(super) fn can_reply(&self) -> bool {
        let reads = self.unreported.is_empty() && self.backlog_bytes < BUSY_OUTPUT_BYTES;
        self.unanswered && self.closing.is_none() && reads
    }

    /// Bytes of input that are not yet understood.
    pub(super) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Bytes of output that are not yet sent.
    pub(super) fn output_bytes(&self) -> usize {
        self.backlog_bytes
    }

    /// Updates the account of the framer's memory.
    pub(super) fn count_input(&mut self) {
        let now = self.framer.held_bytes();
        self.held.input.fetch_add(now, Ordering::Relaxed);
        self.held.input.fetch_sub(std::mem::replace(&mut self.input_bytes, now), Ordering::Relaxed);
    }

    fn grow(&mut self, bytes: usize) {
        self.backlog_bytes += bytes;
        self.held.output.fetch_add(bytes, Ordering::Relaxed);
    }

    fn shrink(&mut self, bytes: usize) {
        self.backlog_bytes -= bytes;
        self.held.output.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Ends the session and discards its buffers.
    pub(super) fn cut_off(&mut self, reason: String) {
        self.close(reason);
        self.framer.clear();
        self.count_input();
        (self.chunks, self.unreported, self.untold_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.shrink(self.backlog_bytes);
    }

    /// Stops output, and discards the queued one.
    pub(super) fn transact_only(&mut self) {
        self.output_stopped = true;
        self.monitors.clear();
        (self.chunks, self.unreported, self.untold_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.shrink(self.backlog_bytes);
    }

    pub(super) fn has_output(&self, synced: u64) -> bool {
        self.chunks.front().is_some_and(|chunk| chunk.seq <= synced)
    }

    /// Releasable output, in order, up to `max` bytes.
    pub(super) fn take_output(&mut self, synced: u64, max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < max
            && self.has_output(synced)
            && let Some(mut chunk) = self.chunks.pop_front()
        {
            let rest = chunk.bytes.split_off(chunk.bytes.len().min(max - out.len()));
            self.shrink(chunk.bytes.len());
            out.append(&mut chunk.bytes);
            if !rest.is_empty() {
                // The client has the beginning: the rest must follow, even if the log fails.
                self.chunks.push_front(Chunk { seq: 0, kind: Kind::Plain, bytes: rest });
            }
        }
        out
    }

    /// The log failed beyond `synced`: discards all output that depends on later commits.
    pub(super) fn fail_after(&mut self, synced: u64, reason: &str) {
        self.unreported.retain(|commit| commit.seq <= synced);
        self.untold_bytes = self.unreported.iter().map(|commit| commit.bytes).sum();
        let chunks = std::mem::take(&mut self.chunks);
        self.shrink(self.backlog_bytes);
        for chunk in chunks {
            let seq = chunk.seq;
            match chunk.kind {
                Kind::Transact { id, operations } if seq > synced => {
                    let mut results = vec![Value::Null; operations];
                    results.push(OpError::new(ErrorKind::Io, reason).to_json());
                    self.send(RpcMessage::Reply { id, result: Value::Array(results) }, Kind::Plain, synced);
                }
                Kind::Update if seq > synced => {}
                Kind::State if seq > synced => {
                    self.close(format!("the database could not be written: {reason}"))
                }
                kind => {
                    self.grow(chunk.bytes.len());
                    self.chunks.push_back(Chunk { seq: seq.min(synced), kind, bytes: chunk.bytes });
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.held.input.fetch_sub(self.input_bytes, Ordering::Relaxed);
        self.held.output.fetch_sub(self.backlog_bytes, Ordering::Relaxed);
    }
}
