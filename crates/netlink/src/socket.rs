//! Netlink sockets: requests and their answers, dumps, receiving without waiting.
//!
//! A [`Socket`] belongs to one thread at a time. Requests of one call go out in as few system calls as are safe: never more at
//! once than their answers fit the receive buffer by the worst count. Answers are matched by sequence number. When some get
//! lost all the same (`ENOBUFS`), requests that may be repeated are, once, one by one; the others fail with [`Error::Lost`].
//! The kernel answers within the system call that asks, so nobody waits; the limit is for what should not happen.

use crate::error::Error;
pub use crate::message::{Asked, AttributeNames, Message, MessageWriter, flag};
use crate::message::{HEADER_BYTES, answers, kind, split};
use crate::raw::{self, Received};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Receive buffer asked for, by the kernel's count.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;
/// Send buffer: one datagram of a large packet and more.
const SEND_BUFFER_BYTES: libc::c_int = 512 << 10;
/// Room for one datagram. No message of the families here comes near it, and memory that nothing touches costs nothing.
const DATAGRAM_BYTES: usize = 256 << 10;
/// To which that grows when a datagram was longer.
const DATAGRAM_MAX_BYTES: usize = 4 << 20;
/// Requests of one datagram at most.
const REQUESTS_MAX: usize = 128;
/// Bytes of several requests in one datagram at most.
const REQUESTS_MAX_BYTES: usize = 128 << 10;
/// How long an answer may take that is not there yet.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Whom a socket speaks with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Families of generic netlink.
    Generic,
    /// Netfilter, connection tracking among it.
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
    /// Size of the receive buffer, by the kernel's count.
    receive_buffer_bytes: usize,
    request: Vec<u8>,
    datagram: Vec<u8>,
}

/// Slots that small answers are received into, and bytes of each: several by one system call.
const SLOTS: usize = DATAGRAM_BYTES / SLOT_BYTES;
const SLOT_BYTES: usize = 8 << 10;

/// What one receive call brought.
enum Got {
    /// A datagram of so many bytes.
    Bytes(usize),
    /// Nothing is there.
    Nothing,
    /// Answers were lost.
    Lost,
}

