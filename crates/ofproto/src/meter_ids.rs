//! Meter numbers: OpenFlow numbers meters per bridge, a datapath for all its bridges together.
//!
//! The backer allocates datapath numbers ([`MeterIds`], the lowest free one); each bridge's view maps its meters to
//! these numbers, for translation. A number is free again after its meter has left the datapath.

use crate::backer::Backer;
use crate::ids::BridgeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use sync::lock;

/// Upper bound of datapath numbers of meters.
pub const DP_METERS_MAX: u32 = 1 << 18;

/// Allocated datapath numbers: those below `next` that are not free again.
#[derive(Debug, Default)]
pub(crate) struct MeterIds {
    next: u32,
    given_back: BTreeSet<u32>,
}

impl MeterIds {
    fn hold(&mut self) -> Option<u32> {
        self.given_back.pop_first().or_else(|| {
            let fresh = (self.next < DP_METERS_MAX).then_some(self.next);
            self.next += u32::from(fresh.is_some());
            fresh
        })
    }

    fn release(&mut self, id: u32) {
        if id < self.next {
            self.given_back.insert(id);
        }
    }
}

impl Backer {
    /// Allocates a datapath number for a meter; `None` if none is left.
    pub fn meter_hold(&self) -> Option<u32> {
        lock(&self.meter_ids).hold()
    }

    /// Frees the number of a meter that has left the datapath.
    pub fn meter_release(&self, id: u32) {
        lock(&self.meter_ids).release(id);
    }

    /// Maps an OpenFlow meter number of a bridge to a datapath number, or to none.
    pub fn set_meter(&self, bridge: BridgeId, of_id: u32, dp_id: Option<u32>) {
        self.change_meter(bridge, of_id, |meters| {
            match dp_id {
                Some(id) => meters.insert(of_id, id),
                None => meters.remove(&of_id),
            };
        });
    }

    /// Forgets all meters of a bridge.
    pub fn clear_meters(&self, bridge: BridgeId) {
        if self.view().bridge(bridge).is_some_and(|b| !b.meters.is_empty()) {
            self.change_bridge(bridge, |b| b.meters = Arc::default());
        }
    }
}

#[cfg(test)]
mod tests;
