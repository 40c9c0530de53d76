//! The main loop's own core: packet-outs, and ports without polling threads: dummies, and all without threads
//! (`--without=threads`).
//!
//! Misses are translated at once, on the calling thread, so everything received or sent before a request is finished
//! before the next request. Any thread may call; the lock around the core serialises them.

use super::apply::{Applied, apply};
use super::bulk::{PortParts, parts_of};
use super::drops;
use super::offload::CoreOffload;
use super::plan::QueueId;
use super::pmd::{ThreadIo, TxSide};
use super::queues::{Rx, counted};
use super::samples;
use super::watch::QueueWatch;
use datapath::Pmd;
use dpif::{DpifError, DpifOp, InlineHandler, OpBatch};
use flow::DpPort;
use packet::PacketBatch;
use std::sync::Arc;
use sync::{Mutex, lock};

/// Maximum bursts of one call: the rest waits for the next one.
const BURSTS_MAX: usize = 1024;

struct State {
    core: Pmd,
    io: ThreadIo,
    rx: Vec<Rx>,
    batch: PacketBatch,
}

/// See the module documentation.
pub(crate) struct MainCore {
    state: Mutex<State>,
    handler: Arc<dyn InlineHandler>,
    offload: CoreOffload,
    /// Maximum packets received at a time.
    burst_packets: usize,
    /// Watch of the queues polled here.
    watch: Option<Arc<QueueWatch>>,
}

impl MainCore {
    /// `handler` translates misses.
    pub(crate) fn new(
        core: Pmd,
        handler: Arc<dyn InlineHandler>,
        offload: CoreOffload,
        burst_packets: usize,
        watch: Option<Arc<QueueWatch>>,
    ) -> MainCore {
        let state = State { core, io: ThreadIo::inline(), rx: Vec::new(), batch: PacketBatch::new() };
        MainCore { state: Mutex::new(state), handler, offload, burst_packets, watch }
    }

    /// Adds a port, with the queues polled here.
    pub(crate) fn port_add(&self, port: DpPort, side: TxSide, queues: Vec<Rx>) -> Result<(), DpifError> {
        {
            let s = &mut *lock(&self.state);
            s.core.port_add(port)?;
            s.io.add(port, side);
        }
        self.give(queues)
    }

    /// Polls these queues from now on.
    pub(crate) fn give(&self, queues: Vec<Rx>) -> Result<(), DpifError> {
        if let Some(watch) = &self.watch {
            for rx in &queues {
                let cannot =
                    |e| DpifError::Device(format!("cannot watch receive queue {}: {e}", rx.id().queue));
                watch.add(rx.fd()).map_err(cannot)?;
            }
        }
        lock(&self.state).rx.extend(queues);
        Ok(())
    }

    /// Gives back the queues of a port.
    pub(crate) fn take(&self, port: DpPort) -> Vec<Rx> {
        let taken: Vec<Rx> = lock(&self.state).rx.extract_if(.., |rx| rx.port == port).collect();
        if let Some(watch) = &self.watch {
            taken.iter().for_each(|rx| watch.remove(rx.fd()));
        }
        taken
    }

    /// Takes out queues and transmit sides, at the end.
    pub(super) fn take_parts(&self) -> Vec<(DpPort, PortParts)> {
        let s = &mut *lock(&self.state);
        parts_of(std::mem::take(&mut s.rx), s.io.take())
    }

    /// The queues that are polled here.
    pub(crate) fn queues(&self) -> Vec<QueueId> {
        lock(&self.state).rx.iter().map(Rx::id).collect()
    }

    /// Removes a port, and returns its parts; the last statistics of its flows are reported.
    pub(super) fn port_del(&self, port: DpPort) -> PortParts {
        let rx = self.take(port);
        let s = &mut *lock(&self.state);
        s.core.port_remove(port, &mut s.io);
        // Nothing else waits for this thread: flows are gone before the next request.
        while let Some(ended) = s.core.upkeep() {
            self.offload.ended(&mut s.core, ended);
        }
        PortParts { rx, side: s.io.remove(port) }
    }

    /// Counters of a port, for packets of this core.
    pub(crate) fn port_stats(&self, port: DpPort) -> dpif::PortStats {
        let s = lock(&self.state);
        let mut stats = s.core.port_counters(port).copied().unwrap_or_default();
        s.rx.iter().filter(|rx| rx.port == port).for_each(|rx| rx.add_losses(&mut stats));
        stats
    }

    /// Nonzero counters of all ports, for packets of this core.
    pub(crate) fn all_port_stats(&self) -> Vec<(DpPort, dpif::PortStats)> {
        let s = lock(&self.state);
        counted(&s.core, s.rx.iter())
    }

    /// Executes operations, and their consequences.
    pub(crate) fn operate(&self, batch: OpBatch) {
        let applied = {
            let s = &mut *lock(&self.state);
            let applied = self.apply(s, batch.ops);
            self.finish(s);
            applied
        };
        applied.answer(&self.offload, batch.tag, batch.reply);
    }

    /// Processes all waiting packets of the queues polled here; `true` if there may be more.
    pub(crate) fn run(&self) -> bool {
        let s = &mut *lock(&self.state);
        for _ in 0..BURSTS_MAX {
            let mut worked = false;
            for i in 0..s.rx.len() {
                let rx = &mut s.rx[i];
                rx.receive(s.core.pool(), &mut s.batch, self.burst_packets);
                if s.batch.is_empty() {
                    continue;
                }
                worked = true;
                let port = rx.port;
                drops::report(&mut s.core);
                samples::report(&mut s.core);
                s.core.process_batch(port, &mut s.batch, sys::clock::monotonic_us(), &mut s.io);
                self.finish(s);
            }
            if !worked {
                return false;
            }
        }
        true
    }

    /// Housekeeping, about once a second.
    pub(crate) fn tick(&self) {
        let s = &mut *lock(&self.state);
        s.core.tick(sys::clock::monotonic_us());
        // Only ports that end have flows to report.
        while s.core.upkeep().is_some() {}
        self.finish(s);
    }

    fn apply(&self, s: &mut State, ops: Vec<DpifOp>) -> Applied {
        apply(&mut s.core, ops, sys::clock::monotonic_us(), &mut s.io, &self.offload)
    }

    /// Flushes output and serves upcalls until none are left: recirculation is bounded, so this terminates.
    fn finish(&self, s: &mut State) {
        loop {
            s.core.flush_output(&mut s.io);
            drops::report(&mut s.core);
            samples::report(&mut s.core);
            let upcalls = s.io.take_upcalls();
            if upcalls.is_empty() {
                return;
            }
            let ops = self.handler.translate(upcalls);
            probes::sent(&ops);
            let puts: Vec<_> = ops.iter().map(DpifOp::creates).collect();
            let applied = self.apply(s, ops);
            self.handler.done(&puts, &applied.results);
        }
    }
}
