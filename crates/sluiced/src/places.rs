//! Choice of the connection that ends for a new one at the limit of its kind. Pure: the owners of connections
//! (`openflow`, `db`, `unixctl`) describe them and close the chosen one.
//!
//! Clients that hold connections without use must not lock out others. A connection whose peer reads its replies, and
//! which holds anything or has asked for anything, never ends for a new one.

use mio::Token;

#[cfg(test)]
mod tests;

/// Use of a connection, those that end first at the beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// The peer does not read: its socket is full.
    Unread,
    /// The peer has nothing pending, and holds nothing that it asked for.
    Unused,
    /// It stays.
    Served,
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionSlot {
    /// Its token.
    pub(crate) token: Token,
    /// Its use.
    pub(crate) standing: Standing,
    /// Time at which a byte last passed in either direction.
    pub(crate) progress_ms: u64,
}

/// The connection to end for a new one: of the first standing, that without progress for the longest time, then the
/// oldest. `None` if all stay.
pub(crate) fn to_evict(places: impl Iterator<Item = ConnectionSlot>) -> Option<Token> {
    let able = places.filter(|p| p.standing != Standing::Served);
    able.min_by_key(|p| (p.standing, p.progress_ms, p.token)).map(|p| p.token)
}
