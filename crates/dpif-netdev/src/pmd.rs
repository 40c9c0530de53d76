//! A forwarding thread: polls its receive queues, processes bursts with its core, executes operations.
//!
//! It shares nothing on the packet path: operations arrive through a bounded inbox, upcalls leave through bounded
//! queues. When idle it spins for [`SPIN_US`], then sleeps in poll(2) on its queues and its waker, and wakes at
//! once.
//!
//! `pmd-sleep-max` is separate: timed sleeps between small bursts ([`Naps`]).
//!
//! Requests of the control thread concern ports, receive queues added and removed ([`Handovers`]), and the thread's
//! end. All work beside bursts is done in slices, so that packets wait for none that grows with flows or ports
//! ([`Slices`]).

use super::ablation::Ablation;
use super::apply::apply;
use super::bulk::{PortParts, parts_of};
use super::cycles::Cycles;
use super::drops;
use super::handover::{HANDOVER_US, Handovers};
use super::held::HeldOutput;
use super::inbox::{Control, FinalStats, Handover, Inbox, ThreadLoad};
use super::naps::Naps;
use super::offload::CoreOffload;
use super::perf::{Now, Perf};
use super::plan::QueueId;
use super::queues::{Rx, RxSet, counted};
use super::samples;
use super::slices::{PortRemoval, Slices};
use super::upcall_queues::PortQueues;
use super::wakeups::Wakeups;
use datapath::Pmd;
use dpif::{DpifError, DpifOp, FlowRecord, OpBatch, OpResult, PmdId};
use packet::PacketBatch;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use sync::ReplyRing;

pub(crate) use super::inbox::TxSide;
pub(crate) use super::io::ThreadIo;

/// Spin time of an idle thread before it sleeps.
const SPIN_US: u64 = 50;
/// The same while a miss waits for a handler. A handler on another processor has taken it by then; one on this
/// processor can only run while this thread sleeps, and a longer spin delayed first packets.
const SPIN_UNTAKEN_US: u64 = 8;
/// Maximum time that busy queues may keep a thread from checking idle ones.
const LOOK_US: u64 = 50;
/// Operations executed before packets have their turn.
const OPS_AT_A_TIME: usize = 256;
/// Maximum sleep, so that upkeep gets its turn.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// The same while queues are to be given back.
const SLEEP_MAX_LEAVING: Duration = Duration::from_millis(1);
/// Shortest time for which a thread with output that waits sleeps: it wakes a little late.
const SLEEP_MIN_HOLDING: Duration = Duration::from_micros(100);

/// Flows that ended with their port or thread, with their last statistics, for the slow path.
pub(crate) type Purged = ReplyRing<(PmdId, FlowRecord)>;

/// A forwarding thread's own state.
pub(crate) struct PmdThread {
    core: Pmd,
    io: ThreadIo,
    inbox: Arc<Inbox>,
    offload: CoreOffload,
    rx: RxSet,
    leaving: Handovers,
    slices: Slices,
    batch: PacketBatch,
    held: HeldOutput,
    /// Output that waited was sent in this iteration.
    has_sent: bool,
    /// The first queue to poll, after an interruption by a request.
    first_queue: usize,
    /// Maximum packets received at a time.
    burst_packets: usize,
    /// Time of the last burst.
    now_us: u64,
    last_work_us: u64,
    next_tick_us: u64,
    cycles: Cycles,
    perf: Perf,
    wakeups: Wakeups,
    naps: Naps,
}

impl PmdThread {
    pub(crate) fn new(
        core: Pmd,
        portless: Arc<PortQueues>,
        inbox: Arc<Inbox>,
        offload: CoreOffload,
        ablation: &Ablation,
    ) -> PmdThread {
        let now_us = sys::clock::machine_us();
        let cycles = Cycles::new(now_us);
        PmdThread {
            core,
            io: ThreadIo::new(portless),
            inbox,
            offload,
            rx: RxSet::default(),
            leaving: Handovers::default(),
            slices: Slices::default(),
            batch: PacketBatch::new(),
            held: HeldOutput::new(ablation.hold_us()),
            has_sent: false,
            first_queue: 0,
            burst_packets: ablation.burst_packets(),
            now_us,
            last_work_us: 0,
            next_tick_us: 0,
            perf: Perf::new(Now { us: now_us, cycles: cycles.charged() }),
            cycles,
            wakeups: Wakeups::default(),
            naps: Naps::default(),
        }
    }

