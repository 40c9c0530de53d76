//! [`Link`]: the socket of one OpenFlow connection, and how far it is closed.

use crate::stream::Conn;
use ofproto::connmgr::ConnId;

/// Why a connection is over whose peer sends no more.
pub(super) const CLOSED: &str = "connection closed by peer";
/// Why one is over whose peer takes no more.
pub(super) const RESET: &str = "connection reset by peer";

/// A connection's socket and what it is to the bridge.
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) id: Option<ConnId>,
    pub(super) origin: Origin,
    /// There may be something to read.
    pub(super) unread: bool,
    /// It sends no more, for this reason: what it asked before is answered first.
    pub(super) ended: Option<String>,
    /// It takes no more: what it asked before is done all the same.
    pub(super) deaf: bool,
}

impl Link {
    /// It sends no more.
    pub(super) fn end(&mut self, why: String) {
        (self.ended, self.unread) = (Some(why), false);
    }
}

/// Where a connection comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Management,
    Snoop,
    /// The target of a controller, which it was made to or came to.
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
