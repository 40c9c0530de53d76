//! Handover of receive queues to another forwarding core, and the end of a core.
//!
//! Flows taken over get new names and new counters, to distinguish them from the originals; the giving core reports
//! the last counters of its own.

use crate::megaflow::Budget;
use crate::park::new_ufid;
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use crate::upkeep::{SLICE_FLOWS, SLICE_SLOTS};
use dpif::{DropReason, FlowPut, FlowRecord, PutMode};
use flow::DpPort;

/// Treatment of the flows of a port whose queue leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Another queue of its port stays.
    Copied,
    /// It goes with the last queue.
    Removed,
}

/// A walk over all flows in slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowWalk(Option<u32>);

impl Default for FlowWalk {
    fn default() -> FlowWalk {
        FlowWalk(Some(0))
    }
}

impl FlowWalk {
    /// Whether the walk has visited all flows.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Pmd {
    /// Whether a packet received on `port` waits for the slow path, itself or behind another one: until it leaves, a
    /// newer packet forwarded elsewhere could overtake it.
    pub fn waits(&self, port: DpPort) -> bool {
        self.park.waits(port)
    }

    /// Number of packets received on `port` that wait for the slow path, themselves or behind another one.
    pub fn waiting(&self, port: DpPort) -> usize {
        self.park.waiting(port)
    }

    /// Flows of ports whose queues leave, from there on: records of a slice of them, at most `max`. `leaving` tells
    /// for each port whether its flows are copied or removed.
    pub fn take_flows(
        &mut self,
        walk: &mut FlowWalk,
        max: usize,
        leaving: impl Fn(DpPort) -> Option<Leaving>,
    ) -> Vec<(Leaving, FlowRecord)> {
        let budget = Budget { slots: SLICE_SLOTS, flows: max.min(SLICE_FLOWS) };
        if max == 0 {
            walk.0 = None;
        }
        let ids = self.table.ids_from(&mut walk.0, budget, |port| leaving(port).is_some());
        let take = |id| {
            let record = self.table.record(id)?;
            let how = leaving(record.key.in_port())?;
            if how == Leaving::Removed {
                self.table.remove(id);
            }
            Some((how, record))
        };
        let taken = ids.into_iter().filter_map(take).collect();
        self.count_flows();
        taken
    }

    /// Takes over a flow of another core, unless a flow here matches its packet or the table is full; returns the
    /// flow under its new name.
    pub fn adopt(&mut self, flow: &FlowRecord) -> Option<FlowPut> {
        let hash = self.exec.hasher.key(&flow.key);
        let put = FlowPut {
            ufid: new_ufid(&self.exec.hasher, hash, &mut self.exec.ufids),
            key: flow.key,
            mask: flow.mask,
            actions: flow.actions.clone(),
            mode: PutMode::Create,
        };
        // Without it, the next packet misses.
        let adopted = self.put(put.clone()).is_ok();
        self.count_flows();
        adopted.then_some(put)
    }

    /// Ends the core: drops parked packets, flushes output, removes all flows. Returns their last records.
    pub fn end(&mut self, io: &mut dyn PmdIo) -> Vec<FlowRecord> {
        for parked in self.park.purge() {
            let rx_port = parked.origin.rx_port;
            self.exec.ports.drop_packet(parked.packet, DropReason::PortRemoved, rx_port);
        }
        self.exec.ports.flush(io);
        let ids = 0..self.table.slots().ids();
        let gone = ids.filter_map(|id| self.table.remove(id)).collect();
        self.count_flows();
        gone
    }
}
