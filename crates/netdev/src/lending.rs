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
    /// Not now: it exchanges its descriptor, and does not once it has.
    Changing,
    /// Neither, for this reason.
    Refused(&'static str),
}

/// A receive queue, for another process.
#[derive(Debug)]
pub struct LentQueue {
    /// Its kind, and its settings.
    pub kind: LentKind,
    /// Its descriptors, shared by both processes: [`LentKind::descriptors`].
    pub fds: Vec<OwnedFd>,
}

/// Kind of a lent queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LentKind {
    /// A packet socket.
    Socket(LentSocket),
    /// A packet socket with a receive ring of that number of slots.
    Ring(LentSocket, u32),
    /// A packet socket whose memory grows: its group, and the slots of the ring on a second socket that frames come by now.
    Growing(LentSocket, LentGroup, Option<u32>),
    /// A queue of a tap.
    Tap,
}

/// Group of the sockets of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentGroup {
    /// Its number in the kernel.
    pub id: u16,
    /// Its mode with its flags.
    pub mode: u32,
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
            LentKind::Growing(socket, LentGroup { id, mode }, slots) => {
                write!(f, "growing {id} {mode} {}", slots.unwrap_or(0)).map(|()| socket)
            }
            LentKind::Tap => return f.write_str("tap"),
        }?;
        let given = [(socket.vnet_hdr, " vnet_hdr"), (socket.drop_outgoing, " drop_outgoing")];
        given.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| f.write_str(word))
    }
}

impl LentKind {
    /// The kind of its first descriptor alone.
    pub(crate) fn without_ring(self) -> LentKind {
        match self {
            LentKind::Growing(socket, group, _) => LentKind::Growing(socket, group, None),
            kind => kind,
        }
    }

    /// Number of its descriptors.
    pub fn descriptors(self) -> usize {
        match self {
            LentKind::Growing(_, _, Some(_)) => 2,
            LentKind::Growing(..) | LentKind::Socket(_) | LentKind::Ring(..) | LentKind::Tap => 1,
        }
    }

    /// Reads the text of [`fmt::Display`]; `None` for another one. Words of a later version are skipped.
    pub fn parse(text: &str) -> Option<LentKind> {
        let mut words = text.split(' ');
        let mut flags = LentSocket { vnet_hdr: false, drop_outgoing: false };
        let kind = match words.next()? {
            "socket" => LentKind::Socket(flags),
            "ring" => LentKind::Ring(flags, words.next()?.parse().ok()?),
            "growing" => {
                let group = LentGroup { id: words.next()?.parse().ok()?, mode: words.next()?.parse().ok()? };
                let slots = words.next()?.parse().ok()?;
                LentKind::Growing(flags, group, (slots != 0).then_some(slots))
            }
            "tap" => LentKind::Tap,
            _ => return None,
        };
        for word in words {
            flags.vnet_hdr |= word == "vnet_hdr";
            flags.drop_outgoing |= word == "drop_outgoing";
        }
        Some(match kind {
            LentKind::Socket(_) => LentKind::Socket(flags),
            LentKind::Ring(_, slots) => LentKind::Ring(flags, slots),
            LentKind::Growing(_, group, slots) => LentKind::Growing(flags, group, slots),
            LentKind::Tap => LentKind::Tap,
        })
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
                let group = LentGroup { id: 7, mode: 0x4006 };
                let growing = [None, Some(1024)].map(|slots| LentKind::Growing(socket, group, slots));
                let others = [LentKind::Socket(socket), LentKind::Ring(socket, 1024), LentKind::Tap];
                for kind in others.into_iter().chain(growing) {
                    assert_eq!(LentKind::parse(&kind.to_string()), Some(kind));
                    assert_eq!(LentKind::parse(&format!("{kind} later=5")), Some(kind));
                }
            }
        }
        for text in ["", "ring", "ring x", "ring -1", "growing 1 2", "growing 70000 1 0", "queue 5"] {
            assert_eq!(LentKind::parse(text), None, "{text}");
        }
    }
}
