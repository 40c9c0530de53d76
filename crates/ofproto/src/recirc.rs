//! Frozen translations, resumed by recirculated packets and continuations of controllers.
//!
//! Ids are process-wide, sequential from 1, and reference-counted: equal states share one id. Bounded by
//! [`MAX_IDS`].

use crate::ids::{BridgeId, BundleId};
use crate::packet_state::PacketState;
use flow::{OfPort, RecircId, TableId};
use hashbrown::HashTable;
use ofp_actions::Action;
use rapidhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Maximum number of frozen states.
pub const MAX_IDS: usize = 1 << 20;

/// Remaining actions of a frozen translation, with their table and rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrozenStep {
    /// Table of a `resubmit` without a table.
    pub table: TableId,
    /// Cookie reported to controllers.
    pub cookie: u64,
    /// The remaining actions.
    pub actions: Vec<Action>,
}

/// State of a resumed translation beside the packet's bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrozenState {
    /// Bridge in which it froze.
    pub bridge: BridgeId,
    /// Table in which it froze.
    pub table: TableId,
    /// The state that travels with the packet.
    pub packet: PacketState,
    /// Remaining actions, innermost first.
    pub steps: Vec<FrozenStep>,
    /// Table in which the packet is looked up again, after `ct`.
    pub resume_at: Option<TableId>,
    /// Data for the controller that resumes it.
    pub userdata: Vec<u8>,
    /// A bond chooses its member now, by the hash.
    pub bond: Option<BundleId>,
}

/// Table of the switch's own rules, which take packets of bonds after their recirculation.
pub const INTERNAL_TABLE: TableId = TableId(254);

impl FrozenState {
    /// The state of packets that a bond of a bridge sends by their hash.
    pub fn of_bond(bridge: BridgeId, bundle: BundleId) -> FrozenState {
        FrozenState {
            bridge,
            table: INTERNAL_TABLE,
            packet: PacketState::received_by(OfPort::NONE),
            steps: Vec::new(),
            resume_at: None,
            userdata: Vec::new(),
            bond: Some(bundle),
        }
    }
}

#[derive(Debug)]
struct HeldState {
    state: Arc<FrozenState>,
    /// Hash of the state.
    hash: u64,
    holders: u64,
}

/// A state with its hash, so that a table grows without reading states.
#[derive(Debug)]
struct Named {
    hash: u64,
    id: RecircId,
}

/// Number of shards: while one grows, handlers wait only for that shard.
const PARTS: usize = 256;

/// The frozen states of a process.
#[derive(Debug)]
pub struct RecircTable {
    by_id: Box<[HashMap<RecircId, HeldState, RandomState>]>,
    by_state: Box<[HashTable<Named>]>,
    len: usize,
    hasher: RandomState,
    last: u32,
    max_ids: usize,
}

impl Default for RecircTable {
    fn default() -> RecircTable {
        RecircTable::with_limit(MAX_IDS)
    }
}

impl RecircTable {
    /// An empty table for at most `max_ids` states.
    pub fn with_limit(max_ids: usize) -> RecircTable {
        RecircTable {
            by_id: (0..PARTS).map(|_| HashMap::default()).collect(),
            by_state: (0..PARTS).map(|_| HashTable::new()).collect(),
            len: 0,
            hasher: RandomState::new(),
            last: 0,
            max_ids,
        }
    }

    fn held(&self, id: RecircId) -> Option<&HeldState> {
        self.by_id[id.0 as usize % PARTS].get(&id)
    }

    fn held_mut(&mut self, id: RecircId) -> Option<&mut HeldState> {
        self.by_id[id.0 as usize % PARTS].get_mut(&id)
    }

    /// Index of the shard for that hash, from other bits than those used by a hash table.
    fn part(hash: u64) -> usize {
        (hash >> 40) as usize % PARTS
    }

    /// Takes a reference to the id of `state`, allocated if new. `None` if the table is full.
    pub fn hold_state(&mut self, state: FrozenState) -> Option<RecircId> {
        let hash = self.hasher.hash_one(&state);
        let same = |n: &Named| n.hash == hash && self.held(n.id).is_some_and(|h| *h.state == state);
        if let Some(id) = self.by_state[RecircTable::part(hash)].find(hash, same).map(|n| n.id) {
            self.hold(id);
            return Some(id);
        }
        if self.len >= self.max_ids {
            return None;
        }
        let id = loop {
            self.last = self.last.wrapping_add(1);
            let id = RecircId(self.last);
            if id.0 != 0 && self.held(id).is_none() {
                break id;
            }
        };
        self.by_state[RecircTable::part(hash)].insert_unique(hash, Named { hash, id }, |n| n.hash);
        self.by_id[id.0 as usize % PARTS].insert(id, HeldState { state: Arc::new(state), hash, holders: 1 });
        self.len += 1;
        Some(id)
    }

    /// Takes a reference to an id.
    pub fn hold(&mut self, id: RecircId) -> bool {
        let Some(h) = self.held_mut(id) else { return false };
        h.holders += 1;
        true
    }

    /// Drops a reference; the last one frees the id and returns its state.
    pub fn release(&mut self, id: RecircId) -> Option<Arc<FrozenState>> {
        let h = self.held_mut(id)?;
        h.holders -= 1;
        if h.holders > 0 {
            return None;
        }
        let h = self.by_id[id.0 as usize % PARTS].remove(&id)?;
        self.len -= 1;
        if let Ok(named) = self.by_state[RecircTable::part(h.hash)].find_entry(h.hash, |n| n.id == id) {
            named.remove();
        }
        Some(h.state)
    }

    /// The state of an id.
    pub fn state(&self, id: RecircId) -> Option<Arc<FrozenState>> {
        self.held(id).map(|h| h.state.clone())
    }

    /// Number of states held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no states.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
