//! Sessions of an engine by number and by interface, with their timers.
//!
//! Each session is once in an ordered set of wakeups, so the next one, and a change of one, cost O(log n). The owner
//! bounds the number of sessions: one for each interface.

use crate::protocol::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// A session with a timer.
pub(crate) trait Timed {
    /// Time of its next work: 0 is at once.
    fn next_wakeup(&self) -> u64;
    /// Whether its driver has something to report.
    fn has_changed(&self) -> bool;
}

#[derive(Debug)]
struct Slot<S> {
    name: String,
    session: S,
    wakeup_ms: u64,
}

/// The sessions.
#[derive(Debug)]
pub(crate) struct Slots<S> {
    slots: BTreeMap<SessionId, Slot<S>>,
    names: BTreeMap<String, SessionId>,
    wakeups: BTreeSet<(u64, SessionId)>,
    changed: BTreeSet<SessionId>,
    next_id: u32,
}

impl<S> Default for Slots<S> {
    fn default() -> Slots<S> {
        Slots {
            slots: BTreeMap::new(),
            names: BTreeMap::new(),
            wakeups: BTreeSet::new(),
            changed: BTreeSet::new(),
            next_id: 0,
        }
    }
}

impl<S: Timed> Slots<S> {
    /// The session of an interface.
    pub(crate) fn find(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    /// A session.
    pub(crate) fn get(&self, id: SessionId) -> Option<&S> {
        self.slots.get(&id).map(|slot| &slot.session)
    }

    /// The numbers in the order of the names.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.names.values().copied().collect()
    }

    /// Number of the next session.
    pub(crate) fn next_id(&mut self) -> SessionId {
        while self.slots.contains_key(&SessionId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        SessionId(self.next_id)
    }

    /// Adds the session of an interface that has none, with the number of [`Slots::next_id`].
    pub(crate) fn add(&mut self, name: &str, session: S) -> SessionId {
        let id = self.next_id();
        self.next_id = self.next_id.wrapping_add(1);
        let wakeup_ms = session.next_wakeup();
        self.wakeups.insert((wakeup_ms, id));
        self.changed.insert(id);
        self.names.insert(name.to_owned(), id);
        self.slots.insert(id, Slot { name: name.to_owned(), session, wakeup_ms });
        id
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, id: SessionId) {
        if let Some(slot) = self.slots.remove(&id) {
            self.names.remove(&slot.name);
            self.wakeups.remove(&(slot.wakeup_ms, id));
            self.changed.remove(&id);
        }
    }

    /// Changes a session and moves its timer.
    pub(crate) fn with<T>(&mut self, id: SessionId, change: impl FnOnce(&mut S) -> T) -> Option<T> {
        let slot = self.slots.get_mut(&id)?;
        let result = change(&mut slot.session);
        let wakeup_ms = slot.session.next_wakeup();
        if wakeup_ms != slot.wakeup_ms {
            self.wakeups.remove(&(slot.wakeup_ms, id));
            self.wakeups.insert((wakeup_ms, id));
            slot.wakeup_ms = wakeup_ms;
        }
        if slot.session.has_changed() {
            self.changed.insert(id);
        }
        Some(result)
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        self.wakeups.first().map(|(wakeup_ms, _)| *wakeup_ms)
    }

    /// The session that is due for the longest time.
    pub(crate) fn due(&self, now_ms: u64) -> Option<SessionId> {
        self.wakeups.first().filter(|(wakeup_ms, _)| *wakeup_ms <= now_ms).map(|(_, id)| *id)
    }

    /// Takes the number of a session with something to report.
    pub(crate) fn pop_changed(&mut self) -> Option<SessionId> {
        self.changed.pop_first()
    }
}
