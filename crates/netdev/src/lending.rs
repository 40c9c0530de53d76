//! [`Lending`]: receive queues for another process.

use std::fmt;
use std::os::fd::OwnedFd;

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
