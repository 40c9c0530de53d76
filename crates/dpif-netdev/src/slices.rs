//! [`Slices`]: work of a forwarding thread that it does a slice of in each turn, with bursts in between.
//!
//! A removed port is polled no more at once. It goes as soon as the operations that waited in the inbox then are done:
//! packets among them may still leave through it. Its flows go slice by slice ([`Pmd::upkeep`]); until then a
//! [`Departure`] keeps its number from new ports. Queues from other threads are polled once their flows are taken over.

use super::bulk::PortParts;
use super::inbox::Handover;
use super::offload::CoreOffload;
use super::queues::{Rx, RxSet};
use datapath::{Pmd, SLICE_FLOWS};
use flow::DpPort;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Held by each thread that has flows of a removed port.
pub(crate) type Departure = Arc<()>;

/// A port to be removed.
pub(super) struct PortRemoval {
    pub(super) port: DpPort,
    /// Its queues, polled no more.
    pub(super) rx: Vec<Rx>,
    pub(super) departure: Departure,
    pub(super) done: SyncSender<PortParts>,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Slices {
    /// Batches of operations executed so far.
    pub(super) batches: u64,
    /// Ports to remove after that number of batches.
    removals: VecDeque<(u64, PortRemoval)>,
    /// Removed ports with flows.
    ending: Vec<(DpPort, Departure)>,
    /// Queues from other threads, with flows to be taken over.
    given: VecDeque<(Handover, SyncSender<()>)>,
}

impl Slices {
    /// Whether no work waits.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.removals.is_empty() && self.ending.is_empty() && self.given.is_empty()
    }

    /// Removes a port after that number of batches.
    pub(super) fn schedule(&mut self, removal: PortRemoval, batches: usize) {
        self.removals.push_back((self.batches + batches as u64, removal));
    }

    /// The next port to remove now; `idle`: no operation waits.
    pub(super) fn next_removal(&mut self, idle: bool) -> Option<PortRemoval> {
        let (after, _) = self.removals.front()?;
        if *after > self.batches && !idle {
            return None;
        }
        self.removals.pop_front().map(|(_, removal)| removal)
    }

    /// Keeps the number of a removed port while flows from it are left.
    pub(super) fn ends(&mut self, port: DpPort, departure: Departure) {
        self.ending.push((port, departure));
    }

    /// Frees the numbers of ports without flows.
    pub(super) fn settle(&mut self, core: &Pmd) {
        self.ending.retain(|(port, _)| core.is_ending(*port));
    }

    /// Adds queues that another thread polled.
    pub(super) fn give(&mut self, handover: Handover, done: SyncSender<()>) {
        self.given.push_back((handover, done));
    }

    /// Takes over some flows of queues from another thread, then the queues; returns whether there were any.
    pub(super) fn adopt(&mut self, core: &mut Pmd, rx: &mut RxSet, offload: &CoreOffload) -> bool {
        let Some((Handover { queues, flows }, _)) = self.given.front_mut() else { return false };
        for flow in flows.drain(flows.len().saturating_sub(SLICE_FLOWS)..) {
            if let Some(adopted) = core.adopt(&flow) {
                offload.offer(core, adopted);
            }
        }
        if flows.is_empty() {
            queues.drain(..).for_each(|queue| rx.add(queue));
            if let Some((_, done)) = self.given.pop_front() {
                // The requester waits for it.
                let _ = done.send(());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
