//! Causes of changes of rules, as controllers and monitors get them.

use crate::ids::ConnId;
use openflow::msg::flow_mod::FlowRemovedReason;

/// Reason for a rule's removal (`OFPRR_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovedReason {
    /// Idle timeout.
    Idle,
    /// Hard timeout.
    Hard,
    /// Deleted by a flow-mod.
    Delete,
    /// Its group was deleted.
    GroupDelete,
    /// Its meter was deleted.
    MeterDelete,
    /// Evicted.
    Eviction,
}

impl RemovedReason {
    /// Its number on the wire.
    pub fn on_wire(self) -> FlowRemovedReason {
        match self {
            RemovedReason::Idle => FlowRemovedReason::IdleTimeout,
            RemovedReason::Hard => FlowRemovedReason::HardTimeout,
            RemovedReason::Delete => FlowRemovedReason::Delete,
            RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
            RemovedReason::MeterDelete => FlowRemovedReason::MeterDelete,
            RemovedReason::Eviction => FlowRemovedReason::Eviction,
        }
    }
}

/// Cause of a change of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Reason, if it removes a rule.
    pub reason: RemovedReason,
    /// Whether a rule that replaces another counts as added; else as modified.
    pub adds: bool,
    /// Connection and transaction of the request, if the change is the request itself.
    pub request: Option<(ConnId, u32)>,
    /// Number of the request or other occasion: its changes are reported together.
    pub batch: u64,
}

impl Default for Cause {
    /// Deletions and additions by the switch itself.
    fn default() -> Cause {
        Cause { reason: RemovedReason::Delete, adds: true, request: None, batch: 0 }
    }
}
