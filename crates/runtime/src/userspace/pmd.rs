//! A forwarding thread: polls its receive queues, runs bursts through its core, carries operations out.
//!
//! It shares nothing on the packet path: operations come by a bounded inbox, upcalls leave by bounded queues. With
//! nothing to do it spins for [`SPIN_US`], then sleeps in poll(2) on its queues and its waker.

use super::hub::PortQueues;
use datapath::{Pmd, PmdIo, TxReport};
use dpif::{
    DpifError, DpifOp, DropReason, FlowRecord, OpBatch, OpResult, PmdId, PortStats, Upcall, UpcallSink,
};
use flow::DpPort;
use netdev::{RxQueue, TxDrop, TxQueue};
use packet::{BATCH_MAX_PACKETS, PacketBatch, PacketPool};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;
use sync::{AtomicBool, BoundedQueue, Ordering, ReplyRing};

/// How long an idle thread spins before it sleeps.
const SPIN_US: u64 = 50;
/// Bursts between two looks at queues that had nothing.
const BURSTS_PER_POLL: u32 = 16;
/// Longest sleep, so that upkeep gets its turn.
const SLEEP_MAX_MS: u64 = 500;
/// A queue that fails so often in a row is not polled until its port is made anew.
const ERRORS_MAX: u32 = 3;

/// What a thread has of a port to send.
pub(crate) struct TxSide {
    pub(crate) tx: Box<dyn TxQueue>,
    pub(crate) upcalls: Arc<PortQueues>,
}

/// Flows that ended with their port, with their last statistics, for the slow path.
pub(crate) type Purged = ReplyRing<(PmdId, FlowRecord)>;

/// Requests of the control thread.
pub(crate) enum Control {
    /// A port, with the receive queues that this thread is to poll.
    PortAdd(DpPort, TxSide, Vec<Box<dyn RxQueue>>, SyncSender<()>),
    /// A port is to go.
    PortDel(DpPort, SyncSender<()>),
    /// Counters of a port.
    PortStats(DpPort, SyncSender<PortStats>),
    /// Operations that must not be lost although the inbox is full.
    Ops(OpBatch),
    /// End.
    Stop,
}

/// The way to a forwarding thread.
pub(crate) struct Inbox {
    pub(crate) ops: BoundedQueue<OpBatch>,
    pub(crate) sleeping: AtomicBool,
    pub(crate) waker: sys::Waker,
    /// Something is in the control channel.
    pub(crate) control: AtomicBool,
}

