//! How the main loop learns that a queue which it polls itself has something: its poll watches the queues' descriptors.
//!
//! It tells of a queue only once each time that something comes, so whoever is woken takes everything out.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// See the module. All queues share one token: which of them has something is not told.
#[derive(Debug)]
pub struct QueueWatch {
    registry: Registry,
    token: Token,
}

impl QueueWatch {
    /// Watches by the poll of this registry, with this token.
    pub fn new(registry: Registry, token: Token) -> QueueWatch {
        QueueWatch { registry, token }
    }

    /// Begins to watch a queue, which tells of what it has already.
    pub(super) fn add(&self, queue: BorrowedFd<'_>) -> io::Result<()> {
        SourceFd(&queue.as_raw_fd()).register(&self.registry, self.token, Interest::READABLE)
    }

    /// Ends it.
    pub(super) fn remove(&self, queue: BorrowedFd<'_>) {
        if let Err(e) = SourceFd(&queue.as_raw_fd()).deregister(&self.registry) {
            log::warn!(target: "dpif_netdev", "cannot stop watching a receive queue: {e}");
        }
    }
}
