//! Sessions of an engine by number and by interface, with their timers.
//!
//! A session is found by its number in one step. Wakeups are in a heap: one that a session no longer has is skipped when its
//! time comes. The owner bounds the number of sessions: one for each interface.

use crate::protocol::SessionId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

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
    /// By number.
    slots: Vec<Option<Slot<S>>>,
    /// Numbers below the length of `slots` that no session has.
    free: BTreeSet<u32>,
    names: BTreeMap<String, SessionId>,
    /// The wakeup of each session, and former ones.
    wakeups: BinaryHeap<Reverse<(u64, SessionId)>>,
    changed: BTreeSet<SessionId>,
}

/// Wakeups of a session beyond which former ones are dropped.
const WAKEUPS_EACH: usize = 4;

impl<S> Default for Slots<S> {
    fn default() -> Slots<S> {
        Slots {
            slots: Vec::new(),
            free: BTreeSet::new(),
            names: BTreeMap::new(),
            wakeups: BinaryHeap::new(),
            changed: BTreeSet::new(),
        }
    }
}

impl<S: Timed> Slots<S> {
    /// Number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The session of an interface.
    pub(crate) fn find(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    fn slot(&self, id: SessionId) -> Option<&Slot<S>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// A session.
    pub(crate) fn get(&self, id: SessionId) -> Option<&S> {
        self.slot(id).map(|slot| &slot.session)
    }

    /// Names and numbers in the order of the names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, SessionId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// The numbers in the order of the names.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.names.values().copied().collect()
    }

    /// Number of the next session.
    pub(crate) fn next_id(&self) -> SessionId {
        SessionId(self.free.first().copied().unwrap_or(self.slots.len() as u32))
    }

    /// Adds the session of an interface that has none, with the number of [`Slots::next_id`].
    pub(crate) fn add(&mut self, name: &str, session: S) -> SessionId {
        let id = self.next_id();
        let wakeup_ms = session.next_wakeup();
        let slot = Some(Slot { name: name.to_owned(), session, wakeup_ms });
        match self.slots.get_mut(id.0 as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.free.remove(&id.0);
        self.changed.insert(id);
        self.names.insert(name.to_owned(), id);
        self.wake(id, wakeup_ms);
        id
    }

    /// Removes a session; returns it.
    pub(crate) fn remove(&mut self, id: SessionId) -> Option<S> {
        let slot = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.insert(id.0);
        self.names.remove(&slot.name);
        self.changed.remove(&id);
        self.skip_former();
        Some(slot.session)
    }

    /// Changes a session and moves its timer.
    pub(crate) fn with<T>(&mut self, id: SessionId, change: impl FnOnce(&mut S) -> T) -> Option<T> {
        let slot = self.slots.get_mut(id.0 as usize)?.as_mut()?;
        let result = change(&mut slot.session);
        let wakeup_ms = slot.session.next_wakeup();
        if slot.session.has_changed() {
            self.changed.insert(id);
        }
        if wakeup_ms != slot.wakeup_ms {
            slot.wakeup_ms = wakeup_ms;
            self.wake(id, wakeup_ms);
        }
        Some(result)
    }

    /// Adds a wakeup; rarely, drops all former ones.
    fn wake(&mut self, id: SessionId, wakeup_ms: u64) {
        self.wakeups.push(Reverse((wakeup_ms, id)));
        if self.wakeups.len() > WAKEUPS_EACH * self.slots.len() {
            let of_slot = |(n, slot): (usize, &Option<Slot<S>>)| {
                Some(Reverse((slot.as_ref()?.wakeup_ms, SessionId(n as u32))))
            };
            self.wakeups = self.slots.iter().enumerate().filter_map(of_slot).collect();
        }
        self.skip_former();
    }

    /// Drops wakeups that their session no longer has, up to the first that is one.
    fn skip_former(&mut self) {
        while let Some(Reverse((wakeup_ms, id))) = self.wakeups.peek() {
            if self.slot(*id).is_some_and(|slot| slot.wakeup_ms == *wakeup_ms) {
                return;
            }
            self.wakeups.pop();
        }
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        self.wakeups.peek().map(|Reverse((wakeup_ms, _))| *wakeup_ms)
    }

    /// The session that is due for the longest time.
    pub(crate) fn due(&self, now_ms: u64) -> Option<SessionId> {
        let Reverse((wakeup_ms, id)) = self.wakeups.peek()?;
        (*wakeup_ms <= now_ms).then_some(*id)
    }

    /// Takes the number of a session with something to report.
    pub(crate) fn pop_changed(&mut self) -> Option<SessionId> {
        self.changed.pop_first()
    }
}

#[cfg(test)]
mod tests;
