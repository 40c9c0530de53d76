//! Notification of the main loop about queues that it polls itself: its poll watches the queues' descriptors.
//!
//! It is edge-triggered, so the woken caller must drain the queues.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// See the module documentation. All queues share one token, which does not identify the queue.
#[derive(Debug)]
pub struct QueueWatch {
    registry: Registry,
    token: Token,
}

impl QueueWatch {
    /// Watches through the poll of this registry, with this token.
    pub fn new(registry: Registry, token: Token) -> QueueWatch {
        QueueWatch { registry, token }
    }

    /// Begins to watch a queue; reports frames already waiting.
    pub(super) fn add(&self, queue: BorrowedFd<'_>) -> io::Result<()> {
        SourceFd(&queue.as_raw_fd()).register(&self.registry, self.token, Interest::READABLE)
    }

    /// Stops watching a queue.
    pub(super) fn remove(&self, queue: BorrowedFd<'_>) {
        if let Err(e) = SourceFd(&queue.as_raw_fd()).deregister(&self.registry) {
            log::warn!(target: "dpif_netdev", "cannot stop watching a receive queue: {e}");
        }
    }
}
