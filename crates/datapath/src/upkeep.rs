//! Work in slices between bursts: the end of ports, the memory of deleted flows, the ranking of subtables.
//!
//! A slice is bounded in flows, slots and entries, so that no packet waits longer for a core of many flows. The driver
//! calls [`Pmd::upkeep`] until it returns `None`.

use crate::megaflow::Budget;
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use dpif::{DropReason, FlowRecord};
use flow::DpPort;

/// Flows removed, or handed over, in one slice.
pub const SLICE_FLOWS: usize = 64;
/// Slots visited in one slice.
pub(crate) const SLICE_SLOTS: u32 = 2048;
/// Entries of ranked lists sorted in one slice; a list is sorted whole.
const SLICE_RANKED: usize = 2048;
/// Parts of deleted tables freed in one slice: chunks of slots, and others of that order.
const SLICE_FREED: usize = 2;

impl Pmd {
    /// Removes a port: drops parked packets from it, flushes its output. [`Pmd::upkeep`] deletes the flows from it; until
    /// they are gone no packet hits them, and none from that port can be added ([`Pmd::is_ending`]). Flows that
    /// output to it stay and drop there.
    pub fn port_remove(&mut self, port: DpPort, io: &mut dyn PmdIo) {
        for parked in self.park.purge_port(port) {
            let rx_port = parked.origin.rx_port;
            self.exec.ports.drop_packet(parked.packet, DropReason::PortRemoved, rx_port);
        }
        self.table.end_port(port);
        self.exec.ports.flush_port(port, io);
        self.exec.ports.remove(port);
        self.count_flows();
    }

    /// Whether flows from a removed port are left. A port may take the same number meanwhile: its packets miss, and
    /// puts of their flows fail with `Busy`.
    pub fn is_ending(&self, port: DpPort) -> bool {
        self.table.is_ending(port.0)
    }

    /// Number of flows from removed ports that are left.
    pub fn ending_flows(&self) -> u64 {
        self.table.ending_flows()
    }

    /// Whether work waits for [`Pmd::upkeep`].
    #[inline]
    pub fn has_upkeep(&self) -> bool {
        self.table.ends() || self.rank_at.is_some() || self.table.has_retired()
    }

    /// One slice of waiting work; returns last records of deleted flows, at most [`SLICE_FLOWS`]. `None`: no work waits.
    pub fn upkeep(&mut self) -> Option<Vec<FlowRecord>> {
        let ends = self.table.ends();
        let gone = self.table.sweep(Budget { slots: SLICE_SLOTS, flows: SLICE_FLOWS });
        if !gone.is_empty() {
            self.count_flows();
        }
        let freed = (0..SLICE_FREED).any(|_| self.table.free_some());
        let ranks = self.rank_at.map(|at| self.rank_from(at)).is_some();
        (ends || freed || ranks).then_some(gone)
    }

    /// Sorts ranked lists from that one on.
    pub(crate) fn rank_from(&mut self, at: usize) {
        self.rank_at = self.table.rank(at, SLICE_RANKED);
    }

    /// Whether packets of the burst come from ports that end.
    #[cold]
    pub(crate) fn has_ending_ports(&self) -> bool {
        let arrays = &self.burst.arrays;
        arrays.keys.iter().take(arrays.packets.len()).any(|key| self.table.is_ending(key.base.in_port))
    }
}
