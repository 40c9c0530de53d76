//! Events that wait for controllers: packets, and changes of rules.
//!
//! Handlers, the revalidator and flow-mods add events; the crate `connmgr` takes them out, a bounded number at a
//! time. A packet beyond the limit is dropped and counted.
//!
//! Changes of rules come from the journal of each published version ([`RuleEvents::follow`]), in the order of
//! publication. Removed rules with `SEND_FLOW_REM` wait to be reported once. While a controller monitors the bridge,
//! all changes of rules wait too, numbered, until every monitoring connection has passed them. No change is lost
//! here: a caller that changes rules one by one checks [`RuleEvents::room`] first and pauses without room; one
//! indivisible change may exceed the limit.

pub use crate::cause::{Cause, RemovedReason};
use crate::ids::BridgeId;
use crate::recirc::FrozenState;
use crate::rule::Rule;
use crate::rule_index::RuleChange;
use crate::tables::Journal;
use dpif::ControllerCookie;
use flow::FlowKey;
use openflow::msg::control::TableStatus;
use openflow::msg::flow_mod::FlowModFlags;
use packet::Packet;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering, lock};

/// Waiting changes of a bridge beyond which changes of its rules pause.
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
    /// Identifies the bridge of a paused translation.
    pub paused_in: Option<[u8; 16]>,
}

/// A removed rule.
#[derive(Debug)]
pub struct RemovedEvent {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The reason.
    pub reason: RemovedReason,
}

/// A change of a rule.
#[derive(Clone, Debug)]
pub struct RuleEvent {
    /// The rule before and after.
    pub change: RuleChange,
    /// The cause.
    pub cause: Cause,
}

/// Changes of a bridge's rules.
#[derive(Default)]
struct Waiting {
    removed: VecDeque<RemovedEvent>,
    statuses: VecDeque<TableStatus>,
    changes: VecDeque<RuleEvent>,
    /// Number of the first of `changes`.
    first: u64,
}

/// Changes of rules, oldest first, by bridge.
#[derive(Default)]
pub struct RuleEvents {
    waiting: Mutex<BTreeMap<BridgeId, Waiting>>,
    full: AtomicU64,
}

impl RuleEvents {
    /// Queues the changes of a published version; `monitored`: for monitors too. The caller excludes other writers.
    pub(crate) fn follow(&self, bridge: BridgeId, journal: &Journal, monitored: bool) {
        let reported = |rule: &&Arc<Rule>| rule.flags.contains(FlowModFlags::SEND_FLOW_REM);
        let mut removed =
            journal.removed().filter(|(rule, _)| reported(rule) && !rule.is_hidden()).peekable();
        if removed.peek().is_none() && !monitored && journal.statuses().next().is_none() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        let queues = waiting.entry(bridge).or_default();
        queues.removed.extend(removed.map(|(rule, reason)| RemovedEvent { rule: rule.clone(), reason }));
        queues.statuses.extend(journal.statuses());
        if monitored {
            journal.for_each(&mut |change, cause| {
                if change.after.as_ref().or(change.before.as_ref()).is_some_and(|rule| !rule.is_hidden()) {
                    queues.changes.push_back(RuleEvent { change: change.clone(), cause });
                }
            });
        }
    }

    /// Number of changes that a bridge may make now; counts a lack of space.
    pub fn room(&self, bridge: BridgeId) -> usize {
        let waiting = self.with(bridge, |w| w.removed.len().max(w.changes.len()).max(w.statuses.len()));
        let room = REMOVED_QUEUE.saturating_sub(waiting);
        self.full.fetch_add(u64::from(room == 0), Ordering::Relaxed);
        room
    }

    fn with<R: Default>(&self, bridge: BridgeId, f: impl FnOnce(&mut Waiting) -> R) -> R {
        lock(&self.waiting).get_mut(&bridge).map(f).unwrap_or_default()
    }

    /// Whether changes of a bridge's rules wait for space.
    pub fn is_full(&self, bridge: BridgeId) -> bool {
        self.with(bridge, |w| w.changes.len() >= REMOVED_QUEUE)
    }

    /// Number of waiting removed rules of a bridge.
    pub fn removed_len(&self, bridge: BridgeId) -> usize {
        self.with(bridge, |w| w.removed.len())
    }

    /// Whether none of any bridge waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.waiting)
            .values()
            .all(|w| w.removed.is_empty() && w.changes.is_empty() && w.statuses.is_empty())
    }

    /// Number of times that a change had to wait for space.
    pub fn times_full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Takes the oldest removed rule of a bridge.
    pub fn take_removed(&self, bridge: BridgeId) -> Option<RemovedEvent> {
        self.with(bridge, |w| w.removed.pop_front())
    }

    /// Takes the reports of room in tables of a bridge.
    pub fn take_statuses(&self, bridge: BridgeId) -> VecDeque<TableStatus> {
        self.with(bridge, |w| std::mem::take(&mut w.statuses))
    }

    /// Puts the last taken one back: it is the oldest again.
    pub fn give_back(&self, bridge: BridgeId, event: RemovedEvent) {
        self.with(bridge, |w| w.removed.push_front(event));
    }

    /// Number of the next change of a bridge for its monitors.
    pub fn end(&self, bridge: BridgeId) -> u64 {
        self.with(bridge, |w| w.first + w.changes.len() as u64)
    }

    /// Changes of a bridge from number `from` on, at most `max`; monitors have not passed `from`.
    pub fn changes(&self, bridge: BridgeId, from: u64, max: usize) -> Vec<RuleEvent> {
        self.with(bridge, |w| {
            let skipped = from.saturating_sub(w.first) as usize;
            w.changes.iter().skip(skipped).take(max).cloned().collect()
        })
    }

    /// Drops changes before number `n`: every monitoring connection has passed them.
    pub fn passed(&self, bridge: BridgeId, n: u64) {
        self.with(bridge, |w| {
            let gone = (n.saturating_sub(w.first) as usize).min(w.changes.len());
            w.changes.drain(..gone);
            w.first += gone as u64;
        });
    }

    /// Drops those of a removed bridge.
    pub(crate) fn forget(&self, bridge: BridgeId) {
        lock(&self.waiting).remove(&bridge);
    }
}
