//! Meter numbers: OpenFlow numbers meters per bridge, a datapath for all its bridges together.
//!
//! [`MeterIds`] allocates datapath numbers, the lowest free one; each bridge's view maps its meters to these numbers, for
//! translation. A number is free again after its meter has left the datapath.

use std::collections::BTreeSet;

/// Upper bound of datapath numbers of meters.
pub const DP_METERS_MAX: u32 = 1 << 18;

/// Allocated datapath numbers: those below `next` that are not free again.
#[derive(Debug, Default)]
pub(crate) struct MeterIds {
    next: u32,
    given_back: BTreeSet<u32>,
}

impl MeterIds {
    /// Allocates a number; `None` if none is left.
    pub(crate) fn hold(&mut self) -> Option<u32> {
        self.given_back.pop_first().or_else(|| {
            let fresh = (self.next < DP_METERS_MAX).then_some(self.next);
            self.next += u32::from(fresh.is_some());
            fresh
        })
    }

    /// Frees a number.
    pub(crate) fn release(&mut self, id: u32) {
        if id < self.next {
            self.given_back.insert(id);
        }
    }
}

#[cfg(test)]
mod tests;
