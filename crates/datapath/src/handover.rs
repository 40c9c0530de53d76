//! Handover of receive queues to another forwarding core, and the end of a core.
//!
//! Flows taken over get new names and new counters, to distinguish them from the originals; the giving core reports
//! the last counters of its own.

use crate::park::new_ufid;
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use dpif::{DropReason, FlowPut, FlowRecord, PutMode};
use flow::DpPort;

impl Pmd {
    /// Whether a packet received on `port` waits for the slow path, itself or behind another one: until it leaves, a
    /// newer packet forwarded elsewhere could overtake it.
    pub fn waits(&self, port: DpPort) -> bool {
        self.park.waits(port)
    }

    /// At most `max` of the flows from a port.
    pub fn flows_from(&self, port: DpPort, max: usize) -> Vec<FlowRecord> {
        self.table.ids_from(port).into_iter().take(max).filter_map(|id| self.table.record(id)).collect()
    }

    /// The same, and removes them; returns their last records.
    pub fn remove_flows_from(&mut self, port: DpPort, max: usize) -> Vec<FlowRecord> {
        let ids = self.table.ids_from(port);
        let gone = ids.into_iter().take(max).filter_map(|id| self.table.remove(id)).collect();
        self.count_flows();
        gone
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
