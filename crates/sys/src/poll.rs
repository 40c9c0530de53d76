//! Waiting for descriptors by ppoll(2): without registration, so suited to few descriptors and rare sleeps.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// A set of descriptors to wait for.
#[derive(Default)]
pub struct PollSet<'fd> {
    fds: Vec<libc::pollfd>,
    borrowed: PhantomData<BorrowedFd<'fd>>,
}

/// State of a descriptor after a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Reading does not block (it may return an error or the end).
    pub readable: bool,
    /// Writing does not block.
    pub writable: bool,
    /// An error is pending, the other end has closed, or the descriptor is not open.
    pub error: bool,
}

impl<'fd> PollSet<'fd> {
    /// An empty set.
    pub fn new() -> PollSet<'fd> {
        PollSet::default()
    }

    /// Adds a descriptor to wait for until it is readable, and optionally writable; returns its index in the
    /// set.
    pub fn add(&mut self, fd: BorrowedFd<'fd>, writable: bool) -> usize {
        let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
        self.fds.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
        self.fds.len() - 1
    }

    /// Waits until one is ready, or for `timeout` (for ever if `None`). Returns the number of ready ones; 0
    /// also after a signal.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(|t| libc::timespec {
            tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(t.subsec_nanos() as i32),
        });
        let timeout_ptr = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array has that many elements; the timeout, if any, is alive through the call; the signal mask is
        // left alone.
        let ready = unsafe {
            libc::ppoll(self.fds.as_mut_ptr(), self.fds.len() as libc::nfds_t, timeout_ptr, std::ptr::null())
        };
        if let Ok(ready) = usize::try_from(ready) {
            return Ok(ready);
        }
        let e = io::Error::last_os_error();
        self.fds.iter_mut().for_each(|f| f.revents = 0);
        if e.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(e) }
    }

    /// The outcome for the descriptor at a place of the set.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn ready(&self, place: usize) -> Ready {
        let events = self.fds[place].revents;
        Ready {
            readable: events & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0,
            writable: events & libc::POLLOUT != 0,
            error: events & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0,
        }
    }
}
