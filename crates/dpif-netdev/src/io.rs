//! A thread's ports from its core's perspective, and the destination of its upcalls.

use super::inbox::TxSide;
use super::upcall_queues::PortQueues;
use crate::drops::Candidates;
use datapath::{DropBudget, PmdIo, TxReport};
use dpif::{DropReason, Upcall, UpcallSink};
use flow::{DpPort, FlowKey};
use netdev::TxDrop;
use packet::{PacketBatch, PacketPool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Destination of upcalls.
enum Upcalls {
    /// The handlers, through the queue of the receiving port, or this one without a port.
    Queued(Arc<PortQueues>),
    /// The caller that runs the core, for [`ThreadIo::take_upcalls`].
    Inline(dpif::Upcalls),
}

/// A thread's ports, as used by its core.
pub(crate) struct ThreadIo {
    ports: BTreeMap<DpPort, TxSide>,
    upcalls: Upcalls,
    /// Limits samples of failed transmissions, once somebody listened.
    drop_budget: Option<DropBudget>,
}

impl ThreadIo {
    /// Sends upcalls to the handlers; those without an input port through `portless`.
    pub(crate) fn new(portless: Arc<PortQueues>) -> ThreadIo {
        ThreadIo { ports: BTreeMap::new(), upcalls: Upcalls::Queued(portless), drop_budget: None }
    }

    /// Keeps upcalls for [`ThreadIo::take_upcalls`].
    pub(crate) fn inline() -> ThreadIo {
        ThreadIo { ports: BTreeMap::new(), upcalls: Upcalls::Inline(Vec::new()), drop_budget: None }
    }

    /// The upcalls since the last call, if they are not queued for handlers.
    pub(crate) fn take_upcalls(&mut self) -> dpif::Upcalls {
        match &mut self.upcalls {
            Upcalls::Queued(_) => Vec::new(),
            Upcalls::Inline(waiting) => std::mem::take(waiting),
        }
    }

    /// Whether misses wait for handlers.
    pub(crate) fn misses_wait(&self) -> bool {
        matches!(&self.upcalls, Upcalls::Queued(any) if any.misses_wait())
    }

    pub(crate) fn add(&mut self, port: DpPort, side: TxSide) {
        self.ports.insert(port, side);
    }

    pub(crate) fn remove(&mut self, port: DpPort) -> Option<TxSide> {
        self.ports.remove(&port)
    }

    /// Takes all ports out.
    pub(crate) fn take(&mut self) -> BTreeMap<DpPort, TxSide> {
        std::mem::take(&mut self.ports)
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = DpPort> + '_ {
        self.ports.keys().copied()
    }
}

impl UpcallSink for ThreadIo {
    fn has_room(&self, port: DpPort, key: &FlowKey) -> bool {
        if probes::wants_misses() {
            // Also reports a rejected upcall.
            return true;
        }
        match (&self.upcalls, self.ports.get(&port)) {
            (Upcalls::Inline(_), _) => true,
            (Upcalls::Queued(_), Some(side)) => side.upcalls.has_room_for(key),
            (Upcalls::Queued(portless), None) => portless.has_room_for(key),
        }
    }

    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        let queueing = probes::miss(&upcall);
        let queued = match (&mut self.upcalls, self.ports.get(&upcall.rx_port)) {
            (Upcalls::Inline(waiting), _) => {
                waiting.push(upcall);
                return Ok(());
            }
            (Upcalls::Queued(_), Some(side)) => side.upcalls.push(upcall),
            (Upcalls::Queued(portless), None) => portless.push(upcall),
        };
        probes::queued(queueing, queued.is_ok());
        queued
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
        let candidates = Candidates::of(batch);
        let sent = if side.egress.is_active() {
            side.egress.send(&mut *side.tx, batch, pool)
        } else {
            side.tx.send(batch, pool)
        };
        // Packets segmented in software count once here: the core counts packets as passed over.
        for why in TxDrop::ALL {
            let reason = match why {
                TxDrop::PortDown => DropReason::TxDown,
                TxDrop::TooLarge => DropReason::TxTooBig,
                TxDrop::NoBuffers => DropReason::TxNoBuffers,
                TxDrop::QueueFull => DropReason::TxQueueFull,
                TxDrop::BadOffload => DropReason::TxBadOffload,
                TxDrop::Refused => DropReason::TxFailed,
                TxDrop::Policed => DropReason::TxPoliced,
                TxDrop::QosQueueFull => DropReason::TxQosQueueFull,
            };
            let lost = sent.dropped(why).min(queued);
            report.dropped[reason as usize] += lost;
            if let (1.., Some(candidates)) = (lost, &candidates) {
                candidates.lost(port, why, reason, lost, &mut self.drop_budget);
            }
        }
        let dropped: u64 = report.dropped.iter().sum();
        report.sent_packets = queued.saturating_sub(dropped);
        report.sent_bytes = sent.sent_bytes;
        report
    }
}
