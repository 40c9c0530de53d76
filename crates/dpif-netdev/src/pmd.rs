//! A forwarding thread: polls its receive queues, runs bursts through its core, carries operations out.
//!
//! It shares nothing on the packet path: operations come by a bounded inbox, upcalls leave by bounded queues. With
//! nothing to do it spins for [`SPIN_US`], then sleeps in poll(2) on its queues and its waker, and wakes at once.
//!
//! `pmd-sleep-max` is another thing: it lets a thread that has little to do, but always something, sleep for a moment
//! between two bursts, so that packets come in larger bursts and the core rests. Each burst below half a batch makes the
//! next such sleep a little longer, up to that bound; a larger one ends them.

use super::apply::apply;
use super::control::Leaving;
use super::inbox::Inbox;
use super::perf::{Now, Perf};
use super::plan::load::History;
use super::queues::RxSet;
use super::upcall_queues::PortQueues;
use super::wakeups::Wakeups;
use datapath::Pmd;
use dpif::{DpifError, DpifOp, FlowRecord, OpBatch, OpResult, PmdId};
use packet::PacketBatch;
use std::sync::Arc;
use std::time::Duration;
use sync::ReplyRing;

pub(crate) use super::inbox::TxSide;
pub(crate) use super::io::ThreadIo;

/// How long an idle thread spins before it sleeps.
const SPIN_US: u64 = 50;
/// The same while a miss waits for a handler. One on another processor has taken it by then; one on this processor can only run
/// when this thread sleeps, and made first packets wait for the end of the spin.
const SPIN_UNTAKEN_US: u64 = 8;
/// How long bursts of some queues may keep a thread from looking at those that had nothing.
const LOOK_US: u64 = 50;
/// Operations after which packets have their turn.
const OPS_AT_A_TIME: usize = 256;
/// Longest sleep, so that upkeep gets its turn.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// The same while queues are to be given back.
const SLEEP_MAX_LEAVING: Duration = Duration::from_millis(1);
/// By how much each timed sleep is longer than the last one.
const NAP_STEP_US: u64 = 1;

/// Flows that ended with their port or thread, with their last statistics, for the slow path.
pub(crate) type Purged = ReplyRing<(PmdId, FlowRecord)>;

/// A forwarding thread's own state.
pub(crate) struct PmdThread {
    pub(super) core: Pmd,
    pub(super) io: ThreadIo,
    pub(super) inbox: Arc<Inbox>,
    pub(super) purged: Arc<Purged>,
    pub(super) rx: RxSet,
    pub(super) leaving: Vec<Leaving>,
    batch: PacketBatch,
    /// The queue to begin with, where a request interrupted.
    first_queue: usize,
    /// Packets that are received at a time at most.
    burst_packets: usize,
    /// When the last burst came.
    now_us: u64,
    last_work_us: u64,
    next_tick_us: u64,
    /// Up to when the cycles are accounted for.
    pub(super) charged: u64,
    /// Cycles spent with and without packets that are not in the histories yet.
    spent: [u64; 2],
    pub(super) busy: History,
    pub(super) total: History,
    pub(super) perf: Perf,
    pub(super) wakeups: Wakeups,
    sleep_max_us: u64,
    nap_us: u64,
    /// Packets of the largest burst since the last timed sleep.
    largest_burst: usize,
}

impl PmdThread {
    pub(crate) fn new(
        core: Pmd,
        portless: Arc<PortQueues>,
        inbox: Arc<Inbox>,
        purged: Arc<Purged>,
        burst_packets: usize,
    ) -> PmdThread {
        let now_us = sys::clock::machine_us();
        let charged = sys::clock::cycles();
        PmdThread {
            core,
            io: ThreadIo::new(portless),
            inbox,
            purged,
            rx: RxSet::default(),
            leaving: Vec::new(),
            batch: PacketBatch::new(),
            first_queue: 0,
            burst_packets,
            now_us,
            last_work_us: 0,
            next_tick_us: 0,
            charged,
            spent: [0; 2],
            busy: History::new(now_us),
            total: History::new(now_us),
            perf: Perf::new(Now { us: now_us, cycles: charged }),
            wakeups: Wakeups::default(),
            sleep_max_us: 0,
            nap_us: 0,
            largest_burst: 0,
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        // A thread that panics must not keep the control thread waiting for its answers.
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
            self.give_back();
            // Close enough: the time of the last burst, if there was one.
            let now_us = if burst { self.now_us } else { sys::clock::machine_us() };
            if now_us >= self.next_tick_us {
                self.core.tick(sys::clock::monotonic_us_at(now_us));
                self.core.flush_output(&mut self.io);
                self.remember(now_us);
                self.rx.settle();
                self.next_tick_us = now_us + 1_000_000;
            }
            self.wakeups.review(now_us);
            self.charge(worked);
            if worked {
                self.last_work_us = now_us;
            }
            let asleep_cycles;
            let spin_us = if self.io.misses_wait() { SPIN_UNTAKEN_US } else { SPIN_US };
            if !worked && now_us.saturating_sub(self.last_work_us) >= spin_us {
                let leaving = !self.leaving.is_empty();
                self.sleep(if leaving { SLEEP_MAX_LEAVING } else { self.wakeups.sleep_max(SLEEP_MAX) });
                asleep_cycles = self.charge(false);
                slept = true;
            } else {
                asleep_cycles = self.nap();
                if asleep_cycles > 0 || !worked || now_us.saturating_sub(looked_us) >= LOOK_US {
                    self.rx.look(Some(Duration::ZERO), None);
                    looked_us = now_us;
                }
            }
            self.charge(worked);
            let now = Now { us: now_us, cycles: self.charged };
            self.perf.end_iteration(now, worked, asleep_cycles, self.core.stats());
        }
    }

