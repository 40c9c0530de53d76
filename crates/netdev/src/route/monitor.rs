//! [`RouteMonitor`]: the dump of everything, and events after it.

use super::parse::{ADDRESS_HEADER_BYTES, OBJECT_HEADER_BYTES, ROUTE_HEADER_BYTES, RTM_GETNEXTHOP, event_of};
use super::{RouteChange, RouteEvent};
use crate::link::wire::{self, Message, Request};
use crate::raw::{self, context};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const BUFFER_BYTES: usize = 65536;
/// Events of a thousand changes and more wait in the kernel during a dump.
const RECEIVE_BUFFER_BYTES: libc::c_int = 4 << 20;
/// Multicast groups for links, addresses, routes, rules and next-hop objects, of IPv4 and IPv6 (`linux/rtnetlink.h`).
const GROUPS: u32 = 1 << 0 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 18 | 1 << 31;
/// Dumps in a row that changes may interrupt; the last one stays, and events correct it.
const INTERRUPTED_MAX: u32 = 3;

/// Share of an event in the bound of a poll.
pub const EVENT_BYTES: usize = 256;

/// Parts of a dump, in order: a route names a link, and its table is used by a rule.
const PARTS: [(u16, usize, libc::c_int); 6] = [
    (libc::RTM_GETLINK, LINK_HEADER_BYTES, libc::AF_UNSPEC),
    (libc::RTM_GETADDR, ADDRESS_HEADER_BYTES, libc::AF_UNSPEC),
    (RTM_GETNEXTHOP, OBJECT_HEADER_BYTES, libc::AF_UNSPEC),
    (libc::RTM_GETRULE, ROUTE_HEADER_BYTES, libc::AF_INET),
    (libc::RTM_GETRULE, ROUTE_HEADER_BYTES, libc::AF_INET6),
    (libc::RTM_GETROUTE, ROUTE_HEADER_BYTES, libc::AF_UNSPEC),
];
/// `struct ifinfomsg`.
const LINK_HEADER_BYTES: usize = 16;

struct Dump {
    fd: OwnedFd,
    part: usize,
    is_interrupted: bool,
}

/// Result of a poll.
#[derive(Debug, Default)]
pub struct Polled {
    /// Events and objects of the dump, in order.
    pub events: Vec<RouteEvent>,
    /// There may be more: poll again, without waiting for the descriptor.
    pub more: bool,
}

/// Follows the network namespace of its creation.
pub struct RouteMonitor {
    fd: OwnedFd,
    buf: Vec<u8>,
    dump: Option<Dump>,
    dump_due: bool,
    /// Events were dropped: those that wait are read and ignored before a dump. Until then the kernel drops more, without
    /// another error.
    is_overrun: bool,
    interrupted: u32,
    overruns: u64,
}

