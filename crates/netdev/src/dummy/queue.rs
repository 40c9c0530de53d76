//! The queues of a dummy port.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use packet::{BURST_MAX_PACKETS, Packet, PacketBatch, PacketPool};

use super::{Dummy, MAX_QUEUED, QueueStats, lock};
use crate::eventfd::EventFd;
use crate::finish_offloads::finish_offloads;
use crate::lending::Lending;
use crate::port::{RxCounters, RxQueue, TxQueue, TxReport};

/// A receive queue. Its descriptor changes under the lock, so it is always accurate.
pub(super) struct Queue {
    ready: EventFd,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Packet>,
    received: QueueStats,
    dropped: u64,
}

impl Queue {
    pub(super) fn new() -> io::Result<Queue> {
        Ok(Queue { ready: EventFd::new()?, inner: Mutex::default() })
    }

    /// Appends a copy of a frame with a mark. `false`: it is full, counted.
    pub(super) fn push(&self, frame: &[u8], mark: u32) -> bool {
        let mut inner = lock(&self.inner);
        if inner.waiting.len() >= MAX_QUEUED {
            inner.dropped += 1;
            return false;
        }
        let mut packet = Packet::from_slice(frame);
        packet.set_mark(mark);
        inner.waiting.push_back(packet);
        if inner.waiting.len() == 1 {
            self.ready.raise();
        }
        true
    }

    pub(super) fn room(&self) -> usize {
        MAX_QUEUED - lock(&self.inner).waiting.len()
    }

    /// Received and dropped frames.
    pub(super) fn stats(&self) -> (QueueStats, u64) {
        let inner = lock(&self.inner);
        (inner.received, inner.dropped)
    }

    fn take(&self, batch: &mut PacketBatch, max_packets: usize) -> usize {
        let mut inner = lock(&self.inner);
        let count = inner.waiting.len().min(max_packets);
        if count == 0 {
            return 0;
        }
        for _ in 0..count {
            let Some(p) = inner.waiting.pop_front() else { break };
            inner.received.packets += 1;
            inner.received.bytes += p.len() as u64;
            batch.push(p);
        }
        if inner.waiting.is_empty() {
            self.ready.lower();
        }
        count
    }
}

/// The port's side of a receive queue.
pub(super) struct Rx {
    dummy: Dummy,
    qid: usize,
}

impl Rx {
    pub(super) fn new(dummy: Dummy, qid: usize) -> Rx {
        Rx { dummy, qid }
    }

    fn queue(&self) -> &Queue {
        &self.dummy.0.queues[self.qid]
    }
}

impl RxQueue for Rx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.queue().ready.as_fd()
    }

    fn recv(
        &mut self,
        _pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        Ok(self.queue().take(batch, max_packets.min(BURST_MAX_PACKETS)))
    }

    fn counters(&self) -> RxCounters {
        RxCounters { kernel_drops: self.queue().stats().1, ..RxCounters::default() }
    }

    fn lend(&mut self) -> io::Result<Lending> {
        Ok(Lending::Anew)
    }
}

/// A transmit queue.
pub(super) struct Tx {
    dummy: Dummy,
}

impl Tx {
    pub(super) fn new(dummy: Dummy) -> Tx {
        Tx { dummy }
    }
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        finish_offloads(batch, pool, &mut report);
        for p in batch.packets() {
            let (result, tap) = {
                let mut state = self.dummy.state();
                (state.send(p.data()), state.tap.clone())
            };
            // Without the lock: the tap may use the dummy.
            match result {
                Ok(answer) => {
                    report.count_sent(p.len());
                    if let Some(tap) = tap {
                        tap(p.data());
                    }
                    if let Some(answer) = answer {
                        self.dummy.0.queues[0].push(&answer, self.dummy.mark_of(&answer));
                    }
                }
                Err(why) => report.count_drops(why, 1),
            }
        }
        self.dummy.state().count_dropped(report.dropped_packets());
        batch.free_into(pool);
        report
    }
}
