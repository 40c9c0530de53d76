//! Assignment of receive queues to threads: pure decisions, in the caller's time.
//!
//! [`assign`] assigns queues to threads, [`load`] stores their costs, [`balance`] decides when a new assignment is
//! worthwhile. `replan` moves queues.

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
    /// Its number in the port, from 0.
    pub(crate) queue: u16,
}