impl Inbox {
    /// Wakes the thread if it sleeps.
    pub(crate) fn notify(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Where upcalls go.
enum Upcalls {
    /// To the handlers, by the queue of the port that received the packet, or this one when none did.
    Queued(Arc<PortQueues>),
    /// To whoever runs the core, for [`ThreadIo::take_upcalls`].
    Inline(Vec<Upcall>),
}

/// Ports of a thread, as its core sees them.
pub(crate) struct ThreadIo {
    ports: BTreeMap<DpPort, TxSide>,
    upcalls: Upcalls,
}

impl ThreadIo {
    /// Upcalls go to the handlers; those of packets that no port received by `portless`.
    pub(crate) fn new(portless: Arc<PortQueues>) -> ThreadIo {
        ThreadIo { ports: BTreeMap::new(), upcalls: Upcalls::Queued(portless) }
    }

    /// Upcalls wait for [`ThreadIo::take_upcalls`].
    pub(crate) fn inline() -> ThreadIo {
        ThreadIo { ports: BTreeMap::new(), upcalls: Upcalls::Inline(Vec::new()) }
    }

    /// The upcalls since the last call, when they are not queued for handlers.
    pub(crate) fn take_upcalls(&mut self) -> Vec<Upcall> {
        match &mut self.upcalls {
            Upcalls::Queued(_) => Vec::new(),
            Upcalls::Inline(waiting) => std::mem::take(waiting),
        }
    }

    pub(crate) fn add(&mut self, port: DpPort, side: TxSide) {
        self.ports.insert(port, side);
    }

    pub(crate) fn remove(&mut self, port: DpPort) {
        self.ports.remove(&port);
    }
}

impl UpcallSink for ThreadIo {
    fn upcall(&mut self, upcall: Upcall) -> Result<(), Box<Upcall>> {
        match (&mut self.upcalls, self.ports.get(&upcall.rx_port)) {
            (Upcalls::Inline(waiting), _) => {
                waiting.push(upcall);
                Ok(())
            }
            (Upcalls::Queued(_), Some(side)) => side.upcalls.push(upcall),
            (Upcalls::Queued(portless), None) => portless.push(upcall),
        }
    }
}

impl PmdIo for ThreadIo {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        let Some(side) = self.ports.get_mut(&port) else {
            report.dropped[DropReason::NoPort as usize] = batch.len() as u64;
            batch.free_into(pool);
            return report;
        };
        let queued = batch.len() as u64;
        let sent = side.tx.send(batch, pool);
        // Packets that software cut into several count once here: the core accounts for what it handed over.
        for why in TxDrop::ALL {
            let reason = match why {
                TxDrop::PortDown => DropReason::TxDown,
                TxDrop::TooLarge => DropReason::TxTooBig,
                _ => DropReason::TxFailed,
            };
            report.dropped[reason as usize] += sent.dropped(why).min(queued);
        }
        let dropped: u64 = report.dropped.iter().sum();
        report.sent_packets = queued.saturating_sub(dropped);
        report.sent_bytes = sent.sent_bytes;
        report
    }
}

/// A receive queue and what is known of it.
pub(crate) struct Rx {
    pub(crate) port: DpPort,
    queue: Box<dyn RxQueue>,
    ready: bool,
    errors: u32,
}

impl Rx {
    pub(crate) fn new(port: DpPort, queue: Box<dyn RxQueue>) -> Rx {
        Rx { port, queue, ready: true, errors: 0 }
    }

    /// Takes up to `max_packets` waiting frames.
    pub(crate) fn receive(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, max_packets: usize) {
        match self.queue.recv(pool, batch, max_packets) {
            Ok(n) => {
                self.ready = n == max_packets;
                self.errors = 0;
            }
            Err(_) => {
                self.ready = false;
                self.errors += 1;
            }
        }
    }

    /// Adds the frames that the queue lost.
    pub(crate) fn add_losses(&self, stats: &mut PortStats) {
        let lost = self.queue.counters();
        stats.rx_dropped += lost.kernel_drops;
        stats.rx_errors += lost.malformed + lost.truncated;
    }
}

/// A forwarding thread's own state.
pub(crate) struct PmdThread {
    pub(crate) core: Pmd,
    pub(crate) io: ThreadIo,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) control: Receiver<Control>,
    purged: Arc<Purged>,
    rx: Vec<Rx>,
    batch: PacketBatch,
    last_work_us: u64,
    next_tick_us: u64,
}

