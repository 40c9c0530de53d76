//! One session: its input framer, its monitors, and its output, part of which may wait for the log.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::monitor::Monitor;
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::{Framer, FramerLimits, Message};

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

#[derive(Debug)]
struct Chunk {
    /// May leave once the log is synced up to here.
    seq: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) framer: Framer,
    /// By the text of their id.
    pub(super) monitors: BTreeMap<String, Monitor>,
    /// Why the session must be closed.
    pub(super) closing: Option<String>,
    pub(super) change_aware: bool,
    chunks: VecDeque<Chunk>,
    backlog_bytes: usize,
    backlog_limit_bytes: usize,
}

impl Session {
    pub(super) fn new(limits: FramerLimits, backlog_limit_bytes: usize) -> Self {
        Session {
            framer: Framer::new(limits),
            monitors: BTreeMap::new(),
            closing: None,
            change_aware: false,
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

    pub(super) fn send(&mut self, message: Message, kind: Kind, seq: u64) {
        if self.closing.is_some() {
            return;
        }
        let bytes = message.encode();
        self.backlog_bytes += bytes.len();
        if self.backlog_bytes > self.backlog_limit_bytes {
            self.cut_off(format!(
                "the client does not read: {} bytes wait for it, more than the limit of {}",
                self.backlog_bytes, self.backlog_limit_bytes
            ));
            return;
        }
        self.chunks.push_back(Chunk { seq, kind, bytes });
    }

    /// Bytes of input not yet understood and of output not yet sent.
    pub(super) fn held_bytes(&self) -> usize {
        self.framer.pending_bytes() + self.backlog_bytes
    }

    /// Ends the session and forgets what it holds.
    pub(super) fn cut_off(&mut self, reason: String) {
        self.close(reason);
        self.framer.clear();
        self.chunks = VecDeque::new();
        self.backlog_bytes = 0;
    }

    pub(super) fn has_output(&self, synced: u64) -> bool {
        self.chunks.front().is_some_and(|chunk| chunk.seq <= synced)
    }

    /// Everything that may leave, in order.
    pub(super) fn take_output(&mut self, synced: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while self.has_output(synced) {
            if let Some(chunk) = self.chunks.pop_front() {
                self.backlog_bytes -= chunk.bytes.len();
                out.extend_from_slice(&chunk.bytes);
            }
        }
        out
    }

    /// The log could not be written beyond `synced`: what rests on more never leaves.
    pub(super) fn fail_after(&mut self, synced: u64, reason: &str) {
        let chunks = std::mem::take(&mut self.chunks);
        self.backlog_bytes = 0;
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
                    self.backlog_bytes += chunk.bytes.len();
                    self.chunks.push_back(Chunk { seq: seq.min(synced), kind, bytes: chunk.bytes });
                }
            }
        }
    }
}
