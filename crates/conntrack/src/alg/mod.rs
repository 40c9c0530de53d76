//! Helpers for protocols that announce further connections: FTP (RFC 959, RFC 2428) and TFTP (RFC 1350). Functions
//! over one packet; the tracker keeps expectations and skews.
//!
//! Order for a control packet ([`Helper::of_packet`]) of a connection with a helper ([`crate::Tracker::track_control`]):
//! 1. [`Announcement::read`] its payload.
//! 2. The windows of TCP are checked with the numbers of the senders ([`Skew`]).
//! 3. Invalid messages, also those with addresses of others ([`ftp::DataPort::is_of`]): the packet is `+inv` too, and
//!    nothing else happens to it.
//! 4. A data port is expected. A TFTP packet to the server needs no message: Open vSwitch expects a connection to its source
//!    port for any payload.
//! 5. With translation: [`ftp::rewrite`] the address; also for messages of no interest: [`adjust`] the sequence number
//!    by the skew so far, in the direction of the rewritten messages, or the acknowledgement number by its negative
//!    in the other one.
//! 6. The growth by step 5 adds to the skew.
//!
//! A packet made of fragments keeps its length: see [`crate::ipf::Reassembled`].
//!
//! Omissions, as in OVS: a message in two segments is not recognised; only the first message of a segment counts; SACK
//! options keep their numbers.

pub mod ftp;
mod skew;
mod tcp;
#[cfg(test)]
mod tests;

use packet::Packet;
use packet::headers::{IPPROTO_TCP, IPPROTO_UDP};

pub(crate) use skew::Skew;
pub use tcp::{Number, Segment, adjust};

const FTP_PORT: u16 = 21;
const TFTP_PORT: u16 = 69;

/// A protocol with a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// FTP over TCP.
    Ftp,
    /// TFTP over UDP.
    Tftp,
}

impl Helper {
    /// The helper of that name in `ct(alg=…)`.
    pub fn named(name: &str) -> Option<Helper> {
        match name {
            "ftp" => Some(Helper::Ftp),
            "tftp" => Some(Helper::Tftp),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
            Helper::Tftp => "tftp",
        }
    }

    /// Whether a port is a well-known one.
    #[inline(always)]
    pub(crate) fn has_port(src: u16, dst: u16) -> bool {
        src == FTP_PORT || dst == FTP_PORT || dst == TFTP_PORT
    }

    /// The helper for which a packet with IP protocol `proto` from port `src` to port `dst` is a control packet: by the
    /// well-known ports, or on any port if its `ct` action or its connection names the helper. (There, Open vSwitch takes the destination
    /// port of the packet that began the datapath flow.)
    pub fn of_packet(proto: u8, [src, dst]: [u16; 2], named: Option<Helper>) -> Option<Helper> {
        match proto {
            IPPROTO_UDP if dst == TFTP_PORT || named == Some(Helper::Tftp) => Some(Helper::Tftp),
            IPPROTO_TCP if src == FTP_PORT || dst == FTP_PORT || named == Some(Helper::Ftp) => {
                Some(Helper::Ftp)
            }
            _ => None,
        }
    }
}

/// An announcement in a control packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// Nothing: it is truncated, or has no room in its length field.
    None,
    /// By a message of FTP.
    Ftp(ftp::ControlPayload),
    /// A connection to the source port of a TFTP request, whatever it contains.
    Tftp,
}

impl Announcement {
    /// Reads a control packet of `helper` with its IP header at `l3` and its transport header at `l4`.
    pub fn read(packet: &Packet, l3: usize, l4: usize, v6: bool, helper: Helper) -> Announcement {
        match helper {
            Helper::Tftp => Announcement::Tftp,
            Helper::Ftp => match Segment::new(packet, l3, l4, v6) {
                Some(segment) => Announcement::Ftp(ftp::scan(&packet.data()[segment.payload()], v6)),
                None => Announcement::None,
            },
        }
    }
}
