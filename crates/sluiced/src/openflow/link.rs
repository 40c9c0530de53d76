//! [`Link`]: the socket of one OpenFlow connection, and its close state.

use crate::places::{ConnectionSlot, Standing};
use crate::stream::Conn;
use connmgr::{ConnId, Connmgr};

/// Reason for closing a connection whose peer has stopped sending.
pub(super) const CLOSED: &str = "connection closed by peer";
/// Reason for closing one whose peer has stopped reading.
pub(super) const RESET: &str = "connection reset by peer";

/// Reason for closing one that made no progress when another needed its place.
pub(super) const EVICTED: &str = "without progress";

/// A connection's socket and its role for the bridge.
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) id: Option<ConnId>,
    pub(super) origin: Origin,
    /// It may be readable.
    pub(super) unread: bool,
    /// It has stopped sending, for this reason: reply to its earlier requests first.
    pub(super) ended: Option<String>,
    /// It has stopped reading: execute the changes among its earlier requests all the same.
    pub(super) deaf: bool,
    /// The socket has accepted only part of the output: it has an event once it accepts more.
    pub(super) full: bool,
    /// Time at which a byte last passed.
    pub(super) progress_ms: u64,
    /// The log tells that both sides agree on a version.
    pub(super) is_agreed: bool,
}

impl Link {
    /// A link whose socket may be readable.
    pub(super) fn new(conn: Conn, id: Option<ConnId>, origin: Origin, now_ms: u64) -> Link {
        let (unread, deaf, full) = (true, false, false);
        Link { conn, id, origin, unread, ended: None, deaf, full, progress_ms: now_ms, is_agreed: false }
    }

    /// It has stopped reading; its earlier input can still be read.
    pub(super) fn deafen(&mut self, mgr: &mut Connmgr) {
        if !std::mem::replace(&mut self.deaf, true) {
            self.unread = self.ended.is_none();
            self.id.iter().for_each(|id| mgr.mute(*id));
        }
    }

    /// Its use, for the choice of a connection to end. One that has stopped reading ends soon anyway.
    pub(super) fn place(&self, mgr: &Connmgr) -> ConnectionSlot {
        let has_asked = self.id.is_none_or(|id| mgr.has_asked(id));
        let standing = match has_asked {
            _ if self.deaf => Standing::Served,
            _ if self.full => Standing::Unread,
            true => Standing::Served,
            false => Standing::Unused,
        };
        ConnectionSlot { token: self.conn.token(), standing, progress_ms: self.progress_ms }
    }

    /// It has stopped sending.
    pub(super) fn end(&mut self, why: String) {
        (self.ended, self.unread) = (Some(why), false);
    }
}

/// Origin of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Management,
    Snoop,
    /// The target of its controller, active or passive.
    Controller(String),
}

impl Origin {
    pub(super) fn target(&self) -> Option<&str> {
        match self {
            Origin::Controller(target) => Some(target),
            Origin::Management | Origin::Snoop => None,
        }
    }
}
