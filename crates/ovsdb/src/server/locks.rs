//! Locks (RFC 7047 sections 4.1.8 to 4.1.10): a queue of sessions for each name, owned by the first.

use std::collections::BTreeMap;

use super::SessionId;
use crate::limits::MAX_LOCKS;

/// All locks of a server.
#[derive(Debug, Default)]
pub(super) struct Locks {
    queues: BTreeMap<String, Vec<SessionId>>,
}

/// Reason for rejecting a lock request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The session already owns it or waits for it.
    AlreadyQueued,
    /// The session has too many.
    TooMany,
}

impl Locks {
    /// Whether the session owns or waits for any lock.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.queues.values().any(|queue| queue.contains(&session))
    }

    pub(super) fn owns(&self, session: SessionId, name: &str) -> bool {
        self.queues.get(name).and_then(|queue| queue.first()) == Some(&session)
    }

    /// Queues at the end, or with `steal` at the front. Returns whether the session owns the lock now, and
    /// the session that lost it. The latter stays in the queue.
    pub(super) fn request(
        &mut self,
        session: SessionId,
        name: &str,
        steal: bool,
    ) -> Result<(bool, Option<SessionId>), Refused> {
        if self.queues.values().filter(|queue| queue.contains(&session)).count() >= MAX_LOCKS {
            return Err(Refused::TooMany);
        }
        let queue = self.queues.entry(name.to_string()).or_default();
        if queue.contains(&session) {
            return Err(Refused::AlreadyQueued);
        }
        let owner = queue.first().copied();
        if steal {
            queue.insert(0, session);
            return Ok((true, owner));
        }
        queue.push(session);
        Ok((owner.is_none(), None))
    }

    /// Leaves the queue. `None` if the session was not in it; else the new owner, if any.
    pub(super) fn release(&mut self, session: SessionId, name: &str) -> Option<Option<SessionId>> {
        let queue = self.queues.get_mut(name)?;
        let place = queue.iter().position(|other| *other == session)?;
        queue.remove(place);
        let heir = queue.first().copied().filter(|_| place == 0);
        if queue.is_empty() {
            self.queues.remove(name);
        }
        Some(heir)
    }

    /// Leaves all queues. Returns the locks with a new owner.
    pub(super) fn leave(&mut self, session: SessionId) -> Vec<(String, SessionId)> {
        let names: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.contains(&session))
            .map(|(name, _)| name.clone())
            .collect();
        names
            .into_iter()
            .filter_map(|name| self.release(session, &name).flatten().map(|heir| (name, heir)))
            .collect()
    }
}
