//! The inbox of a forwarding thread: a bounded queue of operations, and requests of the control thread, which are
//! never lost.
//!
//! A thread closes its inbox at its end. A sender checks after each insertion whether the inbox is closed; if so, it
//! takes the remaining items out and replies to them. So each batch gets one reply, by the thread or by one of the
//! senders. Sending never blocks.

use super::bulk::PortParts;
use super::egress::PortEgress;
use super::perf::PerfShown;
use super::plan::QueueId;
use super::plan::load::History;
use super::queues::Rx;
use super::slices::Departure;
use super::upcall_queues::PortQueues;
use datapath::PmdTuning;
use dpif::PerfLog;
use dpif::{DpifError, DpifOp, FlowRecord, OpBatch, OpResult, PmdStats, PortStats};
use flow::DpPort;
use netdev::Lending;
use netdev::{Port, TxQueue};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use sync::{AtomicBool, BoundedQueue, Ordering, ReplyRing};

/// Maximum waiting batches of operations of a forwarding thread.
const INBOX_BATCHES: usize = 4096;
/// Maximum waiting priority batches: each handler has a few in flight.
const AHEAD_BATCHES: usize = 512;

/// A thread's transmit side of a port.
pub(crate) struct TxSide {
    pub(crate) tx: Box<dyn TxQueue>,
    pub(crate) upcalls: Arc<PortQueues>,
    pub(crate) egress: Arc<PortEgress>,
}

impl TxSide {
    /// Opens a transmit queue of a port for another thread.
    pub(crate) fn open(
        device: &Port,
        upcalls: &Arc<PortQueues>,
        egress: &Arc<PortEgress>,
    ) -> Result<TxSide, DpifError> {
        let tx = device.tx().map_err(|e| DpifError::Device(e.to_string()))?;
        Ok(TxSide { tx, upcalls: upcalls.clone(), egress: egress.clone() })
    }
}

/// Receive queues in transit between threads, with flows of their ports.
#[derive(Default)]
pub(crate) struct Handover {
    pub(crate) queues: Vec<Rx>,
    pub(crate) flows: Vec<FlowRecord>,
}

/// A receive queue, as its thread lends it.
pub(crate) type LentRx = (QueueId, io::Result<Lending>);

/// Cycles of a thread.
pub(crate) struct ThreadLoad {
    pub(crate) now_us: u64,
    /// By queue.
    pub(crate) queues: Vec<(QueueId, History)>,
    /// With packets and operations.
    pub(crate) busy: History,
    /// Total.
    pub(crate) total: History,
}

/// Remains of an ended thread.
#[derive(Default)]
pub(crate) struct FinalStats {
    /// Counters of its ports.
    pub(crate) ports: Vec<(DpPort, PortStats)>,
    /// Counters of the thread.
    pub(crate) stats: PmdStats,
    /// Its parts of open ports. Closing them takes long, and is left to the requester.
    pub(crate) parts: Vec<(DpPort, PortParts)>,
}

/// Run-time settings of a thread.
pub(crate) struct RunAs {
    /// Processors, if they change.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Maximum timed sleep under load, in microseconds.
    pub(crate) sleep_max_us: u64,
    /// Whether to keep processors from deep idle states.
    pub(crate) fast_wakeup: bool,
    /// `tx-flush-interval`, in microseconds.
    pub(crate) flush_us: u64,
    pub(crate) tuning: PmdTuning,
    /// Whether to keep histograms and histories of iterations.
    pub(crate) perf_metrics: bool,
    /// Logging of suspicious iterations.
    pub(crate) perf_log: PerfLog,
}

/// Requests of the control thread.
pub(crate) enum Control {
    /// Add a port to send to.
    PortAdd(DpPort, TxSide, SyncSender<()>),
    /// Remove a port and its receive queues; the thread keeps the departure while it has flows from the port.
    PortDel(DpPort, Departure, SyncSender<PortParts>),
    /// Counters of a port.
    PortStats(DpPort, SyncSender<PortStats>),
    /// Nonzero counters of all ports.
    AllPortStats(SyncSender<Vec<(DpPort, PortStats)>>),
    /// Give receive queues back, once no packet received from them waits any more.
    Take(Vec<QueueId>, SyncSender<Handover>),
    /// Add receive queues to poll.
    Give(Handover, SyncSender<()>),
    /// Lend the receive queues to another process.
    Lend(SyncSender<Vec<LentRx>>),
    /// Take the lent receive queues back.
    TakeBack(SyncSender<()>),
    /// Give all receive queues back at once.
    Suspend(SyncSender<Vec<Rx>>),
    /// Change settings.
    Run(RunAs, SyncSender<()>),
    /// Cycles used.
    Load(SyncSender<ThreadLoad>),
    /// Iteration statistics, with this number of last iterations and milliseconds.
    Perf([usize; 2], SyncSender<PerfShown>),
    /// Reset counters.
    Clear(SyncSender<()>),
    /// Operations that must not be lost although the inbox is full.
    Ops(OpBatch),
    /// End. The receive queues have been taken before.
    Stop(SyncSender<FinalStats>),
}

