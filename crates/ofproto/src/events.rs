//! Events that wait for controllers: packets, and removed rules.
//!
//! Handlers, the revalidator and flow-mods add events; [`crate::connmgr`] takes them out, a bounded number at a
//! time. A packet beyond the limit is dropped and counted. A removed rule is never lost here: a caller that removes
//! rules one by one checks [`RemovedRules::room`] first and pauses without room; one indivisible change may exceed
//! the limit.

use crate::ports::BridgeId;
use crate::recirc::FrozenState;
use crate::rule::Rule;
use dpif::ControllerCookie;
use flow::FlowKey;
use openflow::msg::flow_mod::FlowModFlags;
use packet::Packet;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering, lock};

/// Waiting removed rules of a bridge beyond which changes that remove more of them pause.
pub const REMOVED_QUEUE: usize = 65_536;

/// A packet for the controllers of a bridge.
#[derive(Debug)]
pub struct PacketInEvent {
    /// Its frozen state, with metadata and registers.
    pub state: Arc<FrozenState>,
    /// Its reason and destination.
    pub cookie: ControllerCookie,
    /// The packet at that point.
    pub packet: Packet,
    /// Its key at that point.
    pub key: FlowKey,
    /// Identifies its bridge in continuations.
    pub bridge_uuid: [u8; 16],
}

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
    /// Evicted.
    Eviction,
}

/// A removed rule.
#[derive(Debug)]
pub struct RemovedEvent {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The reason.
    pub reason: RemovedReason,
}

/// Removed rules with `SEND_FLOW_REM`, oldest first, by bridge.
#[derive(Default)]
pub struct RemovedRules {
    waiting: Mutex<BTreeMap<BridgeId, VecDeque<RemovedEvent>>>,
    full: AtomicU64,
}

impl RemovedRules {
    /// Queues a removed rule if it has the flag.
    pub(crate) fn push(&self, bridge: BridgeId, rule: &Arc<Rule>, reason: RemovedReason) {
        if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) && !rule.is_hidden() {
            let event = RemovedEvent { rule: rule.clone(), reason };
            lock(&self.waiting).entry(bridge).or_default().push_back(event);
        }
    }

    /// Number of rules that a bridge may remove now; counts a lack of space.
    pub(crate) fn room(&self, bridge: BridgeId) -> usize {
        let room = REMOVED_QUEUE.saturating_sub(self.len(bridge));
        self.full.fetch_add(u64::from(room == 0), Ordering::Relaxed);
        room
    }

    /// Number of waiting rules of a bridge.
    pub fn len(&self, bridge: BridgeId) -> usize {
        lock(&self.waiting).get(&bridge).map_or(0, VecDeque::len)
    }

    /// Whether none of any bridge waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// Number of times that a change had to wait for space.
    pub fn times_full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Takes the oldest of a bridge.
    pub fn take(&self, bridge: BridgeId) -> Option<RemovedEvent> {
        let mut waiting = lock(&self.waiting);
        let queue = waiting.get_mut(&bridge)?;
        let event = queue.pop_front();
        if queue.is_empty() {
            waiting.remove(&bridge);
        }
        event
    }

    /// Puts the last taken one back: it is the oldest again.
    pub(crate) fn give_back(&self, bridge: BridgeId, event: RemovedEvent) {
        lock(&self.waiting).entry(bridge).or_default().push_front(event);
    }

    /// Drops those of a removed bridge.
    pub(crate) fn forget(&self, bridge: BridgeId) {
        lock(&self.waiting).remove(&bridge);
    }
}
