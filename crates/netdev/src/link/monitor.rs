//! Notifications of link changes, by the route netlink multicast group for links.
//!
//! If events are not read fast enough, the kernel drops some and reports that; the monitor then reads the
//! state of all links and reports it as one event. So its owner's view never stays wrong for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{LinkInfo, list_links, wire};
use crate::raw::{self, context};

const BUFFER_BYTES: usize = 65536;
const RECEIVE_BUFFER_BYTES: libc::c_int = 1 << 20;
/// Maximum datagrams per poll, so that a storm of events does not block the reader.
const MAX_READS: usize = 256;

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A new or changed link with its present state. Also sent when nothing of interest changed.
    Changed(LinkInfo),
    /// A deleted link (or one that left the namespace).
    Deleted {
        /// Its index.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// Events were lost: these are all existing links; all others are gone.
    Resync(Vec<LinkInfo>),
}

/// Monitors the network namespace of its creation.
pub struct LinkMonitor {
    fd: OwnedFd,
    buf: Vec<u8>,
    /// A resynchronisation that failed is due still.
    resync_due: bool,
}

impl LinkMonitor {
    /// Starts monitoring. Call [`list_links`] afterwards for the initial state.
    pub fn new() -> io::Result<LinkMonitor> {
        LinkMonitor::with_buffer(RECEIVE_BUFFER_BYTES)
    }

    /// A monitor with a receive buffer of the given size in bytes (the kernel doubles it and enforces a
    /// minimum).
    pub fn with_buffer(bytes: libc::c_int) -> io::Result<LinkMonitor> {
        let fd = wire::open(libc::RTMGRP_LINK as u32, true)
            .map_err(context("cannot listen for changes of links"))?;
        raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))?;
        Ok(LinkMonitor { fd, buf: vec![0; BUFFER_BYTES], resync_due: false })
    }

    /// Readable when [`LinkMonitor::poll`] has events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The changes since the last call, in order. Does not block. Call it in the monitor's network namespace.
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
            // Earlier events are older than the list.
            events = vec![LinkEvent::Resync(links)];
        }
        Ok(events)
    }
}

/// The event in a message.
pub(super) fn event_of(m: &wire::Message) -> Option<LinkEvent> {
    let (info, _) = wire::link_of(m)?;
    Some(if m.kind == libc::RTM_DELLINK {
        LinkEvent::Deleted { ifindex: info.ifindex, name: info.name }
    } else {
        LinkEvent::Changed(info)
    })
}
