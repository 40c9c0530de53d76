//! One session: its input framer, its monitors, and its output, part of which may wait for the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::monitor::Monitor;
use crate::db::Delta;
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::{Framer, FramerLimits, Message};
use crate::limits::{BUSY_OUTPUT_BYTES, MAX_COMMITS_BEHIND};
use crate::value::Uuid;

/// What becomes of a piece of output if the commits it rests on cannot be written to the log.
#[derive(Debug)]
pub(super) enum Kind {
    /// It says nothing about the database.
    Plain,
    /// A monitor's update: it is left out.
    Update,
    /// The reply to a transaction of this many operations: it becomes an I/O error.
    Transact { id: Value, operations: usize },
    /// Contents that the client now believes: the session ends.
    State,
}

/// A commit of which a session is still to be told. Sessions share what it did.
#[derive(Clone, Debug)]
pub(super) struct Untold {
    pub(super) database: Arc<str>,
    pub(super) delta: Arc<Delta>,
    pub(super) last_txn: Uuid,
    pub(super) seq: u64,
    /// Length of its record.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// May leave once the log is synced up to here.
    seq: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

/// What all sessions together hold, bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) input: Arc<AtomicUsize>,
    pub(super) output: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) framer: Framer,
    /// Whole requests may wait in the framer.
    pub(super) unanswered: bool,
    /// It takes no more output: nothing is made for it, and of what it sent before only transactions are of use.
    pub(super) deaf: bool,
    /// It came by the network.
    pub(super) is_remote: bool,
    held: Held,
    /// Of these, its own.
    input_bytes: usize,
    /// By the text of their id.
    pub(super) monitors: BTreeMap<String, Monitor>,
    /// Why the session must be closed.
    pub(super) closing: Option<String>,
    pub(super) change_aware: bool,
    /// Commits that its monitors are to be told of, oldest first.
    pub(super) untold: VecDeque<Untold>,
    pub(super) untold_bytes: usize,
    chunks: VecDeque<Chunk>,
    backlog_bytes: usize,
    backlog_limit_bytes: usize,
}

impl Session {
    pub(super) fn new(limits: FramerLimits, backlog_limit_bytes: usize, is_remote: bool, held: Held) -> Self {
        Session {
            framer: Framer::new(limits),
            unanswered: false,
            deaf: false,
            is_remote,
            held,
            input_bytes: 0,
            monitors: BTreeMap::new(),
            closing: None,
            change_aware: false,
            untold: VecDeque::new(),
            untold_bytes: 0,
            chunks: VecDeque::new(),
            backlog_bytes: 0,
            backlog_limit_bytes,
        }
    }

    /// Ends the session; the first reason counts.
    pub(super) fn close(&mut self, reason: impl Into<String>) {
        if self.closing.is_none() {
            self.closing = Some(reason.into());
        }
    }

    /// Whether output is made for it.
    pub(super) fn takes_output(&self) -> bool {
        self.closing.is_none() && !self.deaf
    }

    /// How many bytes more it may leave unread.
    pub(super) fn room_bytes(&self) -> usize {
        self.backlog_limit_bytes.saturating_sub(self.backlog_bytes)
    }

    /// Adds a message to the output where its own bound leaves room; else the session ends.
    pub(super) fn send(&mut self, message: Message, kind: Kind, seq: u64) {
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
    pub(super) fn defer(&mut self, untold: Untold) {
        if self.closing.is_some() {
            return;
        }
        self.untold_bytes += untold.bytes;
        if self.untold.len() >= MAX_COMMITS_BEHIND || self.untold_bytes > self.backlog_limit_bytes {
            let (commits, bytes) = (self.untold.len(), self.untold_bytes);
            self.cut_off(format!(
                "the client does not read: {commits} commits of {bytes} bytes wait for it, more than the limit"
            ));
            return;
        }
        self.untold.push_back(untold);
    }

    /// Whether it has to be told of commits, and reads.
    pub(super) fn can_be_told(&self) -> bool {
        !self.untold.is_empty() && self.closing.is_none() && self.backlog_bytes < BUSY_OUTPUT_BYTES
    }

    /// Whether requests of it wait, and it reads the answers to former ones.
    pub(super) fn can_be_answered(&self) -> bool {
        let reads = self.untold.is_empty() && self.backlog_bytes < BUSY_OUTPUT_BYTES;
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

    /// Takes note of what the framer holds now.
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

    /// Ends the session and forgets what it holds.
    pub(super) fn cut_off(&mut self, reason: String) {
        self.close(reason);
        self.framer.clear();
        self.count_input();
        (self.chunks, self.untold, self.untold_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.shrink(self.backlog_bytes);
    }

    /// Makes no more output, and forgets what there is.
    pub(super) fn deafen(&mut self) {
        self.deaf = true;
        self.monitors.clear();
        (self.chunks, self.untold, self.untold_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.shrink(self.backlog_bytes);
    }

    pub(super) fn has_output(&self, synced: u64) -> bool {
        self.chunks.front().is_some_and(|chunk| chunk.seq <= synced)
    }

    /// What may leave, in order, up to `max` bytes.
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
                // The client has the beginning: whatever becomes of the log, the rest follows.
                self.chunks.push_front(Chunk { seq: 0, kind: Kind::Plain, bytes: rest });
            }
        }
        out
    }

    /// The log could not be written beyond `synced`: what rests on more never leaves.
    pub(super) fn fail_after(&mut self, synced: u64, reason: &str) {
        self.untold.retain(|commit| commit.seq <= synced);
        self.untold_bytes = self.untold.iter().map(|commit| commit.bytes).sum();
        let chunks = std::mem::take(&mut self.chunks);
        self.shrink(self.backlog_bytes);
        for chunk in chunks {
            let seq = chunk.seq;
            match chunk.kind {
                Kind::Transact { id, operations } if seq > synced => {
                    let mut results = vec![Value::Null; operations];
                    results.push(OpError::new(ErrorKind::Io, reason).to_json());
                    self.send(Message::Reply { id, result: Value::Array(results) }, Kind::Plain, synced);
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
