//! Notifications of added and removed ports, by the multicast group `ovs_vport`.

use super::vport::command;
use super::{Ovs, VportInfo, open_body};
use crate::error::Error;
use crate::message::answers;
use crate::socket::Socket;
use std::os::fd::{AsFd, BorrowedFd};

/// A port event, of any datapath of the namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VportEvent {
    /// Added or changed.
    Changed(VportInfo),
    /// Removed, or its interface was deleted.
    Deleted(VportInfo),
    /// Events were lost: dump all ports again.
    Lost,
}

/// Listens for changes of ports. Non-blocking; `AsFd` for polling.
#[derive(Debug)]
pub struct VportMonitor {
    socket: Socket,
    /// NlRequest type of the family.
    family: u16,
}

/// Maximum messages read per poll, so that a storm of events does not block the caller.
const MESSAGES_MAX: usize = 256;
/// Receive buffer, by the kernel's accounting.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

impl VportMonitor {
    /// The changes since the last call, in order; at most 256 messages, more the next time.
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

/// The event in a message; a malformed one counts as lost.
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
    /// Starts listening. Dump existing ports afterwards, by [`Ovs::vport_dump`].
    ///
    /// # Errors
    /// No socket is available.
    pub fn vport_monitor(&self) -> Result<VportMonitor, Error> {
        let family = &self.families.vport;
        let no_group = || Error::NoModule { family: "ovs_vport (its multicast group)".into() };
        let group = family.group("ovs_vport").ok_or_else(no_group)?;
        let socket = self.pool.make(RECEIVE_BUFFER_BYTES)?;
        socket.join(group)?;
        Ok(VportMonitor { socket, family: family.id })
    }
}
