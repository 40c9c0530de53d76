//! [`Handovers`]: receive queues that a forwarding thread is about to give back.
//!
//! Such a queue is no longer polled, but given back only once no packet of its port waits for the slow path here. So
//! earlier packets leave first, whichever thread forwards the next ones. Meanwhile frames wait in the queue itself.
//! Flows of its port go with the queue, to save the next thread their upcalls.

use super::inbox::Handover;
use super::offload::CoreOffload;
use super::queues::{Rx, RxSet};
use datapath::{FlowWalk, Pmd};
use dpif::FlowRecord;
use flow::DpPort;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::SyncSender;

/// Maximum wait of packets for the slow path when a queue, or the thread, is to go.
pub(super) const HANDOVER_US: u64 = 50_000;
/// Maximum flows transferred with the queues of one request: inserting them takes the next thread's time.
const HANDOVER_FLOWS: usize = 1024;

/// Queues to give back.
struct Leaving {
    rx: Vec<Rx>,
    /// Their ports.
    how: BTreeMap<DpPort, datapath::Leaving>,
    /// Flows taken so far.
    flows: Vec<FlowRecord>,
    walk: FlowWalk,
    /// The walk has begun.
    leaves: bool,
    reply: SyncSender<Handover>,
    deadline_us: u64,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Handovers(Vec<Leaving>);

impl Handovers {
    /// Whether queues wait to be given back.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds queues to give back to `reply`.
    pub(super) fn add(&mut self, rx: Vec<Rx>, reply: SyncSender<Handover>) {
        let deadline_us = sys::clock::machine_us() + HANDOVER_US;
        let how = rx.iter().map(|rx| (rx.port, datapath::Leaving::Copied)).collect();
        self.0.push(Leaving {
            rx,
            how,
            flows: Vec::new(),
            walk: FlowWalk::default(),
            leaves: false,
            reply,
            deadline_us,
        });
    }

    /// Goes on with the first queues: once no packet waits, takes a slice of their flows, and gives them back after the
    /// last. Returns whether it did something.
    pub(super) fn give_back(&mut self, rx: &RxSet, core: &mut Pmd, offload: &CoreOffload) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let now_us = sys::clock::machine_us();
        let Some(at) = self.0.iter_mut().position(|leaving| leaving.may_leave(rx, core, now_us)) else {
            return false;
        };
        self.0[at].take_flows(core, offload);
        if self.0[at].walk.is_done() {
            let Leaving { rx, flows, reply, .. } = self.0.remove(at);
            // The requester waits for it.
            let _ = reply.send(Handover { queues: rx, flows });
        }
        true
    }
}

impl Leaving {
    /// Whether no packet waits for the slow path, or not any longer.
    fn may_leave(&mut self, rx: &RxSet, core: &Pmd, now_us: u64) -> bool {
        if self.leaves {
            return true;
        }
        if now_us < self.deadline_us && self.how.keys().any(|port| core.waits(*port)) {
            return false;
        }
        // Another queue of the port may stay, and needs the flows too.
        let staying: BTreeSet<DpPort> = rx.iter().map(|rx| rx.port).collect();
        for (port, how) in &mut self.how {
            let stays = staying.contains(port);
            *how = if stays { datapath::Leaving::Copied } else { datapath::Leaving::Removed };
        }
        self.leaves = true;
        true
    }

    /// Takes a slice of the flows.
    fn take_flows(&mut self, core: &mut Pmd, offload: &CoreOffload) {
        let room = HANDOVER_FLOWS - self.flows.len();
        let taken = core.take_flows(&mut self.walk, room, |port| self.how.get(&port).copied());
        let removed = taken.iter().filter(|(how, _)| *how == datapath::Leaving::Removed);
        let removed = removed.map(|(_, flow)| flow.clone()).collect();
        offload.ended(core, removed);
        self.flows.extend(taken.into_iter().map(|(_, flow)| flow));
    }
}