    /// One burst from every queue that has something. A request of the control thread interrupts: it does not wait for thousands of
    /// queues, and those left go first after it.
    pub(super) fn poll_ready(&mut self) -> bool {
        let mut worked = false;
        let queues = self.rx.hot_len();
        let first = std::mem::take(&mut self.first_queue);
        for n in (first.min(queues)..queues).chain(0..first.min(queues)) {
            let Some(rx) = self.rx.ready(n) else { continue };
            rx.receive(self.core.pool(), &mut self.batch, self.burst_packets);
            let packets = self.batch.len();
            if packets == 0 {
                self.charge(false);
                continue;
            }
            worked = true;
            self.largest_burst = self.largest_burst.max(packets);
            let port = rx.port;
            self.now_us = sys::clock::machine_us();
            let now_us = sys::clock::monotonic_us_at(self.now_us);
            self.core.process_batch(port, &mut self.batch, now_us, &mut self.io);
            self.core.flush_output(&mut self.io);
            let cycles = self.charge(true);
            self.rx.spent(n, cycles);
            self.perf.count_burst(packets);
            // What goes ahead of other operations does not wait for all queues either.
            if let Some(batch) = self.inbox.next_ahead() {
                self.apply(batch);
                self.charge(true);
            }
            if self.inbox.is_requested() {
                self.first_queue = n + 1;
                break;
            }
        }
        worked
    }

    pub(super) fn carry_out_ops(&mut self) -> bool {
        let mut ops = 0;
        while ops < OPS_AT_A_TIME
            && let Some(batch) = self.inbox.next_ops()
        {
            ops += batch.ops.len();
            self.apply(batch);
        }
        ops > 0
    }

    pub(super) fn apply(&mut self, batch: OpBatch) {
        if matches!(batch.ops[..], [DpifOp::Stats]) {
            // Cycles as of now, so that they go with the packets.
            self.remember_now();
        }
        let now_us = sys::clock::monotonic_us();
        let results = apply(&mut self.core, batch.ops, now_us, &mut self.io);
        if let Some(reply) = batch.reply {
            reply.done(batch.pmd, batch.tag, results);
        }
    }

    /// Accounts for the cycles since the last call.
    pub(super) fn charge(&mut self, busy: bool) -> u64 {
        let now = sys::clock::cycles();
        // Counters of two processors may differ by a little.
        let cycles = now.saturating_sub(self.charged);
        self.charged = now;
        self.spent[usize::from(busy)] += cycles;
        cycles
    }

    /// Takes the cycles spent so far into the histories and the core's counters.
    pub(super) fn remember(&mut self, now_us: u64) {
        for rx in self.rx.iter_mut() {
            rx.history.add(now_us, std::mem::take(&mut rx.cycles));
        }
        let [idle, busy] = std::mem::take(&mut self.spent);
        self.busy.add(now_us, busy);
        self.total.add(now_us, idle + busy);
        self.core.add_cycles(busy, idle);
    }

    pub(super) fn set_sleep_max(&mut self, us: u64) {
        (self.sleep_max_us, self.nap_us) = (us, 0);
        if us > 0
            && let Err(e) = sys::thread::precise_sleeps()
        {
            log::warn!(target: "dpif_netdev", "forwarding thread {:?}: timed sleeps will be longer: {e}", self.core.id());
        }
    }

    /// A timed sleep, when the bursts are small and it is allowed: its cycles.
    fn nap(&mut self) -> u64 {
        // A burst that fills half a batch shows that there is too much to do for timed sleeps.
        let busy = std::mem::take(&mut self.largest_burst) >= self.burst_packets.div_ceil(2);
        self.nap_us = if busy { 0 } else { (self.nap_us + NAP_STEP_US).min(self.sleep_max_us) };
        if self.nap_us == 0 {
            return 0;
        }
        let limit = Duration::from_micros(self.nap_us);
        self.inbox.sleep(|waker| {
            let mut set = sys::poll::PollSet::new();
            set.add(waker.fd(), false);
            // Woken or not, the loop goes on.
            let _ = set.wait(Some(limit));
            drop(set);
            waker.drain();
        });
        self.charge(false)
    }

    /// Sleeps until a queue has something, or somebody wants something.
    pub(super) fn sleep(&mut self, limit: Duration) {
        let inbox = self.inbox.clone();
        inbox.sleep(|waker| self.rx.look(Some(limit), Some(waker)));
    }
}

/// Closes an inbox when its thread ends, however it ends.
struct CloseAtEnd(Arc<Inbox>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
        if std::thread::panicking() {
            // Nobody waits for this thread's end: what it was asked is answered here, requests by dropping them.
            for batch in self.0.leftovers() {
                answer_gone(&batch);
            }
        }
    }
}

/// Answers that the thread is gone.
pub(super) fn answer_gone(batch: &OpBatch) {
    if let Some(reply) = &batch.reply {
        let failed = batch.ops.iter().map(|_| OpResult::Failed(DpifError::NO_THREAD)).collect();
        reply.done(batch.pmd, batch.tag, failed);
    }
}

#[cfg(test)]
mod tests;
