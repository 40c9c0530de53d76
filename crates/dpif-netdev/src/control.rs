//! What a forwarding thread does for the control thread: ports, receive queues that come and go, its end.
//!
//! A queue that is to go is not polled any more, but given back only when no packet of its port waits for the slow path here: so
//! what came first leaves first, whichever thread forwards what comes next. Meanwhile frames wait in the queue itself. With
//! the queue go the newest thing a thread knows: flows of its port, so that the next thread does not have to ask for them.

use super::bulk::{PortParts, parts_of};
use super::inbox::{Control, FinalStats, Handover, ThreadLoad};
use super::perf::Now;
use super::plan::QueueId;
use super::pmd::PmdThread;
use super::queues::{Rx, counted};
use flow::DpPort;
use std::sync::mpsc::SyncSender;

/// How long a queue waits for the answers of the slow path before it is given back all the same.
const HANDOVER_US: u64 = 50_000;
/// Flows that go with the queues of one request at most: to insert them takes the next thread's time.
const HANDOVER_FLOWS: usize = 1024;

/// Queues that are to be given back.
pub(super) struct Leaving {
    rx: Vec<Rx>,
    reply: SyncSender<Handover>,
    deadline_us: u64,
}

impl PmdThread {
    /// Carries out requests of the control thread; who wants to know when it is to end.
    pub(super) fn handle_control(&mut self) -> Option<SyncSender<FinalStats>> {
        while let Some(request) = self.inbox.next_request() {
            match request {
                Control::PortAdd(port, side, done) => {
                    // The number was checked when it was given out.
                    let _ = self.core.port_add(port);
                    self.io.add(port, side);
                    let _ = done.send(());
                }
                Control::PortDel(port, done) => {
                    // Who asked waits for it: to close it would take long.
                    let _ = done.send(self.port_del(port));
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
                Control::Give(handover, done) => {
                    handover.flows.iter().for_each(|flow| self.core.adopt(flow));
                    handover.queues.into_iter().for_each(|rx| self.rx.add(rx));
                    let _ = done.send(());
                }
                Control::Run(run, done) => {
                    run.cpus.iter().for_each(|cpus| self.run_on(cpus));
                    self.set_sleep_max(run.sleep_max_us);
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
                Control::Ops(batch) => self.apply(batch),
                Control::Stop(final_stats) => return Some(final_stats),
            }
        }
        None
    }

    fn port_del(&mut self, port: DpPort) -> PortParts {
        let rx = self.rx.remove(|rx| rx.port == port);
        while self.carry_out_ops() {}
        for flow in self.core.port_remove(port, &mut self.io) {
            self.purged.push((self.core.id(), flow));
        }
        self.core.flush_output(&mut self.io);
        PortParts { rx, side: self.io.remove(port) }
    }

    fn take(&mut self, ids: &[QueueId], reply: SyncSender<Handover>) {
        let rx = self.rx.remove(|rx| ids.contains(&rx.id()));
        let deadline_us = sys::clock::machine_us() + HANDOVER_US;
        self.leaving.push(Leaving { rx, reply, deadline_us });
    }

    /// Gives queues back of which nothing waits any more.
    pub(super) fn give_back(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now_us = sys::clock::machine_us();
        for mut leaving in std::mem::take(&mut self.leaving) {
            let ports: std::collections::BTreeSet<DpPort> = leaving.rx.iter().map(|rx| rx.port).collect();
            if now_us < leaving.deadline_us && ports.iter().any(|port| self.core.waits(*port)) {
                self.leaving.push(leaving);
                continue;
            }
            let mut flows = Vec::new();
            for port in ports {
                let room = HANDOVER_FLOWS - flows.len();
                // Another queue of the port may stay, and needs them too.
                if self.rx.iter().any(|rx| rx.port == port) {
                    flows.extend(self.core.flows_from(port, room));
                } else {
                    let gone = self.core.remove_flows_from(port, room);
                    gone.iter().for_each(|flow| self.purged.push((self.core.id(), flow.clone())));
                    flows.extend(gone);
                }
            }
            let queues = std::mem::take(&mut leaving.rx);
            // Who asked waits for it.
            let _ = leaving.reply.send(Handover { queues, flows });
        }
    }

    fn run_on(&mut self, cpus: &[usize]) {
        if let Err(e) = sys::thread::run_on(cpus) {
            log::warn!(target: "dpif_netdev", "forwarding thread {:?}: {e}; it runs wherever it may", self.core.id());
        }
    }

    /// Accounts for all cycles so far.
    pub(super) fn remember_now(&mut self) -> Now {
        let us = sys::clock::machine_us();
        self.charge(true);
        self.remember(us);
        Now { us, cycles: self.charged }
    }

    fn load(&mut self) -> ThreadLoad {
        let now_us = sys::clock::machine_us();
        self.remember(now_us);
        let queues = self.rx.iter().map(|rx| (rx.id(), rx.history)).collect();
        ThreadLoad { now_us, queues, busy: self.busy, total: self.total }
    }

    /// The thread's end: answers what has been asked, gives away what it knows, closes its inbox.
    pub(super) fn end(mut self, final_stats: &SyncSender<FinalStats>) {
        let deadline_us = sys::clock::machine_us() + HANDOVER_US;
        // Packets that are still being translated are the last that it forwards.
        while self.core.open_tickets() > 0 && sys::clock::machine_us() < deadline_us {
            if !self.carry_out_ops() {
                self.sleep(std::time::Duration::from_millis(1));
            }
        }
        while self.carry_out_ops() {}
        for flow in self.core.end(&mut self.io) {
            self.purged.push((self.core.id(), flow));
        }
        self.inbox.close();
        let ports =
            self.io.ports().filter_map(|port| Some((port, *self.core.port_counters(port)?))).collect();
        self.remember_now();
        // Who asked waits for it.
        let parts = parts_of(self.rx.remove(|_| true), self.io.take());
        let _ = final_stats.send(FinalStats { ports, stats: self.core.stats().ended(), parts });
    }
}
