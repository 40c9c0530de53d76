//! [`Handovers`]: receive queues that a forwarding thread is about to give back.
//!
//! Such a queue is no longer polled, but given back only once no packet of its port waits for the slow path here. So
//! earlier packets leave first, whichever thread forwards the next ones. Meanwhile frames wait in the queue itself.
//! Flows of its port go with the queue, to save the next thread their upcalls.

use super::inbox::Handover;
use super::offload::CoreOffload;
use super::queues::{Rx, RxSet};
use datapath::Pmd;
use flow::DpPort;
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;

/// Maximum wait of packets for the slow path when a queue, or the thread, is to go.
pub(super) const HANDOVER_US: u64 = 50_000;
/// Maximum flows transferred with the queues of one request: inserting them takes the next thread's time.
const HANDOVER_FLOWS: usize = 1024;

/// Queues to give back.
struct Leaving {
    rx: Vec<Rx>,
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
        self.0.push(Leaving { rx, reply, deadline_us });
    }

    /// Gives back queues without waiting packets.
    pub(super) fn give_back(&mut self, rx: &RxSet, core: &mut Pmd, offload: &CoreOffload) {
        if self.0.is_empty() {
            return;
        }
        let now_us = sys::clock::machine_us();
        for mut leaving in std::mem::take(&mut self.0) {
            let ports: BTreeSet<DpPort> = leaving.rx.iter().map(|rx| rx.port).collect();
            if now_us < leaving.deadline_us && ports.iter().any(|port| core.waits(*port)) {
                self.0.push(leaving);
                continue;
            }
            let mut flows = Vec::new();
            for port in ports {
                let room = HANDOVER_FLOWS - flows.len();
                // Another queue of the port may stay, and needs them too.
                if rx.iter().any(|rx| rx.port == port) {
                    flows.extend(core.flows_from(port, room));
                } else {
                    let gone = core.remove_flows_from(port, room);
                    flows.extend(gone.iter().cloned());
                    offload.ended(core, gone);
                }
            }
            let queues = std::mem::take(&mut leaving.rx);
            // The requester waits for it.
            let _ = leaving.reply.send(Handover { queues, flows });
        }
    }
}
