//! Handover: the ports of a running datapath pass to another process, its successor, while packets flow.
//!
//! The first process lends its receive queues ([`Handover::lend`]) and forwards on. The successor opens its ports by
//! them, and does not receive yet. At the change the first process stops ([`Handover::stop_receiving`]), and the
//! successor receives from the same places on ([`Handover::begin`]): meanwhile frames wait in the queues, which both
//! processes share. If the successor fails before that, the first process goes on ([`Handover::begin`] there).

use crate::ops::PmdId;
use flow::DpPort;
use std::fmt;
use std::os::fd::OwnedFd;

/// Ports and receive queues that pass to another process.
pub trait Handover {
    /// Lends the receive queues of all ports, which stay in use.
    ///
    /// # Errors
    /// A port whose queues cannot pass, with the reason.
    fn lend(&self) -> Result<Vec<LentPort>, String>;

    /// Receives no more; returns the places where it stopped. Packets received before are forwarded.
    fn stop_receiving(&self) -> Vec<QueuePlace>;

    /// Opens the queues where it stopped anew, because another process may have received from them; returns the ports that
    /// could not be opened, with the reason.
    fn begin_anew(&self) -> Vec<(String, String)>;

    /// Receives: in the successor from these places on; without them, where [`Handover::stop_receiving`] stopped.
    fn begin(&self, places: &[QueuePlace]);

    /// Threads that receive, or will, from a port.
    fn receivers(&self, port: DpPort) -> Vec<PmdId>;
}

/// A port whose queues are lent.
#[derive(Debug)]
pub struct LentPort {
    /// Its name.
    pub name: String,
    /// Type, as [`PortInfo`](crate::PortInfo) has it.
    pub type_name: String,
    /// Its number.
    pub number: DpPort,
    /// Its receive queues by number; none of a port that has none, or that is opened anew.
    pub queues: Vec<LentQueue>,
}

/// Place of a receive queue at the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlace {
    /// Its port.
    pub port: DpPort,
    /// Its number in the port.
    pub queue: u16,
    /// Place of the next frame in memory shared with the kernel.
    pub place: u32,
}

/// Answer of a queue to the request to lend it.
#[derive(Debug)]
pub enum Lending {
    /// Another process goes on with it.
    Queue(LentQueue),
    /// Another process opens a queue of its own beside it.
    Anew,
    /// Neither, for this reason.
    Refused(&'static str),
}

/// A receive queue, for another process.
#[derive(Debug)]
pub struct LentQueue {
    /// Its kind, and its settings.
    pub kind: LentKind,
    /// Its descriptor, shared by both processes.
    pub fd: OwnedFd,
}

/// Kind of a lent queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LentKind {
    /// A packet socket.
    Socket(LentSocket),
    /// A packet socket with a receive ring of that number of slots.
    Ring(LentSocket, u32),
    /// A queue of a tap.
    Tap,
}

/// Settings of a lent packet socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentSocket {
    /// Each frame has a `virtio_net_hdr`.
    pub vnet_hdr: bool,
    /// Frames that the machine sends on the device arrive too, and are not wanted.
    pub drop_outgoing: bool,
}

impl fmt::Display for LentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = match self {
            LentKind::Socket(socket) => f.write_str("socket").map(|()| socket),
            LentKind::Ring(socket, slots) => write!(f, "ring {slots}").map(|()| socket),
            LentKind::Tap => return f.write_str("tap"),
        }?;
        let given = [(socket.vnet_hdr, " vnet_hdr"), (socket.drop_outgoing, " drop_outgoing")];
        given.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| f.write_str(word))
    }
}

impl LentKind {
    /// Reads the text of [`fmt::Display`]; `None` for another one. Words of a later version are skipped.
    pub fn parse(text: &str) -> Option<LentKind> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let slots = if kind == "ring" { words.next()?.parse().ok()? } else { 0 };
        let (mut vnet_hdr, mut drop_outgoing) = (false, false);
        for word in words {
            vnet_hdr |= word == "vnet_hdr";
            drop_outgoing |= word == "drop_outgoing";
        }
        let socket = LentSocket { vnet_hdr, drop_outgoing };
        match kind {
            "socket" => Some(LentKind::Socket(socket)),
            "ring" => Some(LentKind::Ring(socket, slots)),
            "tap" => Some(LentKind::Tap),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_kind_is_read_back_and_later_words_are_skipped() {
        for vnet_hdr in [false, true] {
            for drop_outgoing in [false, true] {
                let socket = LentSocket { vnet_hdr, drop_outgoing };
                for kind in [LentKind::Socket(socket), LentKind::Ring(socket, 1024), LentKind::Tap] {
                    assert_eq!(LentKind::parse(&kind.to_string()), Some(kind));
                    assert_eq!(LentKind::parse(&format!("{kind} later=5")), Some(kind));
                }
            }
        }
        for text in ["", "ring", "ring x", "ring -1", "queue 5"] {
            assert_eq!(LentKind::parse(text), None, "{text}");
        }
    }
}