impl Socket {
    /// A socket of generic netlink in the thread's network namespace, with a port id that the kernel chose.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Socket, Error> {
        Socket::open_for(Protocol::Generic)
    }

    /// The same of another protocol.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open_for(protocol: Protocol) -> Result<Socket, Error> {
        let io_error =
            |source| Error::Io { what: format!("cannot open a socket of {protocol:?} netlink"), source };
        Socket::open_io(protocol, RECEIVE_BUFFER_BYTES).map_err(io_error)
    }

    /// The same with a receive buffer of so many bytes, by the kernel's count; it may allow less.
    pub(crate) fn open_io(protocol: Protocol, receive_buffer_bytes: usize) -> io::Result<Socket> {
        let (fd, pid) = raw::open_netlink(protocol.number())?;
        // Both came later than the module; without them, errors have numbers only.
        let _old_kernel = raw::set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1);
        let _old_kernel = raw::set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        let _allowed = raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER_BYTES);
        let receive_buffer_bytes = raw::set_receive_buffer(&fd, receive_buffer_bytes)?;
        let datagram = vec![0; DATAGRAM_BYTES];
        Ok(Socket { fd, pid, next_seq: 1, receive_buffer_bytes, request: Vec::new(), datagram })
    }

    /// Its port id: where the kernel is to send upcalls, for instance.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Size of its receive buffer, by the kernel's count.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Joins a multicast group ([`crate::genl::Family::group`]).
    ///
    /// # Errors
    /// There is no such group, or the caller may not hear it.
    pub fn join(&self, group: u32) -> Result<(), Error> {
        let number = libc::c_int::try_from(group).unwrap_or(libc::c_int::MAX);
        raw::set_option(&self.fd, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, number)
            .map_err(|source| Error::Io { what: format!("cannot join multicast group {group}"), source })
    }

    /// Sends requests and gathers the answers, in the order of the requests. `reply` gets the number of a request and the body of
    /// a reply to it (behind the netlink header), before its result is known; also of a request that is repeated.
    pub fn transact(
        &mut self,
        requests: &[Message],
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
    /// As the kernel says.
    pub fn request(&mut self, request: Message, reply: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let result = self.transact(&[request], &mut |_, body| reply(body));
        result.into_iter().next().unwrap_or(Ok(()))
    }

    /// How many of the first requests go into one datagram: at least one.
    fn fitting(&self, requests: &[Message]) -> usize {
        let (mut answer_bytes, mut bytes) = (0, 0);
        let fits = requests.iter().take(REQUESTS_MAX).take_while(|r| {
            answer_bytes += r.answer_bytes();
            bytes += r.len_bytes();
            // Half of the buffer, so that a miscount does no harm.
            answer_bytes <= self.receive_buffer_bytes / 2 && bytes <= REQUESTS_MAX_BYTES
        });
        fits.count().max(1)
    }

    /// Sends requests in one datagram and gathers their answers; every one of them has a result then.
    fn exchange(
        &mut self,
        requests: &[Message],
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

    /// Receives until all requests have results, nothing comes any more, or answers are known to be lost (`ENOBUFS`).
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
                    // What is not there by now never will be, if something got lost.
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

    /// One datagram of the kernel into the buffer.
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

    /// Begins a dump. A dump that is not read to its end leaves the socket useless.
    pub(crate) fn start_dump(&mut self, request: &Message) -> Result<DumpState, Error> {
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

    /// What came unasked, by multicast: the next datagram; `None`: nothing is there.
    ///
    /// # Errors
    /// [`Error::Lost`], when some got lost; the socket fails.
    pub(crate) fn heard(&mut self, what: &str) -> Result<Option<&[u8]>, Error> {
        match self.receive() {
            Ok(Got::Bytes(bytes)) => Ok(Some(&self.datagram[..bytes])),
            Ok(Got::Nothing) => Ok(None),
            Ok(Got::Lost) => Err(Error::Lost { asked: what.into() }),
            Err(source) => Err(Error::Io { what: format!("cannot {what}"), source }),
        }
    }
}

fn io_error(request: &Message, source: io::Error) -> Error {
    Error::Io { what: format!("cannot {}", request.asked()), source }
}

/// Requests that are under way, and where their answers go.
struct Taken<'a> {
    requests: &'a [Message],
    range: &'a Range<usize>,
    /// Sequence number of the first.
    first_seq: u32,
    results: &'a mut [Option<Result<(), Error>>],
    reply: &'a mut dyn FnMut(usize, &[u8]),
}

impl Taken<'_> {
    /// Takes the answers of a datagram; how many new results there are.
    fn take(&mut self, datagram: &[u8]) -> usize {
        let mut new = 0;
        for answer in answers(datagram) {
            let n = self.range.start + answer.seq.wrapping_sub(self.first_seq) as usize;
            // Answers to what was given up, and those that come twice.
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

/// A dump under way.
#[derive(Debug)]
pub(crate) struct DumpState {
    request: Message,
    seq: u32,
    /// What of the socket's datagram has not been read.
    unread: Range<usize>,
    interrupted: bool,
    /// Nothing more comes: its last message has come, or it failed.
    ended: bool,
    /// Its last message has come: the socket may be used for other things.
    complete: bool,
}

impl DumpState {
    /// What is asked, for error messages.
    pub(crate) fn asked(&self) -> &str {
        self.request.asked()
    }

    /// Whether its last message has come, so that the socket may be used for other things.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the kernel said that what it dumps is not consistent.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The body of the next message; `None` at the end. After an error nothing more comes.
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

    /// Where the next message's body stands in the socket's datagram.
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

    /// The next datagram.
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
