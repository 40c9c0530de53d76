//! [`Cores`]: the main core and the forwarding threads, as destinations of operations.
//!
//! Any thread may send. Operations for an ended thread are not lost: the main core executes their packets, the
//! others fail.

use super::inbox::{self, Control};
use super::main_core::MainCore;
use super::threads::Thread;
use dpif::{DpifError, DpifOp, OpBatch, OpResult, PmdId};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use sync::Snapshot;

/// See the module documentation.
pub(super) struct Cores {
    pub(super) main: MainCore,
    /// The threads that accept operations, in core order.
    threads: Snapshot<Vec<Arc<Thread>>>,
}

impl Cores {
    /// The main core, without threads.
    pub(super) fn new(main: MainCore) -> Cores {
        Cores { main, threads: Snapshot::new(Vec::new()) }
    }

    /// Replaces the threads that accept operations.
    pub(super) fn publish(&self, threads: Vec<Arc<Thread>>) {
        self.threads.store(threads.into());
    }

    /// The main core and the threads that accept operations.
    pub(super) fn ids(&self) -> Vec<PmdId> {
        std::iter::once(PmdId::Main).chain(self.threads.load().iter().map(|t| t.id)).collect()
    }

    /// Sends operations to their core, `ahead` of those waiting if set.
    pub(super) fn send(&self, batch: OpBatch, ahead: bool) {
        probes::sent(&batch.ops);
        if batch.pmd == PmdId::Main {
            return self.main.operate(batch);
        }
        let threads = self.threads.load();
        let Some(thread) = threads.iter().find(|t| t.id == batch.pmd) else {
            return self.without_thread(batch);
        };
        match thread.inbox.offer(batch, ahead) {
            Ok(left) => left.into_iter().for_each(|batch| self.without_thread(batch)),
            Err(batch) if batch.ops.iter().all(|op| matches!(op, DpifOp::FlowPut(_))) => {
                if let Some(reply) = &batch.reply {
                    reply.done(batch.pmd, batch.tag, inbox::refused(&batch.ops));
                }
            }
            // Deletes and dumps are never lost, and an execute carries parked packets.
            Err(batch) => self.request(thread, Control::Ops(batch)),
        }
    }

    /// Sends a request to a thread.
    pub(super) fn request(&self, thread: &Thread, request: Control) {
        thread.inbox.request(request).into_iter().for_each(|batch| self.without_thread(batch));
    }

    /// Sends a request to each of these threads and collects the replies; an ended thread has none.
    pub(super) fn ask<'t, T>(
        &self,
        threads: impl Iterator<Item = &'t Arc<Thread>>,
        request: impl Fn(SyncSender<T>) -> Control,
    ) -> Vec<T> {
        let threads: Vec<_> = threads.collect();
        let (reply, answers) = sync_channel(threads.len());
        threads.iter().for_each(|thread| self.request(thread, request(reply.clone())));
        drop(reply);
        answers.iter().collect()
    }

    /// Handles operations of an ended thread: the main core executes packets, the others fail. Packets parked behind
    /// one of them have left with the thread.
    pub(super) fn without_thread(&self, batch: OpBatch) {
        let mut executes = Vec::new();
        let results = batch.ops.into_iter().map(|op| match op {
            DpifOp::Execute(mut execute) => {
                execute.ticket = None;
                executes.push(DpifOp::Execute(execute));
                OpResult::Done
            }
            _ => OpResult::Failed(DpifError::NO_THREAD),
        });
        let results: Vec<OpResult> = results.collect();
        if !executes.is_empty() {
            self.main.operate(OpBatch { pmd: PmdId::Main, ops: executes, tag: 0, reply: None });
        }
        if let Some(reply) = batch.reply {
            reply.done(batch.pmd, batch.tag, results);
        }
    }
}
