//! Hearing of ports that come and go, by the multicast group `ovs_vport`.

use super::vport::command;
use super::{Ovs, VportInfo, open_body};
use crate::error::Error;
use crate::message::answers;
use crate::socket::Socket;
use std::os::fd::{AsFd, BorrowedFd};

/// What happened to a port, of whichever datapath of the namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VportEvent {
    /// It is there or has changed.
    Changed(VportInfo),
    /// It is gone, also because its interface was deleted.
    Deleted(VportInfo),
    /// Events were lost: dump all ports anew.
    Lost,
}

/// Listens for changes of ports. Does not wait; `AsFd` for polling.
#[derive(Debug)]
pub struct VportMonitor {
    socket: Socket,
    /// Message type of the family.
    family: u16,
}

/// Messages read in one poll at most, so that a storm of events does not hold its reader.
const MESSAGES_MAX: usize = 256;
/// Receive buffer, by the kernel's count.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

impl VportMonitor {
    /// The changes since the last call, in order; 256 messages at most, more the next time.
    ///
    /// # Errors
    /// The socket fails.
    pub fn poll(&mut self) -> Result<Vec<VportEvent>, Error> {
        let mut events = Vec::new();
        for _ in 0..MESSAGES_MAX {
            match self.socket.heard("hear of ports") {
                Ok(None) => break,
                Ok(Some(datagram)) => {
                    events.extend(answers(datagram).filter(|a| a.kind == self.family).map(|a| event(a.body)));
                }
                Err(Error::Lost { .. }) => events.push(VportEvent::Lost),
                Err(e) => return Err(e),
            }
        }
        Ok(events)
    }
}

/// What a message tells; one that makes no sense is as good as lost.
pub(crate) fn event(body: &[u8]) -> VportEvent {
    let command = body.first().copied();
    match open_body(body).and_then(|(dp, attrs)| VportInfo::parse(dp, attrs)) {
        Ok(info) if command == Some(command::DEL) => VportEvent::Deleted(info),
        Ok(info) => VportEvent::Changed(info),
        Err(_) => VportEvent::Lost,
    }
}

impl AsFd for VportMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Ovs {
    /// Starts listening. What was before is asked for by [`Ovs::vport_dump`], afterwards.
    ///
    /// # Errors
    /// No socket can be had.
    pub fn vport_monitor(&self) -> Result<VportMonitor, Error> {
        let family = &self.families.vport;
        let no_group = || Error::NoModule { family: "ovs_vport (its multicast group)".into() };
        let group = family.group("ovs_vport").ok_or_else(no_group)?;
        let socket = self.pool.make(RECEIVE_BUFFER_BYTES)?;
        socket.join(group)?;
        Ok(VportMonitor { socket, family: family.id })
    }
}
