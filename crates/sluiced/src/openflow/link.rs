//! [`Link`]: the socket of one OpenFlow connection, and its close state.

use crate::stream::Conn;
use ofproto::connmgr::ConnId;

/// Reason for closing a connection whose peer has stopped sending.
pub(super) const CLOSED: &str = "connection closed by peer";
/// Reason for closing one whose peer has stopped reading.
pub(super) const RESET: &str = "connection reset by peer";

/// A connection's socket and its role for the bridge.
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) id: Option<ConnId>,
    pub(super) origin: Origin,
    /// It may be readable.
    pub(super) unread: bool,
    /// It has stopped sending, for this reason: reply to its earlier requests first.
    pub(super) ended: Option<String>,
    /// It has stopped reading: execute its earlier requests all the same.
    pub(super) deaf: bool,
}

impl Link {
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
