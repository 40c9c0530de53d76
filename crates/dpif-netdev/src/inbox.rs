//! The ways to a forwarding thread: a bounded queue of operations, and requests of the control thread, which are never lost.
//!
//! A thread that ends closes its inbox. Whoever puts something in looks afterwards whether it is closed, and then takes
//! out what is left and answers it: so each batch is answered once, by the thread or by one of those that sent. Sending never
//! waits.

use super::bulk::PortParts;
use super::perf::PerfShown;
use super::plan::QueueId;
use super::plan::load::History;
use super::queues::Rx;
use super::upcall_queues::PortQueues;
use datapath::PmdTuning;
use dpif::PerfLog;
use dpif::{DpifError, DpifOp, FlowRecord, OpBatch, OpResult, PmdStats, PortStats};
use flow::DpPort;
use netdev::{Port, TxQueue};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use sync::{AtomicBool, BoundedQueue, Ordering, ReplyRing};

/// Batches of operations that may wait for a forwarding thread.
const INBOX_BATCHES: usize = 4096;
/// The same of those that go ahead: each handler has a few of them under way.
const AHEAD_BATCHES: usize = 512;

/// What a thread has of a port to send.
pub(crate) struct TxSide {
    pub(crate) tx: Box<dyn TxQueue>,
    pub(crate) upcalls: Arc<PortQueues>,
}

impl TxSide {
    /// Opens a transmit queue of a port for one more thread.
    pub(crate) fn open(device: &Port, upcalls: &Arc<PortQueues>) -> Result<TxSide, DpifError> {
        let tx = device.tx().map_err(|e| DpifError::Device(e.to_string()))?;
        Ok(TxSide { tx, upcalls: upcalls.clone() })
    }
}

/// Receive queues on their way from one thread to another, with flows of their ports.
#[derive(Default)]
pub(crate) struct Handover {
    pub(crate) queues: Vec<Rx>,
    pub(crate) flows: Vec<FlowRecord>,
}

/// What a thread spent its time on.
pub(crate) struct ThreadLoad {
    pub(crate) now_us: u64,
    /// By queue.
    pub(crate) queues: Vec<(QueueId, History)>,
    /// On packets and operations.
    pub(crate) busy: History,
    /// All.
    pub(crate) total: History,
}

/// What a thread leaves behind.
#[derive(Default)]
pub(crate) struct FinalStats {
    /// Counters of its ports.
    pub(crate) ports: Vec<(DpPort, PortStats)>,
    /// Its own.
    pub(crate) stats: PmdStats,
    /// What it had of ports that are still open. Closing it takes long, and is for the one who asked.
    pub(crate) parts: Vec<(DpPort, PortParts)>,
}

/// How a thread is to run.
pub(crate) struct RunAs {
    /// Processors, if they change.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Longest timed sleep under load, in microseconds.
    pub(crate) sleep_max_us: u64,
    /// Whether processors may be kept from deep sleep for it.
    pub(crate) fast_wakeup: bool,
    pub(crate) tuning: PmdTuning,
    /// Histograms and histories of its iterations are kept.
    pub(crate) perf_metrics: bool,
    /// Which iterations are told in the log.
    pub(crate) perf_log: PerfLog,
}

/// Requests of the control thread.
pub(crate) enum Control {
    /// A port to send to.
    PortAdd(DpPort, TxSide, SyncSender<()>),
    /// A port is to go, with its receive queues.
    PortDel(DpPort, SyncSender<PortParts>),
    /// Counters of a port.
    PortStats(DpPort, SyncSender<PortStats>),
    /// Counters of all ports that counted something.
    AllPortStats(SyncSender<Vec<(DpPort, PortStats)>>),
    /// Receive queues are to be given back, when no packet that came by them waits any more.
    Take(Vec<QueueId>, SyncSender<Handover>),
    /// Receive queues to poll.
    Give(Handover, SyncSender<()>),
    /// How the thread is to run.
    Run(RunAs, SyncSender<()>),
    /// Cycles spent.
    Load(SyncSender<ThreadLoad>),
    /// What iterations cost, with the last so many iterations and milliseconds.
    Perf([usize; 2], SyncSender<PerfShown>),
    /// Counters anew.
    Clear(SyncSender<()>),
    /// Operations that must not be lost although the inbox is full.
    Ops(OpBatch),
    /// End. The receive queues have been taken before.
    Stop(SyncSender<FinalStats>),
}

/// The way to a forwarding thread.
pub(crate) struct Inbox {
    /// Operations for packets of ports that ask for little.
    ahead: BoundedQueue<OpBatch>,
    ops: BoundedQueue<OpBatch>,
    requests: ReplyRing<Control>,
    /// Something is in `requests`.
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

    /// Sends a request. To a thread that has ended it is dropped, and with it the way for its answer.
    #[must_use = "batches of operations that a closed inbox gives back have to be answered"]
    pub(crate) fn request(&self, request: Control) -> Vec<OpBatch> {
        self.requests.push(request);
        self.requested.store(true, Ordering::SeqCst);
        self.notify();
        self.leftovers()
    }

    /// Sends operations, or gives them back when the queue is full. If the thread has ended, what is left in the queue, this
    /// batch with it, is given back to be answered.
    pub(crate) fn offer(&self, batch: OpBatch, ahead: bool) -> Result<Vec<OpBatch>, OpBatch> {
        if ahead { &self.ahead } else { &self.ops }.push(batch)?;
        self.notify();
        Ok(self.leftovers())
    }

    /// The batches that a closed inbox still holds; none while it is open.
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

    /// The next batch of those that go ahead.
    pub(crate) fn next_ahead(&self) -> Option<OpBatch> {
        self.ahead.pop()
    }

    /// Whether a request may wait.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// The next request. Cheap when there is none.
    pub(crate) fn next_request(&self) -> Option<Control> {
        if !self.is_requested() {
            return None;
        }
        self.requests.pop().or_else(|| {
            self.requested.store(false, Ordering::SeqCst);
            // It may have come before the flag was taken back.
            let request = self.requests.pop()?;
            self.requested.store(true, Ordering::SeqCst);
            Some(request)
        })
    }

    /// Runs `sleep`, which returns when the waker wakes, unless something has come.
    pub(crate) fn sleep(&self, sleep: impl FnOnce(&sys::Waker)) {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.ahead.is_empty() && self.ops.is_empty() && !self.is_requested() {
            sleep(&self.waker);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Nothing is taken from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// The answers to operations that an inbox had no room for.
pub(crate) fn refused(ops: &[DpifOp]) -> Vec<OpResult> {
    ops.iter().map(|_| OpResult::Failed(DpifError::Full("the inbox of the forwarding thread"))).collect()
}

#[cfg(test)]
mod tests;
