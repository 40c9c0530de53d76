//! Netlink sockets: requests and replies, dumps, non-blocking reception.
//!
//! A [`Socket`] belongs to one thread at a time. Requests of one call are sent in as few system calls as safe: their
//! replies fit the receive buffer in the worst case. Replies are matched by sequence number. If some are lost all
//! the same (`ENOBUFS`), idempotent requests are repeated once, one by one; the others fail with [`Error::Lost`].
//! The kernel replies within the system call of the request, so no caller waits; the timeout is for unexpected
//! cases.

use crate::error::Error;
pub use crate::message::{Asked, AttributeNames, MessageWriter, NlRequest, flag};
use crate::message::{HEADER_BYTES, answers, kind, split};
use crate::raw::{self, Received};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Requested receive buffer, by the kernel's accounting.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;
/// Send buffer: one datagram of a large packet and more.
const SEND_BUFFER_BYTES: libc::c_int = 512 << 10;
/// Space for one datagram. Messages of the families here are far smaller, and untouched memory is free.
const DATAGRAM_BYTES: usize = 256 << 10;
/// Size after a datagram that did not fit.
const DATAGRAM_MAX_BYTES: usize = 4 << 20;
/// Maximum requests in one datagram.
const REQUESTS_MAX: usize = 128;
/// Maximum bytes of several requests in one datagram.
const REQUESTS_MAX_BYTES: usize = 128 << 10;
/// Timeout of a missing reply.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Families of generic netlink.
    Generic,
    /// Netfilter, including connection tracking.
    Netfilter,
}

impl Protocol {
    fn number(self) -> libc::c_int {
        match self {
            Protocol::Generic => libc::NETLINK_GENERIC,
            Protocol::Netfilter => libc::NETLINK_NETFILTER,
        }
    }
}

/// A netlink socket.
pub struct Socket {
    fd: OwnedFd,
    pid: u32,
    next_seq: u32,
    /// Size of the receive buffer, by the kernel's accounting.
    receive_buffer_bytes: usize,
    request: Vec<u8>,
    datagram: Vec<u8>,
}

/// Slots for small replies, and bytes of each: one system call receives several.
const SLOTS: usize = DATAGRAM_BYTES / SLOT_BYTES;
const SLOT_BYTES: usize = 8 << 10;

/// Result of a receive call.
enum Got {
    /// A datagram of this many bytes.
    Bytes(usize),
    /// No datagram is waiting.
    Nothing,
    /// Replies were lost.
    Lost,
}

