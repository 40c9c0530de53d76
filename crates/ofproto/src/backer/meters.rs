//! Meters of bridges: their numbers in the datapath.

use super::Backer;
use crate::changes::Change;
use crate::ids::BridgeId;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::lock;

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

    /// Changes the meters of a bridge: their datapath numbers, by OpenFlow number.
    fn change_meter(&self, id: BridgeId, meter: u32, f: impl FnOnce(&mut BTreeMap<u32, u32>)) {
        let change = |view: &mut View| {
            if let Some(bridge) = view.bridges.get_mut(&id) {
                f(Arc::make_mut(&mut Arc::make_mut(bridge).meters));
            }
        };
        self.change_as(change, Some(vec![Change::Meter(id, meter)]));
    }
}