    /// Runs until requested to end.
    pub(crate) fn run(mut self) {
        // A panicking thread must not block the control thread's wait for its replies.
        let _closing = CloseAtEnd(self.inbox.clone());
        let mut slept = false;
        let mut looked_us = 0;
        loop {
            let burst = self.poll_ready();
            if std::mem::take(&mut slept) && burst {
                self.wakeups.note();
            }
            let worked = burst | self.carry_out_ops();
            if let Some(final_stats) = self.handle_control() {
                return self.end(&final_stats);
            }
            // After the requests: the thread does not sleep on one that waits here.
            let worked = worked | self.carry_out_slices();
            let worked = worked | self.give_back();
            // Accurate enough: the time of the last burst, if any.
            let now_us = if burst { self.now_us } else { sys::clock::machine_us() };
            if now_us >= self.next_tick_us {
                self.send_held();
                self.core.tick(sys::clock::monotonic_us_at(now_us));
                self.core.flush_output(&mut self.io);
                drops::report(&mut self.core);
                samples::report(&mut self.core);
                self.remember(now_us);
                self.rx.settle(now_us);
                self.next_tick_us = now_us + 1_000_000;
            }
            self.wakeups.review(now_us);
            self.rx.review(now_us);
            self.cycles.charge(worked);
            if worked {
                self.last_work_us = now_us;
            }
            let asleep_cycles;
            let spin_us = if self.io.misses_wait() { SPIN_UNTAKEN_US } else { SPIN_US };
            let left = self.held.left(now_us);
            let may_sleep = left.is_none_or(|left| left >= SLEEP_MIN_HOLDING);
            if !worked && may_sleep && now_us.saturating_sub(self.last_work_us) >= spin_us {
                let leaving = !self.leaving.is_empty();
                let limit = if leaving { SLEEP_MAX_LEAVING } else { self.wakeups.sleep_max(SLEEP_MAX) };
                self.sleep(left.map_or(limit, |left| left.min(limit)));
                asleep_cycles = self.cycles.charge(false);
                slept = true;
            } else {
                asleep_cycles = self.nap();
                if asleep_cycles > 0 || !worked || now_us.saturating_sub(looked_us) >= LOOK_US {
                    self.rx.look(Some(Duration::ZERO), None);
                    looked_us = now_us;
                }
            }
            self.cycles.charge(worked);
            let now = Now { us: now_us, cycles: self.cycles.charged() };
            // As in OVS, sending alone is work.
            let worked = worked | std::mem::take(&mut self.has_sent);
            self.perf.end_iteration(now, worked, asleep_cycles, self.core.stats());
        }
    }

    /// One burst from every queue with frames. A request of the control thread interrupts, instead of waiting for
    /// thousands of queues; the remaining queues go first afterwards.
    fn poll_ready(&mut self) -> bool {
        let mut worked = false;
        self.held.begin_round();
        let queues = self.rx.polled_len();
        let first = std::mem::take(&mut self.first_queue);
        for n in (first.min(queues)..queues).chain(0..first.min(queues)) {
            let Some((place, rx)) = self.rx.ready(n) else { continue };
            let port = rx.port;
            if rx.holds_back(|| self.core.waiting(port)) {
                continue;
            }
            rx.receive(self.core.pool(), &mut self.batch, self.burst_packets);
            let packets = self.batch.len();
            if packets == 0 {
                self.cycles.charge(false);
                continue;
            }
            worked = true;
            self.naps.note_burst(packets);
            let has_more = rx.has_more();
            self.now_us = sys::clock::machine_us();
            if self.held.is_late(self.now_us) {
                let received = self.cycles.charge(true);
                self.rx.spent(place, received);
                self.send_held();
                self.now_us = sys::clock::machine_us();
            }
            let now_us = sys::clock::monotonic_us_at(self.now_us);
            drops::report(&mut self.core);
            samples::report(&mut self.core);
            self.core.process_batch(port, &mut self.batch, now_us, &mut self.io);
            let cycles = self.cycles.charge(true);
            self.rx.spent(place, cycles);
            self.perf.count_burst(packets);
            if self.held.note(place, packets, has_more, self.now_us) {
                self.send_held();
            }
            // Priority operations do not wait for all queues either.
            if let Some(batch) = self.inbox.next_ahead() {
                self.apply(batch);
                self.cycles.charge(true);
            }
            if self.inbox.is_requested() {
                self.first_queue = n + 1;
                break;
            }
        }
        if self.held.is_due(sys::clock::machine_us) {
            self.send_held();
        }
        worked
    }