impl RouteMonitor {
    /// Subscribes to all changes. The first polls yield everything there is.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn new() -> io::Result<RouteMonitor> {
        RouteMonitor::with_buffer(RECEIVE_BUFFER_BYTES)
    }

    /// A monitor with a receive buffer of the given size in bytes (the kernel doubles it and enforces a minimum).
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn with_buffer(bytes: libc::c_int) -> io::Result<RouteMonitor> {
        let fd = wire::open(GROUPS, true).map_err(context("cannot listen for changes of routes"))?;
        raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))?;
        let buf = vec![0; BUFFER_BYTES];
        Ok(RouteMonitor {
            fd,
            buf,
            dump: None,
            dump_due: true,
            is_overrun: false,
            interrupted: 0,
            overruns: 0,
        })
    }

    /// Readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Times that the kernel dropped events.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Whether a dump is due or in progress.
    pub fn is_dumping(&self) -> bool {
        self.dump_due || self.is_overrun || self.dump.is_some()
    }

    /// Reads everything again, from the next poll on.
    pub fn dump_again(&mut self) {
        self.dump_due = true;
    }

    /// Reads datagrams up to `max_bytes`, of which a dump has some hundred objects in 32 KiB, and an event counts as
    /// [`EVENT_BYTES`]. Does not block.
    ///
    /// # Errors
    /// The system fails to answer. The next poll begins a dump.
    pub fn poll(&mut self, max_bytes: usize) -> io::Result<Polled> {
        let polled = self.poll_some(max_bytes);
        if polled.is_err() {
            self.dump = None;
            self.dump_due = true;
        }
        polled
    }

    fn poll_some(&mut self, max_bytes: usize) -> io::Result<Polled> {
        let mut polled = Polled::default();
        let mut bytes = 0;
        while bytes < max_bytes {
            if std::mem::take(&mut self.dump_due) {
                self.begin(&mut polled.events)?;
            }
            let got = match self.dump.take() {
                Some(dump) => self.read_dump(dump, &mut polled.events)?,
                None => self.read_events(&mut polled.events)?,
            };
            match got {
                Some(got) => bytes += got.max(EVENT_BYTES),
                None => return Ok(polled),
            }
        }
        polled.more = true;
        Ok(polled)
    }

    fn begin(&mut self, events: &mut Vec<RouteEvent>) -> io::Result<()> {
        events.push(RouteEvent::Begin);
        self.dump = Some(Dump { fd: request(0)?, part: 0, is_interrupted: false });
        Ok(())
    }

    /// Reads a datagram of the dump; returns its bytes.
    fn read_dump(&mut self, mut dump: Dump, events: &mut Vec<RouteEvent>) -> io::Result<Option<usize>> {
        let got = match wire::receive(&dump.fd, &mut self.buf, libc::MSG_DONTWAIT) {
            Ok(got) => got,
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                self.dump = Some(dump);
                return Ok(Some(0));
            }
            Err(e) => return Err(e),
        };
        let mut is_done = false;
        for m in wire::messages(&self.buf[..got]) {
            dump.is_interrupted |= m.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
            match libc::c_int::from(m.kind) {
                libc::NLMSG_DONE => is_done = true,
                libc::NLMSG_ERROR => match error_of(&m) {
                    // A part that this kernel lacks, such as IPv6 or next-hop objects.
                    Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => is_done = true,
                    code => return Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EBADMSG))),
                },
                _ => events.extend(event_of(&m).map(as_dumped)),
            }
        }
        if is_done {
            dump.part += 1;
            if dump.part == PARTS.len() {
                self.complete(dump.is_interrupted, events);
                return Ok(Some(got));
            }
            dump.fd = request(dump.part)?;
        }
        self.dump = Some(dump);
        Ok(Some(got))
    }

    fn complete(&mut self, is_interrupted: bool, events: &mut Vec<RouteEvent>) {
        self.interrupted = if is_interrupted { self.interrupted + 1 } else { 0 };
        match self.interrupted {
            0 | INTERRUPTED_MAX.. => {
                self.interrupted = 0;
                events.push(RouteEvent::Complete);
            }
            _ => self.dump_due = true,
        }
    }

    /// Reads a datagram of events; returns its bytes, or `None` if there is none.
    fn read_events(&mut self, events: &mut Vec<RouteEvent>) -> io::Result<Option<usize>> {
        match wire::receive(&self.fd, &mut self.buf, libc::MSG_DONTWAIT) {
            Ok(got) => {
                if !self.is_overrun {
                    events.extend(wire::messages(&self.buf[..got]).filter_map(|m| event_of(&m)));
                }
                Ok(Some(got))
            }
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) if std::mem::take(&mut self.is_overrun) => {
                    self.dump_due = true;
                    Ok(Some(0))
                }
                Some(libc::EAGAIN) => Ok(None),
                Some(libc::ENOBUFS) => {
                    self.overruns += 1;
                    self.is_overrun = true;
                    Ok(Some(0))
                }
                _ => Err(e),
            },
        }
    }
}

/// Requests a part of the dump on a socket of its own.
fn request(part: usize) -> io::Result<OwnedFd> {
    let (kind, header_bytes, family) = PARTS[part];
    let mut header = vec![0; header_bytes];
    header[0] = family as u8;
    let fd = wire::open(0, true).map_err(context("cannot read the routes"))?;
    Request::dump(kind, &header).send(&fd)?;
    Ok(fd)
}

/// The number of an error reply; `None` for success or a broken one.
fn error_of(m: &Message) -> Option<i32> {
    wire::field(&m.body, 0).map(i32::from_ne_bytes).filter(|code| *code < 0).map(|code| -code)
}

/// Routes of a dump come in their order.
fn as_dumped(event: RouteEvent) -> RouteEvent {
    match event {
        RouteEvent::Route { route, .. } => RouteEvent::Route { route, change: RouteChange::Appended },
        other => other,
    }
}
