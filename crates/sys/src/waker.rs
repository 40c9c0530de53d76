//! Waking a thread that waits in poll(2) or epoll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd(2). Any thread may wake; the waiting one drains. Wakes between two drains count as one.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// A new one, not woken.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// Makes the descriptor readable until the next drain.
    pub fn wake(&self) {
        // The only failure is a counter about to overflow: then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Clears all wakes so far; returns whether there was one. Drain before checking for work.
    pub fn drain(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count).is_ok()
    }

    /// Readable while woken.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
