//! Helpers for protocols that announce further connections: FTP (RFC 959, RFC 2428) and TFTP (RFC 1350). Pure functions
//! over one packet; the tracker keeps expectations and the skew of sequence numbers.
//!
//! Order for a packet of a connection with a helper, as in OVS:
//! 1. [`ftp::scan`] its payload. Invalid: the packet becomes +inv+trk, and nothing else happens to it.
//! 2. A data port is expected; [`ftp::DataPort::is_of`] must hold for the addresses of the connection and of its
//!    translation, else the packet is invalid too. A TFTP packet to the server needs no scan: OVS expects a connection
//!    to its source port for any payload.
//! 3. With translation: [`ftp::rewrite`] the address.
//! 4. With translation, also for messages of no interest: [`adjust`] the sequence number by the skew so far, in the
//!    direction of the rewritten messages, or the acknowledgement number by its negative in the other one.
//! 5. The result of step 3 adds to the skew.
//!
//! A packet made of fragments must not be rewritten: see [`crate::ipf::Reassembled`].
//!
//! Omissions, as in OVS: a message in two segments is not recognised; only the first message of a segment counts; SACK
//! options keep their numbers.

pub mod ftp;
mod tcp;
#[cfg(test)]
mod tests;

use packet::headers::{IPPROTO_TCP, IPPROTO_UDP};

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

    /// The helper for which a packet with IP protocol `proto` from port `src` to port `dst` is a control packet: by the
    /// well-known ports, or those of the flow (`flow_ports`: its source and destination port, 0 if it matches none) if
    /// its `ct` action names the helper.
    pub fn of_packet(
        proto: u8,
        [src, dst]: [u16; 2],
        named: Option<Helper>,
        flow_ports: [u16; 2],
    ) -> Option<Helper> {
        let (mut ftp, mut tftp) = ([FTP_PORT; 2], TFTP_PORT);
        let [from, to] = flow_ports;
        match named {
            Some(Helper::Ftp) if to != 0 => ftp[1] = to,
            Some(Helper::Tftp) if to != 0 => tftp = to,
            Some(Helper::Ftp) if from != 0 => ftp[0] = from,
            _ => {}
        }
        match proto {
            IPPROTO_UDP if dst == tftp => Some(Helper::Tftp),
            IPPROTO_TCP if src == ftp[0] || dst == ftp[1] => Some(Helper::Ftp),
            _ => None,
        }
    }
}
