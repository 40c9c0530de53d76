//! The main loop's registry of sockets: tokens are never reused. It has the process's TLS configuration and bounds the
//! time of handshakes per turn.

use super::turn::Turn;
use dpif_netdev::QueueWatch;
use mio::event::{Event, Source};
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tls::{Handshake, Session, Tls};

/// Token of the waker used by other threads.
pub const WAKER: Token = Token(0);
/// Token of the receive queues polled by the main loop itself.
pub const QUEUES: Token = Token(1);

/// Time of handshakes per turn of the main loop, beyond which the last one may go by its own steps: a signature takes
/// about a millisecond.
const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(4);

/// Maximum bytes read from one connection per turn.
pub(super) const READ_MAX_BYTES: usize = 1 << 18;

/// Polls and allocates tokens.
pub struct Reactor {
    poll: Poll,
    next: usize,
    again: Vec<Token>,
    /// Tokens to serve at a time, in milliseconds of the machine's own clock.
    later: Vec<(u64, Token)>,
    /// Counters of connections.
    pub counts: Counts,
    /// Key and certificates of the process.
    pub tls: Tls,
    /// Time of this turn's handshakes so far.
    handshakes: Duration,
    /// Sockets with an event of this turn that reports neither an end of their stream nor an error.
    open: Vec<Token>,
    /// Sockets with an event of this turn that reports that the peer reads no more.
    gone: Vec<Token>,
    /// Listening sockets that another process has lent, by target.
    pub(super) lent: BTreeMap<String, OwnedFd>,
    /// For reading: shared by all connections, because clearing one costs more than serving a request.
    buffer: Box<[u8]>,
}

/// Counters of connections: those that came and were not served, and those of this process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Times that a connection had to wait for a free descriptor.
    pub accept_failed: u64,
    /// Closed because the limit of their kind was reached.
    pub refused: u64,
    /// Closed for new ones at the limit of their kind, because they made no progress.
    pub evicted: u64,
    /// Closed because OpenFlow connections held too much memory.
    pub cut_off: u64,
    /// Closed because they did not reply to a probe.
    pub probes_failed: u64,
    /// Closed because a TLS handshake took too long, or too many were under way.
    pub handshakes_cut_off: u64,
    /// Steps of TLS handshakes that waited for the next turn.
    pub handshakes_put_off: u64,
    /// Attempts to connect to a controller.
    pub controllers_tried: u64,
    /// Attempts to connect, to controllers and others.
    pub streams_opened: u64,
    /// Attempts to listen for connections, without those of control commands and dummies.
    pub listeners_opened: u64,
}

impl Reactor {
    /// A new poll.
    pub fn new() -> io::Result<Reactor> {
        Ok(Reactor {
            poll: Poll::new()?,
            next: QUEUES.0 + 1,
            again: Vec::new(),
            later: Vec::new(),
            counts: Counts::default(),
            tls: Tls::default(),
            handshakes: Duration::ZERO,
            open: Vec::new(),
            gone: Vec::new(),
            lent: BTreeMap::new(),
            buffer: vec![0; READ_MAX_BYTES].into(),
        })
    }

    /// The poll itself, for waiting.
    pub fn poll(&mut self) -> &mut Poll {
        &mut self.poll
    }

    /// Begins a turn with these events; returns the sockets to serve, those due without an event first.
    pub fn take_ready(&mut self, events: &Events) -> Vec<Token> {
        let mut ready = self.take_due();
        ready.extend(events.iter().map(Event::token));
        let is_open = |e: &&Event| !e.is_read_closed() && !e.is_error();
        self.open.extend(events.iter().filter(is_open).map(Event::token));
        let is_gone = |e: &&Event| e.is_write_closed() || e.is_error();
        self.gone.extend(events.iter().filter(is_gone).map(Event::token));
        ready
    }

    /// Whether an event of this turn shows that the peer had not ended the stream.
    pub(super) fn is_open(&self, token: Token) -> bool {
        self.open.contains(&token)
    }

    /// Whether an event of this turn shows that the peer has closed both directions, or reset the connection. Each such
    /// change has one event, also while the socket is not read.
    pub(super) fn is_gone(&self, token: Token) -> bool {
        self.gone.contains(&token)
    }

    /// The buffer for reading, of [`READ_MAX_BYTES`].
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// A socket has more input than its turn allows: serves it again after the others.
    pub fn serve_again(&mut self, token: Token) {
        self.again.push(token);
    }

    /// Serves a socket after a delay, regardless of events.
    pub fn serve_in(&mut self, token: Token, ms: u64) {
        if !self.later.iter().any(|(_, t)| *t == token) {
            self.later.push((machine_ms() + ms, token));
        }
    }

    /// Time of the next socket to serve without an event.
    pub fn turn(&self) -> Turn {
        let next = self.later.iter().map(|(at_ms, _)| *at_ms).min();
        let next = next.map(|at_ms| sys::clock::monotonic_ms() + at_ms.saturating_sub(machine_ms()));
        Turn::from(next).and(Turn::more_if(!self.again.is_empty()))
    }

    /// Continues the TLS handshake of a connection, unless the handshakes of this turn took long enough: then the token
    /// is served again in the next one.
    ///
    /// # Errors
    /// It failed; the log has the reason.
    pub fn handshake(&mut self, session: &mut Session<TcpStream>, token: Token) -> io::Result<Handshake> {
        if self.handshakes >= HANDSHAKES_PER_TURN {
            self.counts.handshakes_put_off += 1;
            if !self.again.contains(&token) {
                self.again.push(token);
            }
            return Ok(Handshake::Wait);
        }
        let began = Instant::now();
        let progress = self.tls.handshake(session);
        self.handshakes += began.elapsed();
        progress
    }

    /// Begins a turn; returns the sockets due without an event.
    pub fn take_due(&mut self) -> Vec<Token> {
        self.open.clear();
        self.gone.clear();
        self.handshakes = Duration::ZERO;
        let mut due = std::mem::take(&mut self.again);
        let now_ms = if self.later.is_empty() { 0 } else { machine_ms() };
        due.extend(self.later.extract_if(.., |(at_ms, _)| *at_ms <= now_ms).map(|(_, token)| token));
        due
    }

    /// For receive queues polled by the main loop itself.
    pub fn queue_watch(&self) -> io::Result<QueueWatch> {
        Ok(QueueWatch::new(self.registry().try_clone()?, QUEUES))
    }

    /// Registry for sources.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Allocates a token.
    pub fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next - 1)
    }

    /// Watches a descriptor owned by others for readability.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = self.token();
        SourceFd(&fd.as_raw_fd()).register(self.registry(), token, Interest::READABLE)?;
        Ok(token)
    }
}

fn machine_ms() -> u64 {
    sys::clock::machine_us() / 1000
}
