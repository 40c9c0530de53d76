//! Snoops: connections that get a copy of every message to and from the bridge's controllers.
//!
//! The controllers' sessions keep copies only while a snoop exists. A snoop is skipped if its output is full (limit
//! in [`super::conn`]), or if more copies arrive at once than a session keeps: controllers never wait for it.
//!
//! The log of the daemon has its own copies, of all connections, while its level wants them.

use super::{ConnId, ConnKind, Connmgr, Refusal};
use ofp_wire::Options;
use openflow::Version;
use openflow::message_log::MessageLog;
use openflow::session::{CloseReason, SendError};

impl Connmgr {
    /// Starts or stops keeping copies after a connection opens or closes.
    pub(super) fn watchers_changed(&mut self) {
        let watched = self.conns.values().any(|c| c.kind == ConnKind::Snoop && !c.is_over());
        for conn in self.conns.values_mut().filter(|c| c.kind == ConnKind::Controller) {
            conn.session.set_tap(watched);
        }
    }

    /// Starts or stops keeping the messages of all connections, for the log.
    pub fn keep_messages(&mut self, on: bool) {
        if self.keeps_messages != on {
            self.keeps_messages = on;
            self.conns.values_mut().for_each(|c| c.session.set_log(on));
        }
    }

    /// The messages of a connection since the last call, if they are kept, with its version and options.
    pub fn take_messages(&mut self, id: ConnId) -> Option<(MessageLog, Option<Version>, Options)> {
        let session = &mut self.conns.get_mut(&id)?.session;
        Some((session.take_log()?, session.version(), session.options().clone()))
    }

    /// The errors that a connection was sent since the last call; of many only the first.
    pub fn take_refusals(&mut self, id: ConnId) -> Vec<Refusal> {
        self.conns.get_mut(&id).map(|conn| std::mem::take(&mut conn.refusals)).unwrap_or_default()
    }

    /// Passes the copies to the snoops.
    pub(super) fn relay(&mut self) {
        if !self.conns.values().any(|c| c.kind == ConnKind::Snoop) {
            return;
        }
        let (mut copies, mut lost) = (Vec::new(), false);
        for conn in self.conns.values_mut() {
            match conn.session.take_tap() {
                Some(more) => copies.extend(more),
                None => lost = true,
            }
        }
        let mut left = false;
        for watcher in self.conns.values_mut().filter(|c| c.kind == ConnKind::Snoop && !c.is_over()) {
            let full = matches!(
                watcher.session.send_copies(&copies),
                Err(SendError::Full { .. } | SendError::Short)
            );
            if full || lost {
                watcher.over = Some(CloseReason::OutputOverflow);
                left = true;
            }
        }
        if left {
            self.watchers_changed();
        }
    }
}
