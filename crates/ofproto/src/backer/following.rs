//! Followers of the rules of bridges: monitors, and the record for a later process.

use super::Backer;
use crate::ids::BridgeId;
use crate::record::Meters;
use crate::tables::Tables;
use crate::view::View;
use std::sync::Arc;
use sync::lock;

impl Backer {
    /// Begins to queue changes of a bridge's rules for monitors. Returns the present tables, and the number of the
    /// first change after them; `None` if the bridge does not exist.
    pub fn watch_rules(&self, id: BridgeId) -> Option<(Tables, u64)> {
        let _order = lock(&self.writer);
        let view = self.view();
        let tables = &view.bridge(id)?.tables;
        tables.set_monitored(true);
        Some((tables.clone(), self.events.end(id)))
    }

    /// Ends it.
    pub fn unwatch_rules(&self, id: BridgeId) {
        let _order = lock(&self.writer);
        if let Some(bridge) = self.view().bridge(id) {
            bridge.tables.set_monitored(false);
        }
        self.events.passed(id, u64::MAX);
    }

    /// The present state of all bridges, and their meters; drops the recorded changes up to it.
    pub fn record_base(&self) -> (Arc<View>, Meters) {
        let _order = lock(&self.writer);
        let _older = self.recorder.take();
        (self.view(), self.recorder.meters())
    }
}