impl PmdThread {
    pub(crate) fn new(
        core: Pmd,
        io: ThreadIo,
        inbox: Arc<Inbox>,
        control: Receiver<Control>,
        purged: Arc<Purged>,
    ) -> PmdThread {
        PmdThread {
            core,
            io,
            inbox,
            control,
            purged,
            rx: Vec::new(),
            batch: PacketBatch::new(),
            last_work_us: 0,
            next_tick_us: 0,
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        let mut bursts = 0;
        loop {
            let mut worked = self.poll_ready();
            bursts += 1;
            worked |= self.carry_out_ops();
            if self.inbox.control.swap(false, Ordering::AcqRel) && !self.obey() {
                return;
            }
            let now_us = sys::clock::machine_us();
            if now_us >= self.next_tick_us {
                self.core.tick(sys::clock::monotonic_us());
                self.core.flush_output(&mut self.io);
                self.next_tick_us = now_us + 1_000_000;
            }
            if worked {
                self.last_work_us = now_us;
            }
            if !worked && now_us.saturating_sub(self.last_work_us) >= SPIN_US {
                self.sleep();
                bursts = 0;
            } else if bursts >= BURSTS_PER_POLL || !worked {
                self.look(Some(Duration::ZERO), false);
                bursts = 0;
            }
        }
    }

    /// One burst from every queue that has something.
    fn poll_ready(&mut self) -> bool {
        let mut worked = false;
        for rx in self.rx.iter_mut().filter(|rx| rx.ready) {
            rx.receive(self.core.pool(), &mut self.batch, BATCH_MAX_PACKETS);
            if !self.batch.is_empty() {
                worked = true;
                let now_us = sys::clock::monotonic_us();
                self.core.process_batch(rx.port, &mut self.batch, now_us, &mut self.io);
                self.core.flush_output(&mut self.io);
            }
        }
        worked
    }

    fn carry_out_ops(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..16 {
            let Some(batch) = self.inbox.ops.pop() else { break };
            self.apply(batch);
            worked = true;
        }
        worked
    }

    fn apply(&mut self, batch: OpBatch) {
        let now_us = sys::clock::monotonic_us();
        let results = self.core.apply(batch.ops, now_us, &mut self.io);
        self.core.flush_output(&mut self.io);
        if let Some(reply) = batch.reply {
            reply.done(batch.pmd, batch.tag, results);
        }
    }

    /// Carries out requests of the control thread; `false` to end.
    fn obey(&mut self) -> bool {
        while let Ok(request) = self.control.try_recv() {
            match request {
                Control::PortAdd(port, side, queues, done) => {
                    // The number was checked when it was given out.
                    let _ = self.core.port_add(port);
                    self.io.add(port, side);
                    self.rx.extend(queues.into_iter().map(|queue| Rx::new(port, queue)));
                    let _ = done.send(());
                }
                Control::PortDel(port, done) => {
                    self.rx.retain(|rx| rx.port != port);
                    while self.carry_out_ops() {}
                    for flow in self.core.port_remove(port, &mut self.io) {
                        self.purged.push((self.core.id(), flow));
                    }
                    self.core.flush_output(&mut self.io);
                    self.io.remove(port);
                    let _ = done.send(());
                }
                Control::PortStats(port, reply) => {
                    let mut stats = self.core.port_counters(port).copied().unwrap_or_default();
                    self.rx.iter().filter(|rx| rx.port == port).for_each(|rx| rx.add_losses(&mut stats));
                    let _ = reply.send(stats);
                }
                Control::Ops(batch) => self.apply(batch),
                Control::Stop => return false,
            }
        }
        true
    }

    fn sleep(&mut self) {
        self.inbox.sleeping.store(true, Ordering::SeqCst);
        let pending = !self.inbox.ops.is_empty() || self.inbox.control.load(Ordering::SeqCst);
        if !pending {
            self.look(Some(Duration::from_millis(SLEEP_MAX_MS)), true);
        }
        self.inbox.sleeping.store(false, Ordering::SeqCst);
    }

    /// Asks the kernel which queues have something.
    fn look(&mut self, timeout: Option<Duration>, with_waker: bool) {
        let mut set = sys::poll::PollSet::new();
        let mut places = Vec::with_capacity(self.rx.len());
        for (i, rx) in self.rx.iter().enumerate().filter(|(_, rx)| rx.errors < ERRORS_MAX) {
            places.push((i, set.add(rx.queue.fd(), false)));
        }
        let waker = with_waker.then(|| set.add(self.inbox.waker.fd(), false));
        if set.wait(timeout).is_err() {
            return;
        }
        let ready: Vec<usize> =
            places.iter().filter(|(_, p)| set.ready(*p).readable).map(|(i, _)| *i).collect();
        let woken = waker.is_some_and(|p| set.ready(p).readable);
        drop(set);
        for i in ready {
            self.rx[i].ready = true;
        }
        if woken {
            self.inbox.waker.drain();
        }
    }
}

/// The answers to operations that an inbox had no room for.
pub(crate) fn refused(ops: &[DpifOp]) -> Vec<OpResult> {
    ops.iter().map(|_| OpResult::Failed(DpifError::Full("the inbox of the forwarding thread"))).collect()
}
