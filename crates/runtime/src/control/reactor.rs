//! The main loop's registry of sockets: tokens are never used twice.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Token of the waker that other threads use.
pub const WAKER: Token = Token(0);

/// Polls and hands out tokens.
pub struct Reactor {
    poll: Poll,
    next: usize,
}

impl Reactor {
    /// A new poll.
    pub fn new() -> io::Result<Reactor> {
        Ok(Reactor { poll: Poll::new()?, next: WAKER.0 + 1 })
    }

    /// The poll itself, to wait.
    pub fn poll(&mut self) -> &mut Poll {
        &mut self.poll
    }

    /// Where sources are registered.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// A token of its own.
    pub fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next - 1)
    }

    /// Watches a descriptor that somebody else owns until it is readable.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = self.token();
        SourceFd(&fd.as_raw_fd()).register(self.registry(), token, Interest::READABLE)?;
        Ok(token)
    }
}