impl Socket {
    /// A generic netlink socket in the thread's network namespace, with a port id chosen by the kernel.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> Result<Socket, Error> {
        Socket::open_for(Protocol::Generic)
    }

    /// A socket of another protocol.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open_for(protocol: Protocol) -> Result<Socket, Error> {
        let io_error =
            |source| Error::Io { what: format!("cannot open a socket of {protocol:?} netlink"), source };
        Socket::open_io(protocol, RECEIVE_BUFFER_BYTES).map_err(io_error)
    }

    /// A socket with a receive buffer of this many bytes, by the kernel's accounting, or the permitted maximum.
    pub(crate) fn open_io(protocol: Protocol, receive_buffer_bytes: usize) -> io::Result<Socket> {
        let (fd, pid) = raw::open_netlink(protocol.number())?;
        // Both are newer than the module; without them, errors have numbers only.
        let _old_kernel = raw::set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1);
        let _old_kernel = raw::set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        let _allowed = raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER_BYTES);
        let receive_buffer_bytes = raw::set_receive_buffer(&fd, receive_buffer_bytes)?;
        let datagram = vec![0; DATAGRAM_BYTES];
        Ok(Socket { fd, pid, next_seq: 1, receive_buffer_bytes, request: Vec::new(), datagram })
    }

    /// Its port id: the destination of upcalls, for instance.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Size of its receive buffer, by the kernel's accounting.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Joins a multicast group ([`crate::genl::Family::group`]).
    ///
    /// # Errors
    /// The group does not exist, or the caller lacks permission.
    pub fn join(&self, group: u32) -> Result<(), Error> {
        let number = libc::c_int::try_from(group).unwrap_or(libc::c_int::MAX);
        raw::set_option(&self.fd, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, number)
            .map_err(|source| Error::Io { what: format!("cannot join multicast group {group}"), source })
    }

    /// Sends requests and collects the results, in the order of the requests. `reply` gets the index of a request
    /// and the body of a reply to it (after the netlink header), before its result is known; also for a repeated
    /// request.
    pub fn transact(
        &mut self,
        requests: &[NlRequest],
        reply: &mut dyn FnMut(usize, &[u8]),
    ) -> Vec<Result<(), Error>> {
        let mut results: Vec<Option<Result<(), Error>>> = Vec::new();
        results.resize_with(requests.len(), || None);
        let mut start = 0;
        while start < requests.len() {
            let end = start + self.fitting(&requests[start..]);
            self.exchange(requests, start..end, &mut results, reply);
            start = end;
        }
        for n in 0..requests.len() {
            if matches!(results[n], Some(Err(Error::Lost { .. }))) && requests[n].is_repeatable() {
                results[n] = None;
                self.exchange(requests, n..n + 1, &mut results, reply);
            }
        }
        // Each exchange leaves a result.
        let unanswered = |n: usize| Err(Error::Unanswered { asked: requests[n].asked().to_owned() });
        results.into_iter().enumerate().map(|(n, r)| r.unwrap_or_else(|| unanswered(n))).collect()
    }

    /// One request; its replies go to `reply`.
    ///
    /// # Errors
    /// As reported by the kernel.
    pub fn request(&mut self, request: NlRequest, reply: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let result = self.transact(&[request], &mut |_, body| reply(body));
        result.into_iter().next().unwrap_or(Ok(()))
    }

    /// Number of leading requests that fit one datagram: at least one.
    fn fitting(&self, requests: &[NlRequest]) -> usize {
        let (mut answer_bytes, mut bytes) = (0, 0);
        let fits = requests.iter().take(REQUESTS_MAX).take_while(|r| {
            answer_bytes += r.answer_bytes();
            bytes += r.len_bytes();
            // Half of the buffer, as a margin for miscounts.
            answer_bytes <= self.receive_buffer_bytes / 2 && bytes <= REQUESTS_MAX_BYTES
        });
        fits.count().max(1)
    }

    /// Sends requests in one datagram and collects their replies; every one of them has a result afterwards.
    fn exchange(
        &mut self,
        requests: &[NlRequest],
        range: Range<usize>,
        results: &mut [Option<Result<(), Error>>],
        reply: &mut dyn FnMut(usize, &[u8]),
    ) {
        let first_seq = self.next_seq;
        self.request.clear();
        for n in range.clone() {
            let seq = self.take_seq();
            requests[n].append_to(&mut self.request, flag::ACK, seq, self.pid);
        }
        let is_small = requests[range.clone()].iter().all(|r| r.reply_bytes() <= SLOT_BYTES / 2);
        let slot_bytes = if is_small { SLOT_BYTES } else { self.datagram.len() };
        let mut taken = Taken { requests, range: &range, first_seq, results, reply };
        let ended = raw::send(&self.fd, &self.request).and_then(|()| self.gather(slot_bytes, &mut taken));
        for n in range {
            let asked = || requests[n].asked().to_owned();
            results[n].get_or_insert_with(|| match &ended {
                Ok(()) => Err(Error::Unanswered { asked: asked() }),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Err(Error::Lost { asked: asked() }),
                Err(e) => Err(Error::Io {
                    what: format!("cannot {}", asked()),
                    source: e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error),
                }),
            });
        }
    }

    /// Receives until all requests have results, no more datagrams arrive, or replies were lost (`ENOBUFS`).
    fn gather(&mut self, slot_bytes: usize, taken: &mut Taken<'_>) -> io::Result<()> {
        let mut lost = false;
        let mut left = taken.range.len();
        let mut got = [Received::NOTHING; SLOTS];
        while left > 0 {
            let count = match raw::receive_batch(&self.fd, &mut self.datagram, slot_bytes, &mut got) {
                Ok(count) => count,
                Err(e) => match e.raw_os_error() {
                    Some(libc::ENOBUFS) => {
                        lost = true;
                        continue;
                    }
                    // After a loss, missing replies will never arrive.
                    Some(libc::EAGAIN) if lost => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
                    Some(libc::EAGAIN) if raw::wait(&self.fd, ANSWER_LIMIT)? => continue,
                    Some(libc::EAGAIN) => return Ok(()),
                    _ => return Err(e),
                },
            };
            for (got, slot) in got[..count].iter().zip(self.datagram.chunks_exact(slot_bytes)) {
                lost |= got.by_kernel && got.cut;
                if got.by_kernel && !got.cut {
                    left -= taken.take(&slot[..got.bytes]);
                }
            }
        }
        Ok(())
    }

    fn take_seq(&mut self) -> u32 {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        seq
    }

    /// Receives one datagram of the kernel into the buffer.
    fn receive(&mut self) -> io::Result<Got> {
        loop {
            match raw::receive(&self.fd, &mut self.datagram) {
                Ok(got) if !got.by_kernel => {}
                Ok(got) if got.cut => {
                    let larger = (self.datagram.len() * 2).min(DATAGRAM_MAX_BYTES);
                    self.datagram.resize(larger, 0);
                    return Ok(Got::Lost);
                }
                Ok(got) => return Ok(Got::Bytes(got.bytes)),
                Err(e) => {
                    return match e.raw_os_error() {
                        Some(libc::EAGAIN) => Ok(Got::Nothing),
                        Some(libc::ENOBUFS) => Ok(Got::Lost),
                        _ => Err(e),
                    };
                }
            }
        }
    }

    /// Begins a dump. A dump that is not read to its end makes the socket unusable.
    pub(crate) fn start_dump(&mut self, request: &NlRequest) -> Result<DumpState, Error> {
        let seq = self.take_seq();
        self.request.clear();
        request.append_to(&mut self.request, flag::DUMP, seq, self.pid);
        raw::send(&self.fd, &self.request).map_err(|source| io_error(request, source))?;
        Ok(DumpState {
            request: request.clone(),
            seq,
            unread: 0..0,
            interrupted: false,
            ended: false,
            complete: false,
        })
    }

    /// The next multicast datagram; `None`: none is waiting.
    ///
    /// # Errors
    /// [`Error::Lost`] if some were lost; the socket fails.
    pub(crate) fn heard(&mut self, what: &str) -> Result<Option<&[u8]>, Error> {
        match self.receive() {
            Ok(Got::Bytes(bytes)) => Ok(Some(&self.datagram[..bytes])),
            Ok(Got::Nothing) => Ok(None),
            Ok(Got::Lost) => Err(Error::Lost { asked: what.into() }),
            Err(source) => Err(Error::Io { what: format!("cannot {what}"), source }),
        }
    }
}

