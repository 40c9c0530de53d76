//! Which thread polls which receive queue: pure decisions, in the caller's time.
//!
//! [`assign`] shares queues out among threads, [`load`] remembers what they cost, [`balance`] says when sharing them out anew
//! is worth it. Nothing here moves a queue; `replan` does.

pub(crate) mod assign;
pub(crate) mod balance;
pub(crate) mod load;
#[cfg(test)]
mod tests;

use flow::DpPort;

/// A receive queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueId {
    /// The port.
    pub(crate) port: DpPort,
    /// Its number among the port's, from 0.
    pub(crate) queue: u16,
}