    /// Sends the output that waits. Requests and operations find none.
    fn send_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.core.flush_output(&mut self.io);
        drops::report(&mut self.core);
        samples::report(&mut self.core);
        let cycles = self.cycles.charge(true);
        self.held.share(cycles, |place, cycles| self.rx.spent(place, cycles));
        self.has_sent = true;
    }

    fn carry_out_ops(&mut self) -> bool {
        let mut ops = 0;
        while ops < OPS_AT_A_TIME
            && let Some(batch) = self.inbox.next_ops()
        {
            ops += batch.ops.len();
            self.apply(batch);
        }
        ops > 0
    }

    /// A slice of each kind of waiting work; returns whether there was any.
    #[inline]
    fn carry_out_slices(&mut self) -> bool {
        if self.slices.is_idle() && !self.core.has_upkeep() {
            return false;
        }
        self.carry_out_some_slices()
    }

    #[cold]
    fn carry_out_some_slices(&mut self) -> bool {
        self.send_held();
        let mut worked = false;
        while let Some(removal) = self.slices.next_removal(self.inbox.ops_waiting() == 0) {
            worked = true;
            self.end_port(removal);
        }
        if let Some(ended) = self.core.upkeep() {
            worked = true;
            if !ended.is_empty() {
                self.offload.ended(&mut self.core, ended);
            }
        }
        self.slices.settle(&self.core);
        worked | self.slices.adopt(&mut self.core, &mut self.rx, &self.offload)
    }

    fn apply(&mut self, batch: OpBatch) {
        self.send_held();
        self.slices.batches += 1;
        if matches!(batch.ops[..], [DpifOp::Stats]) {
            // Cycles up to now, for the packets.
            self.remember_now();
        }
        let now_us = sys::clock::monotonic_us();
        let applied = apply(&mut self.core, batch.ops, now_us, &mut self.io, &self.offload);
        applied.answer(&self.offload, batch.tag, batch.reply);
    }

    /// Moves the cycles so far into the histories and the core's counters.
    fn remember(&mut self, now_us: u64) {
        for rx in self.rx.iter_mut() {
            rx.history.add(now_us, std::mem::take(&mut rx.cycles));
        }
        let [idle, busy] = self.cycles.settle(now_us);
        self.core.add_cycles(busy, idle);
    }

    /// Sets `pmd-sleep-max` and `tx-flush-interval`.
    fn set_waits(&mut self, sleep_max_us: u64, flush_us: u64) {
        self.naps.set_max(sleep_max_us);
        self.held.set_interval(flush_us);
        if sleep_max_us.max(flush_us) > 0
            && let Err(e) = sys::thread::precise_sleeps()
        {
            log::warn!(target: "dpif_netdev", "forwarding thread {:?}: timed sleeps will be longer: {e}", self.core.id());
        }
    }

    /// A timed sleep, if bursts are small and it is permitted; returns its cycles.
    fn nap(&mut self) -> u64 {
        if !self.held.is_empty() {
            return 0;
        }
        let Some(limit) = self.naps.next(self.burst_packets) else { return 0 };
        self.inbox.sleep(|waker| {
            let mut set = sys::poll::PollSet::new();
            set.add(waker.fd(), false);
            // Whether woken or not, the loop continues.
            let _ = set.wait(Some(limit));
            drop(set);
            waker.drain();
        });
        self.cycles.charge(false)
    }

    /// Sleeps until a queue has frames, or the waker wakes it.
    fn sleep(&mut self, limit: Duration) {
        let inbox = self.inbox.clone();
        inbox.sleep(|waker| self.rx.look(Some(limit), Some(waker)));
    }

    /// Executes requests of the control thread, until some operations among them; returns the requester of its end.
    fn handle_control(&mut self) -> Option<SyncSender<FinalStats>> {
        let mut ops = 0;
        while ops < OPS_AT_A_TIME
            && let Some(request) = self.inbox.next_request()
        {
            self.send_held();
            match request {
                Control::PortAdd(port, side, done) => {
                    // The number was checked at allocation.
                    let _ = self.core.port_add(port);
                    self.io.add(port, side);
                    let _ = done.send(());
                }
                Control::PortDel(port, departure, done) => {
                    let rx = self.rx.remove(|rx| rx.port == port);
                    let removal = PortRemoval { port, rx, departure, done };
                    self.slices.schedule(removal, self.inbox.ops_waiting());
                }
                Control::PortStats(port, reply) => {
                    let mut stats = self.core.port_counters(port).copied().unwrap_or_default();
                    self.rx.iter().filter(|rx| rx.port == port).for_each(|rx| rx.add_losses(&mut stats));
                    let _ = reply.send(stats);
                }
                Control::AllPortStats(reply) => {
                    let _ = reply.send(counted(&self.core, self.rx.iter()));
                }
                Control::Take(ids, reply) => self.take(&ids, reply),
                Control::Give(handover, done) => self.slices.give(handover, done),
                Control::Lend(reply) => {
                    let _ = reply.send(self.rx.iter_mut().map(|rx| (rx.id(), rx.lend())).collect());
                }
                Control::TakeBack(done) => {
                    self.rx.iter_mut().for_each(Rx::take_back);
                    let _ = done.send(());
                }
                Control::Suspend(reply) => {
                    let _ = reply.send(self.rx.remove(|_| true));
                }
                Control::Run(run, done) => {
                    run.cpus.iter().for_each(|cpus| self.run_on(cpus));
                    self.set_waits(run.sleep_max_us, run.flush_us);
                    self.core.set_tuning(run.tuning);
                    self.wakeups.allow(run.fast_wakeup);
                    self.perf.set(run.perf_metrics, run.perf_log, self.core.stats());
                    let _ = done.send(());
                }
                Control::Load(reply) => {
                    let _ = reply.send(self.load());
                }
                Control::Perf(lengths, reply) => {
                    let now = self.remember_now();
                    let _ = reply.send(self.perf.snapshot(now, self.core.stats(), lengths));
                }
                Control::Clear(done) => {
                    let now = self.remember_now();
                    self.core.clear_stats();
                    self.perf.clear(now, self.core.stats());
                    let _ = done.send(());
                }
                Control::Ops(batch) => {
                    ops += batch.ops.len();
                    self.apply(batch);
                }
                Control::Stop(final_stats) => return Some(final_stats),
            }
        }
        None
    }

    /// Removes a port once the operations that came before are done.
    fn end_port(&mut self, removal: PortRemoval) {
        let PortRemoval { port, rx, departure, done } = removal;
        self.core.port_remove(port, &mut self.io);
        self.core.flush_output(&mut self.io);
        self.slices.ends(port, departure);
        // The requester waits for it: closing would take long.
        let _ = done.send(PortParts { rx, side: self.io.remove(port) });
    }

    /// Gives queues that leave to their next threads; returns whether there were any.
    #[inline]
    fn give_back(&mut self) -> bool {
        if self.leaving.is_empty() {
            return false;
        }
        self.send_held();
        self.leaving.give_back(&self.rx, &mut self.core, &self.offload)
    }

    fn take(&mut self, ids: &[QueueId], reply: SyncSender<Handover>) {
        let rx = self.rx.remove(|rx| ids.contains(&rx.id()));
        self.leaving.add(rx, reply);
    }

    fn run_on(&mut self, cpus: &[usize]) {
        if let Err(e) = sys::thread::run_on(cpus) {
            log::warn!(target: "dpif_netdev", "forwarding thread {:?}: {e}; it runs wherever it may", self.core.id());
        }
    }

    /// Accounts for all cycles so far.
    fn remember_now(&mut self) -> Now {
        let us = sys::clock::machine_us();
        self.cycles.charge(true);
        self.remember(us);
        Now { us, cycles: self.cycles.charged() }
    }

    fn load(&mut self) -> ThreadLoad {
        let now_us = sys::clock::machine_us();
        self.remember(now_us);
        let queues = self.rx.iter().map(|rx| (rx.id(), rx.history)).collect();
        let (busy, total) = self.cycles.histories();
        ThreadLoad { now_us, queues, busy, total }
    }

    /// Ends the thread: replies to requests, hands its state over, closes its inbox.
    fn end(mut self, final_stats: &SyncSender<FinalStats>) {
        let deadline_us = sys::clock::machine_us() + HANDOVER_US;
        // Packets still being translated are the last that it forwards.
        while self.core.open_tickets() > 0 && sys::clock::machine_us() < deadline_us {
            if !self.carry_out_ops() {
                self.sleep(Duration::from_millis(1));
            }
        }
        while self.carry_out_ops() {}
        let ended = self.core.end(&mut self.io);
        self.offload.ended(&mut self.core, ended);
        // Later senders learn that the thread is gone, and find its flows reported.
        self.offload.settle();
        self.inbox.close();
        let ports =
            self.io.ports().filter_map(|port| Some((port, *self.core.port_counters(port)?))).collect();
        self.remember_now();
        // The requester waits for it.
        let parts = parts_of(self.rx.remove(|_| true), self.io.take());
        let _ = final_stats.send(FinalStats { ports, stats: self.core.stats().ended(), parts });
    }
}

/// Closes an inbox when its thread ends, for any reason.
struct CloseAtEnd(Arc<Inbox>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
        if std::thread::panicking() {
            // No request waits for this thread's end: reply to operations here, and drop requests.
            for batch in self.0.leftovers() {
                answer_gone(&batch);
            }
        }
    }
}

/// Replies that the thread has ended.
pub(super) fn answer_gone(batch: &OpBatch) {
    if let Some(reply) = &batch.reply {
        let failed = batch.ops.iter().map(|_| OpResult::Failed(DpifError::NO_THREAD)).collect();
        reply.done(batch.pmd, batch.tag, failed);
    }
}

#[cfg(test)]
mod tests;
