//! The main loop's registry of sockets: tokens are never used twice.

use crate::userspace::QueueWatch;
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Token of the waker that other threads use.
pub const WAKER: Token = Token(0);
/// Token of the receive queues that the main loop polls itself.
pub const QUEUES: Token = Token(1);

/// Polls and hands out tokens.
pub struct Reactor {
    poll: Poll,
    next: usize,
    again: Vec<Token>,
}

impl Reactor {
    /// A new poll.
    pub fn new() -> io::Result<Reactor> {
        Ok(Reactor { poll: Poll::new()?, next: QUEUES.0 + 1, again: Vec::new() })
    }

    /// The poll itself, to wait.
    pub fn poll(&mut self) -> &mut Poll {
        &mut self.poll
    }

    /// A socket has more to read than its turn allows: it is served again after the others.
    pub fn serve_again(&mut self, token: Token) {
        self.again.push(token);
    }

    /// Whether sockets wait to be served again.
    pub fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// The sockets to serve again.
    pub fn take_again(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.again)
    }

    /// For receive queues that the main loop polls itself.
    pub fn queue_watch(&self) -> io::Result<QueueWatch> {
        Ok(QueueWatch::new(self.registry().try_clone()?, QUEUES))
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
