//! [`DummyOffload`]: the provider of dummies. It marks received frames, has no counters and counts no rules, as in
//! stock switches.

use super::{Accepted, FlowOffload, OffloadRule, RuleId};
use datapath::DpShared;
use dpif::FlowStats;
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask};
use netdev::dummy::Dummy;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{Mutex, lock};

/// A rule of a dummy.
struct Marked {
    key: FlowKey,
    mask: KeyMask,
    mark: u32,
}

type Table = Arc<Mutex<BTreeMap<RuleId, Marked>>>;

/// See the module documentation.
pub(crate) struct DummyOffload {
    dummy: Dummy,
    table: Table,
}

impl DummyOffload {
    /// For the port of that number.
    pub(crate) fn new(dummy: Dummy, port: DpPort, shared: Arc<DpShared>) -> DummyOffload {
        let table = Table::default();
        let rules = table.clone();
        let metadata = Metadata { in_port: port.0, ..Metadata::default() };
        dummy.set_marker(Some(Arc::new(move |frame: &[u8]| {
            let rules = lock(&rules);
            if rules.is_empty() {
                return 0;
            }
            let mut key = FlowKey::default();
            extract(frame, &metadata, shared.vlan_limit(), &mut key);
            let found = rules.values().find(|rule| rule.key.matches(&rule.mask, &key));
            found.map_or(0, |rule| rule.mark)
        })));
        DummyOffload { dummy, table }
    }
}

impl FlowOffload for DummyOffload {
    fn name(&self) -> &'static str {
        "dummy"
    }

    fn put(&mut self, rule: &OffloadRule<'_>) -> Option<Accepted> {
        let marked = Marked { key: *rule.key, mask: *rule.mask, mark: rule.mark };
        let how = match lock(&self.table).insert(rule.id, marked) {
            Some(_) => "modify",
            None => "create",
        };
        log::debug!(target: "netdev_dummy", "{}: flow put[{how}]: mark: {}", self.dummy.name(), rule.mark);
        Some(Accepted::Marks)
    }

    fn del(&mut self, id: RuleId) -> Option<FlowStats> {
        let marked = lock(&self.table).remove(&id)?;
        log::debug!(target: "netdev_dummy", "{}: flow del: mark: {}", self.dummy.name(), marked.mark);
        None
    }

    fn stats(&mut self, _: RuleId) -> Option<FlowStats> {
        None
    }

    fn inserted(&self) -> u64 {
        0
    }
}

impl Drop for DummyOffload {
    fn drop(&mut self) {
        self.dummy.set_marker(None);
    }
}
