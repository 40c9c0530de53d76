//! Frozen translations: what a recirculated packet, or one on its way to a controller, resumes.
//!
//! Ids are process-wide, sequential from 1, and counted by who holds them: equal states share one id while it is held.
//! Bounded by [`MAX_IDS`].

use crate::ports::BridgeId;
use flow::action::Action;
use flow::{RecircId, TableId};
use rapidhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// How many frozen states there may be at a time.
pub const MAX_IDS: usize = 1 << 20;

/// Actions that were left when a translation froze, with the table and rule they belong to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrozenStep {
    /// Table that a `resubmit` without a table means.
    pub table: TableId,
    /// Cookie told to controllers.
    pub cookie: u64,
    /// What is left to do.
    pub actions: Vec<Action>,
}

/// Everything that a resumed translation needs beside the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrozenState {
    /// Bridge in which it froze.
    pub bridge: BridgeId,
    /// Table in which it froze.
    pub table: TableId,
    /// OpenFlow input port.
    pub in_port: u32,
    /// OpenFlow metadata.
    pub metadata: u64,
    /// Registers.
    pub regs: [u32; 16],
    /// Tunnel key set so far.
    pub tun_id: u64,
    /// Stack of `push` actions.
    pub stack: Vec<Vec<u8>>,
    /// What is left to do, innermost first.
    pub steps: Vec<FrozenStep>,
    /// Action set so far.
    pub action_set: Vec<Action>,
    /// For the controller that is to resume it.
    pub userdata: Vec<u8>,
}

#[derive(Debug)]
struct Held {
    state: Arc<FrozenState>,
    holders: u64,
}

/// The frozen states of a process.
#[derive(Debug)]
pub struct RecircTable {
    by_id: HashMap<RecircId, Held, RandomState>,
    by_state: HashMap<Arc<FrozenState>, RecircId, RandomState>,
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
        RecircTable { by_id: HashMap::default(), by_state: HashMap::default(), last: 0, max_ids }
    }

    /// The id of `state`, made when there is none, with one more holder. `None` when the table is full.
    pub fn hold_state(&mut self, state: FrozenState) -> Option<RecircId> {
        if let Some(id) = self.by_state.get(&state).copied() {
            self.hold(id);
            return Some(id);
        }
        if self.by_id.len() >= self.max_ids {
            return None;
        }
        let id = loop {
            self.last = self.last.wrapping_add(1);
            let id = RecircId(self.last);
            if id.0 != 0 && !self.by_id.contains_key(&id) {
                break id;
            }
        };
        let state = Arc::new(state);
        self.by_state.insert(state.clone(), id);
        self.by_id.insert(id, Held { state, holders: 1 });
        Some(id)
    }

    /// One more holder of an id.
    pub fn hold(&mut self, id: RecircId) -> bool {
        let Some(h) = self.by_id.get_mut(&id) else { return false };
        h.holders += 1;
        true
    }

    /// One holder less; the last one ends the id, and what it stood for is given back.
    pub fn release(&mut self, id: RecircId) -> Option<Arc<FrozenState>> {
        let h = self.by_id.get_mut(&id)?;
        h.holders -= 1;
        if h.holders > 0 {
            return None;
        }
        let h = self.by_id.remove(&id)?;
        self.by_state.remove(&h.state);
        Some(h.state)
    }

    /// What an id stands for.
    pub fn state(&self, id: RecircId) -> Option<Arc<FrozenState>> {
        self.by_id.get(&id).map(|h| h.state.clone())
    }

    /// Number of states held.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no state is held.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests;
