//! Hearing of changes to links, by the route netlink multicast group for links.
//!
//! The kernel drops events when they are not fetched fast enough and says so; the state of all links is then read anew
//! and told as one event, so a monitor never leaves its owner with a wrong picture for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{LinkInfo, list_links, wire};
use crate::raw::{self, context};

const BUFFER_BYTES: usize = 65536;
const RECEIVE_BUFFER_BYTES: libc::c_int = 1 << 20;
/// Datagrams read in one poll, so that a storm of events does not hold its reader.
const MAX_READS: usize = 256;

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A link is new or some of its state is; this is its state now. Told also when nothing of interest changed.
    Changed(LinkInfo),
    /// A link is gone (or has left the namespace).
    Deleted {
        /// Its index.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// Events were lost: these are all links there are, whatever is not among them is gone.
    Resync(Vec<LinkInfo>),
}

/// Listens for changes in the network namespace in which it was made.
pub struct LinkMonitor {
    fd: OwnedFd,
    buf: Vec<u8>,
    /// A resynchronisation that failed is due still.
    resync_due: bool,
}

impl LinkMonitor {
    /// Starts listening. What was before is asked for by [`list_links`], afterwards.
    pub fn new() -> io::Result<LinkMonitor> {
        LinkMonitor::with_buffer(RECEIVE_BUFFER_BYTES)
    }

    /// The same with a receive buffer of the given size in bytes (the kernel doubles it and has a least size).
    pub fn with_buffer(bytes: libc::c_int) -> io::Result<LinkMonitor> {
        let fd = wire::open(libc::RTMGRP_LINK as u32, true)
            .map_err(context("cannot listen for changes of links"))?;
        raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))?;
        Ok(LinkMonitor { fd, buf: vec![0; BUFFER_BYTES], resync_due: false })
    }

    /// Readable when [`LinkMonitor::poll`] has something to tell.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The changes since the last call, in order. Does not wait. Call it in the monitor's network namespace.
    pub fn poll(&mut self) -> io::Result<Vec<LinkEvent>> {
        let mut events = Vec::new();
        for _ in 0..MAX_READS {
            match wire::receive(&self.fd, &mut self.buf, libc::MSG_DONTWAIT) {
                Ok(got) => events.extend(wire::messages(&self.buf[..got]).filter_map(|m| event_of(&m))),
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => break,
                    Some(libc::ENOBUFS) => self.resync_due = true,
                    _ => return Err(e),
                },
            }
        }
        if self.resync_due {
            let links = list_links()?;
            self.resync_due = false;
            // What was read before is older than the list.
            events = vec![LinkEvent::Resync(links)];
        }
        Ok(events)
    }
}

/// What a message tells.
pub(super) fn event_of(m: &wire::Message) -> Option<LinkEvent> {
    let (info, _) = wire::link_of(m)?;
    Some(if m.kind == libc::RTM_DELLINK {
        LinkEvent::Deleted { ifindex: info.ifindex, name: info.name }
    } else {
        LinkEvent::Changed(info)
    })
}