fn io_error(request: &NlRequest, source: io::Error) -> Error {
    Error::Io { what: format!("cannot {}", request.asked()), source }
}

/// Requests in flight, and the destination of their replies.
struct Taken<'a> {
    requests: &'a [NlRequest],
    range: &'a Range<usize>,
    /// Sequence number of the first.
    first_seq: u32,
    results: &'a mut [Option<Result<(), Error>>],
    reply: &'a mut dyn FnMut(usize, &[u8]),
}

impl Taken<'_> {
    /// Processes the replies of a datagram; returns the number of new results.
    fn take(&mut self, datagram: &[u8]) -> usize {
        let mut new = 0;
        for answer in answers(datagram) {
            let n = self.range.start + answer.seq.wrapping_sub(self.first_seq) as usize;
            // Replies to abandoned requests, and duplicates.
            if !self.range.contains(&n) || self.results[n].is_some() {
                continue;
            }
            match answer.kind {
                kind::ERROR => {
                    self.results[n] = Some(self.requests[n].result(&answer));
                    new += 1;
                }
                kind::NOOP | kind::DONE | kind::OVERRUN => {}
                _ => (self.reply)(n, answer.body),
            }
        }
        new
    }
}

/// An active dump.
#[derive(Debug)]
pub(crate) struct DumpState {
    request: NlRequest,
    seq: u32,
    /// Unread part of the socket's datagram.
    unread: Range<usize>,
    interrupted: bool,
    /// Complete: its last message has arrived, or it failed.
    ended: bool,
    /// Its last message has arrived: the socket is reusable.
    complete: bool,
}

impl DumpState {
    /// Description, for error messages.
    pub(crate) fn asked(&self) -> &str {
        self.request.asked()
    }

    /// Whether its last message has arrived, so that the socket is reusable.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the kernel has reported an inconsistent dump.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The body of the next message; `None` at the end. No message follows an error.
    pub(crate) fn next<'s>(&mut self, socket: &'s mut Socket) -> Option<Result<&'s [u8], Error>> {
        match self.advance(socket) {
            Ok(Some(body)) => Some(Ok(&socket.datagram[body])),
            Ok(None) => None,
            Err(e) => {
                self.ended = true;
                Some(Err(e))
            }
        }
    }

    /// Position of the next message's body in the socket's datagram.
    fn advance(&mut self, socket: &mut Socket) -> Result<Option<Range<usize>>, Error> {
        while !self.ended {
            let Some((answer, rest)) = split(&socket.datagram[self.unread.clone()]) else {
                self.refill(socket)?;
                continue;
            };
            let start = self.unread.start + HEADER_BYTES;
            let body = start..start + answer.body.len();
            self.unread.start = self.unread.end - rest.len();
            if answer.seq != self.seq {
                continue;
            }
            self.interrupted |= answer.flags & flag::DUMP_INTR != 0;
            match answer.kind {
                kind::ERROR => {
                    (self.ended, self.complete) = (true, true);
                    self.request.result(&answer)?;
                }
                kind::DONE => {
                    (self.ended, self.complete) = (true, true);
                    if answer.done_errno() > 0 {
                        let refusal = self.request.refusal(answer.done_errno(), &answer);
                        return Err(Error::Refused(Box::new(refusal)));
                    }
                }
                kind::NOOP | kind::OVERRUN => {}
                _ => return Ok(Some(body)),
            }
        }
        Ok(None)
    }

    /// Receives the next datagram.
    fn refill(&mut self, socket: &mut Socket) -> Result<(), Error> {
        let asked = || self.request.asked().to_owned();
        self.unread = match socket.receive().map_err(|source| io_error(&self.request, source))? {
            Got::Bytes(bytes) => 0..bytes,
            Got::Lost => return Err(Error::Lost { asked: asked() }),
            Got::Nothing if raw::wait(&socket.fd, ANSWER_LIMIT).unwrap_or(false) => 0..0,
            Got::Nothing => return Err(Error::Unanswered { asked: asked() }),
        };
        Ok(())
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
