//! Removal of many flows in slices, since packets wait meanwhile: the flows of ports that end, the flows of ports whose
//! queues leave, and all flows.
//!
//! Flows of ports that end are found by a cursor that passes all slots in turn, whatever the number of such ports. Each
//! port counts its flows that are left, so it is done once all are gone, removed here or by name. Until then no flow
//! from that port can be added: lookups of its subtables could find an old flow in place of the new one.
//!
//! A table of which all flows are deleted is replaced, and its parts are freed later.

use super::buckets::BucketTable;
use super::slab::Slab;
use super::{MegaflowTable, NO_LIST, Subtables};
use dpif::FlowRecord;
use flow::DpPort;
use std::collections::BTreeMap;

/// Bound of one slice.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    /// Slots visited.
    pub(crate) slots: u32,
    /// Flows removed or copied.
    pub(crate) flows: usize,
}

/// The ports that end.
#[derive(Default)]
pub(super) struct Ending {
    /// Flows left, by port; never 0.
    ports: BTreeMap<u32, u32>,
    /// The slot to visit next.
    at: u32,
}

impl Ending {
    /// Notes that a flow from that port was removed; `false` if the port does not end.
    pub(super) fn forget_one(&mut self, port: u32) -> bool {
        let Some(left) = self.ports.get_mut(&port) else { return false };
        *left -= 1;
        if *left == 0 {
            self.ports.remove(&port);
        }
        true
    }
}

/// Parts of replaced tables, to be freed.
#[derive(Default)]
pub(super) struct Retired {
    slabs: Vec<Slab>,
    subtables: Subtables,
    indexes: Vec<BucketTable>,
}

impl Retired {
    #[inline]
    fn is_empty(&self) -> bool {
        self.slabs.is_empty() && self.subtables.is_empty() && self.indexes.is_empty()
    }

    /// Frees a part; `false`: nothing is left.
    fn free_some(&mut self) -> bool {
        if let Some(slab) = self.slabs.last_mut() {
            if !slab.free_some() {
                self.slabs.pop();
            }
        } else if let Some(subtable) = self.subtables.last_mut() {
            if !subtable.free_some() {
                self.subtables.pop();
            }
        } else if let Some(index) = self.indexes.last_mut() {
            if !index.free_some() {
                self.indexes.pop();
            }
        } else {
            return false;
        }
        true
    }
}

impl MegaflowTable {
    /// Begins to remove the flows from that port: no packet hits them any more.
    pub(crate) fn end_port(&mut self, port: DpPort) {
        let hash = self.hasher.number(port.0.into());
        let Ok(rank) = self.ranks.find_entry(hash, |r| r.port == port.0) else { return };
        let left = rank.remove().0.list.iter().map(|e| e.flows).sum();
        self.ending.ports.insert(port.0, left);
    }

    /// Whether flows from any port that ends are left.
    #[inline]
    pub(crate) fn ends(&self) -> bool {
        !self.ending.ports.is_empty()
    }

    /// Whether flows from that port are left, and the port ends.
    pub(crate) fn is_ending(&self, port: u32) -> bool {
        self.ending.ports.contains_key(&port)
    }

    /// Number of flows that end with their ports.
    pub(crate) fn ending_flows(&self) -> u64 {
        self.ending.ports.values().map(|left| u64::from(*left)).sum()
    }

    /// Removes flows of ports that end, and returns their last records.
    pub(crate) fn sweep(&mut self, budget: Budget) -> Vec<FlowRecord> {
        let mut gone = Vec::new();
        let mut visited = 0;
        while self.ends() && visited < budget.slots && gone.len() < budget.flows {
            let id = if self.ending.at < self.slab.ids() { self.ending.at } else { 0 };
            self.ending.at = id + 1;
            visited += 1;
            if self.slab.get(id).is_some_and(|slot| self.is_ending(slot.in_port())) {
                gone.extend(self.remove(id));
            }
        }
        gone
    }

    /// Slots from `at` on whose flows come from ports that `wanted` selects; moves `at`, to `None` at the end.
    pub(crate) fn ids_from(
        &self,
        at: &mut Option<u32>,
        budget: Budget,
        wanted: impl Fn(DpPort) -> bool,
    ) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut visited = 0;
        while let Some(id) = *at {
            if visited >= budget.slots || ids.len() >= budget.flows {
                break;
            }
            *at = (id + 1 < self.slab.ids()).then_some(id + 1);
            visited += 1;
            if self.slab.get(id).is_some_and(|s| s.list != NO_LIST && wanted(DpPort(s.in_port()))) {
                ids.push(id);
            }
        }
        ids
    }

    /// Removes all flows. [`MegaflowTable::free_some`] frees their memory.
    pub(crate) fn clear(&mut self) {
        let fresh = MegaflowTable::new(self.hasher.clone(), self.flow_limit);
        let old = std::mem::replace(self, fresh);
        self.mask_bounds = old.mask_bounds;
        self.retired = old.retired;
        self.retired.slabs.push(old.slab);
        self.retired.subtables.extend(old.subtables);
        self.retired.indexes.extend([old.by_ufid, old.by_mask]);
    }

    /// Whether deleted flows have left memory to be freed.
    #[inline]
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Frees a part of what deleted flows have left; `false`: nothing is left.
    pub(crate) fn free_some(&mut self) -> bool {
        self.retired.free_some()
    }
}