/// Sending side of a forwarding thread's inbox.
pub(crate) struct Inbox {
    /// Priority operations, for ports with few upcalls.
    ahead: BoundedQueue<OpBatch>,
    ops: BoundedQueue<OpBatch>,
    requests: ReplyRing<Control>,
    /// Set if `requests` is not empty.
    requested: AtomicBool,
    sleeping: AtomicBool,
    closed: AtomicBool,
    waker: sys::Waker,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        Ok(Inbox {
            ahead: BoundedQueue::new(AHEAD_BATCHES),
            ops: BoundedQueue::new(INBOX_BATCHES),
            requests: ReplyRing::default(),
            requested: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: sys::Waker::new()?,
        })
    }

    /// Sends a request. For an ended thread, drops it with its reply channel.
    #[must_use = "batches of operations that a closed inbox gives back have to be answered"]
    pub(crate) fn request(&self, request: Control) -> Vec<OpBatch> {
        self.requests.push(request);
        self.requested.store(true, Ordering::SeqCst);
        self.notify();
        self.leftovers()
    }

    /// Sends operations, or returns them if the queue is full. If the thread has ended, returns all batches left in
    /// the queue, including this one, for replies.
    pub(crate) fn offer(&self, batch: OpBatch, ahead: bool) -> Result<Vec<OpBatch>, OpBatch> {
        if ahead { &self.ahead } else { &self.ops }.push(batch)?;
        self.notify();
        Ok(self.leftovers())
    }

    /// The batches left in a closed inbox; none while it is open.
    pub(crate) fn leftovers(&self) -> Vec<OpBatch> {
        let mut left = Vec::new();
        if self.closed.load(Ordering::SeqCst) {
            left.extend(std::iter::from_fn(|| self.next_ops()));
            let requests = std::iter::from_fn(|| self.requests.pop());
            left.extend(
                requests.filter_map(|r| if let Control::Ops(batch) = r { Some(batch) } else { None }),
            );
        }
        left
    }

    /// Wakes the thread if it sleeps.
    fn notify(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    // For the thread itself.

    /// The next batch of operations.
    pub(crate) fn next_ops(&self) -> Option<OpBatch> {
        self.ahead.pop().or_else(|| self.ops.pop())
    }

    /// Number of waiting batches of operations.
    pub(crate) fn ops_waiting(&self) -> usize {
        self.ahead.len() + self.ops.len()
    }

    /// The next priority batch of operations.
    pub(crate) fn next_ahead(&self) -> Option<OpBatch> {
        self.ahead.pop()
    }

    /// Whether a request may be waiting.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// The next request. Cheap without requests.
    pub(crate) fn next_request(&self) -> Option<Control> {
        if !self.is_requested() {
            return None;
        }
        self.requests.pop().or_else(|| {
            self.requested.store(false, Ordering::SeqCst);
            // A request may have arrived before the flag was cleared.
            let request = self.requests.pop()?;
            self.requested.store(true, Ordering::SeqCst);
            Some(request)
        })
    }

    /// Runs `sleep`, which returns when the waker wakes, unless an item has arrived.
    pub(crate) fn sleep(&self, sleep: impl FnOnce(&sys::Waker)) {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.ahead.is_empty() && self.ops.is_empty() && !self.is_requested() {
            sleep(&self.waker);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Accepts no more items.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// Replies to operations beyond the capacity of the inbox.
pub(crate) fn refused(ops: &[DpifOp]) -> Vec<OpResult> {
    ops.iter().map(|_| OpResult::Failed(DpifError::Full("the inbox of the forwarding thread"))).collect()
}

#[cfg(test)]
mod tests;
