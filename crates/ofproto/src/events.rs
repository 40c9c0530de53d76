//! What waits to be told to controllers: packets, and rules that ended.
//!
//! Handlers, the revalidator and flow-mods put events in; [`crate::connmgr`] takes them out, a bounded number at a time.
//! A packet that finds no room is lost and counted. An ended rule is never lost here: who ends rules one after another asks
//! [`RemovedRules::room`] first and goes on later; one change that cannot be divided may go beyond the limit.

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

/// How many ended rules of a bridge may wait before changes that end more of them pause.
pub const REMOVED_QUEUE: usize = 65_536;

/// A packet for the controllers of a bridge.
#[derive(Debug)]
pub struct PacketInEvent {
    /// Where it froze, with metadata and registers.
    pub state: Arc<FrozenState>,
    /// Why, and for whom.
    pub cookie: ControllerCookie,
    /// The packet at that point.
    pub packet: Packet,
    /// Its key at that point.
    pub key: FlowKey,
}

/// Why a rule ended (`OFPRR_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovedReason {
    /// Idle timeout.
    Idle,
    /// Hard timeout.
    Hard,
    /// Deleted by a flow-mod.
    Delete,
    /// Evicted.
    Eviction,
}

/// A rule that ended.
#[derive(Debug)]
pub struct RemovedEvent {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Why.
    pub reason: RemovedReason,
}

/// Rules that ended and asked for that to be told, oldest first, by bridge.
#[derive(Default)]
pub struct RemovedRules {
    waiting: Mutex<BTreeMap<BridgeId, VecDeque<RemovedEvent>>>,
    full: AtomicU64,
}

impl RemovedRules {
    /// Tells of a rule that ended, if it asked for that.
    pub(crate) fn push(&self, bridge: BridgeId, rule: &Arc<Rule>, reason: RemovedReason) {
        if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) && !rule.is_hidden() {
            let event = RemovedEvent { rule: rule.clone(), reason };
            lock(&self.waiting).entry(bridge).or_default().push_back(event);
        }
    }

    /// How many more a bridge may end now; that there is room for none is counted.
    pub(crate) fn room(&self, bridge: BridgeId) -> usize {
        let room = REMOVED_QUEUE.saturating_sub(self.len(bridge));
        self.full.fetch_add(u64::from(room == 0), Ordering::Relaxed);
        room
    }

    /// How many of a bridge wait.
    pub fn len(&self, bridge: BridgeId) -> usize {
        lock(&self.waiting).get(&bridge).map_or(0, VecDeque::len)
    }

    /// Whether none of any bridge waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// How often a change had to wait for room.
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

    /// Gives the one taken last back: it is the oldest again.
    pub(crate) fn give_back(&self, bridge: BridgeId, event: RemovedEvent) {
        lock(&self.waiting).entry(bridge).or_default().push_front(event);
    }

    /// Forgets those of a bridge that is gone.
    pub(crate) fn forget(&self, bridge: BridgeId) {
        lock(&self.waiting).remove(&bridge);
    }
}
