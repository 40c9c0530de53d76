//! A pollable flag: the readiness of queues without a kernel device (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::raw;

/// Readable while raised.
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: no pointers; a descriptor that it returns is new.
        let fd = unsafe { raw::own(raw::check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(EventFd(fd))
    }

    /// Makes it readable. Raising twice equals raising once, unless the count overflows: callers raise only a
    /// lowered flag.
    pub(crate) fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the pointer and length are those of `one`. Cannot fail below the counter's end.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub(crate) fn lower(&self) {
        let mut count = [0; 8];
        // SAFETY: the pointer and length are those of `count`. Fails with EAGAIN if not raised.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
