//! BPDUs and the frames around them: IEEE 802.1D-2004, clause 9; 802.1D-1998 has the first two kinds.

use crate::saved::fields;
use flow::MacAddr;
use packet::headers::ETH_HEADER_BYTES;

/// Destination of all BPDUs.
pub const ADDRESS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
/// Logical link control of a frame: both service access points of spanning trees, an unnumbered information.
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// Bytes of a notification.
const CHANGE_BYTES: usize = 4;
/// Bytes of a configuration message.
const CONFIG_BYTES: usize = 35;
/// Bytes of a rapid message: the last one is the length of version 1, 0.
const RAPID_BYTES: usize = 36;
/// Bytes behind the header of Ethernet that are kept.
pub(super) const PAYLOAD_BYTES_MAX: usize = LLC.len() + RAPID_BYTES;

mod kind {
    pub(super) const CONFIG: u8 = 0;
    pub(super) const RAPID: u8 = 2;
    pub(super) const CHANGE: u8 = 0x80;
}

/// Flags of a message.
pub mod flag {
    /// The topology changes.
    pub const CHANGE: u8 = 1;
    /// Proposal of a designated port.
    pub const PROPOSAL: u8 = 1 << 1;
    /// The port learns.
    pub const LEARNING: u8 = 1 << 4;
    /// The port forwards.
    pub const FORWARDING: u8 = 1 << 5;
    /// Agreement with a proposal.
    pub const AGREEMENT: u8 = 1 << 6;
    /// Acknowledges a notification.
    pub const CHANGE_ACK: u8 = 1 << 7;
}

/// Role of the sender of a rapid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SenderRole {
    /// Unknown: the message counts as one of the older protocol.
    Unknown,
    /// Alternate or backup.
    Alternate,
    /// Root.
    Root,
    /// Designated.
    Designated,
}

impl SenderRole {
    const SHIFT: u8 = 2;

    fn of(flags: u8) -> SenderRole {
        match flags >> SenderRole::SHIFT & 3 {
            0 => SenderRole::Unknown,
            1 => SenderRole::Alternate,
            2 => SenderRole::Root,
            _ => SenderRole::Designated,
        }
    }
}

/// A priority vector without the receiving port: the least is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Vector {
    /// Identifier of the root: priority in the first 16 bits, then the address.
    pub root: u64,
    /// Cost of the path to it.
    pub cost: u32,
    /// Identifier of the designated bridge.
    pub bridge: u64,
    /// Its port.
    pub port: u16,
}

fields!(Vector, start: Vector::default(); root, cost, bridge, port; times:);

/// Times of a message, 1/256 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Age of the information.
    pub message_age: u16,
    /// Age at which it ends.
    pub max_age: u16,
    /// Time between two messages of the root.
    pub hello: u16,
    /// Time from one state of a port to the next.
    pub forward_delay: u16,
}

/// A message with a priority vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Bits of [`flag`]; the role apart.
    pub flags: u8,
    /// Role of the sender; [`SenderRole::Designated`] in the older protocol.
    pub role: SenderRole,
    /// Vector.
    pub vector: Vector,
    /// Times.
    pub times: Times,
}

impl Message {
    /// Whether the flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A BPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bpdu {
    /// Configuration.
    Config(Message),
    /// A message of the rapid protocol.
    Rapid(Message),
    /// A notification of a changed topology.
    Change,
}

/// Reads big-endian numbers.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|n| n as u16)
    }
}

impl Bpdu {
    /// Parses the payload of a frame, logical link control included. A rapid message of an unknown role is a configuration
    /// message. `None` for a bad or unknown one.
    pub fn parse(payload: &[u8]) -> Option<Bpdu> {
        let bpdu = payload.get(LLC.len()..)?;
        let mut r = Reader(bpdu);
        if r.u16()? != 0 {
            return None;
        }
        let (_version, kind) = (r.number(1)?, r.number(1)? as u8);
        if kind == kind::CHANGE {
            return Some(Bpdu::Change);
        }
        let flags = r.number(1)? as u8;
        let vector =
            Vector { root: r.number(8)?, cost: r.number(4)? as u32, bridge: r.number(8)?, port: r.u16()? };
        let times =
            Times { message_age: r.u16()?, max_age: r.u16()?, hello: r.u16()?, forward_delay: r.u16()? };
        let role = SenderRole::of(flags);
        let message = Message { flags: flags & !0x0c, role, vector, times };
        match kind {
            kind::RAPID if bpdu.len() >= RAPID_BYTES && role != SenderRole::Unknown => {
                Some(Bpdu::Rapid(message))
            }
            kind::RAPID if bpdu.len() < RAPID_BYTES => None,
            kind::CONFIG | kind::RAPID if times.message_age < times.max_age => {
                let flags = flags & (flag::CHANGE | flag::CHANGE_ACK);
                Some(Bpdu::Config(Message { flags, role: SenderRole::Designated, ..message }))
            }
            _ => None,
        }
    }

    /// The frame from that address.
    pub fn frame(&self, from: MacAddr) -> Box<[u8]> {
        let (version, kind, bytes) = match self {
            Bpdu::Config(_) => (0, kind::CONFIG, CONFIG_BYTES),
            Bpdu::Rapid(_) => (2, kind::RAPID, RAPID_BYTES),
            Bpdu::Change => (0, kind::CHANGE, CHANGE_BYTES),
        };
        let mut frame = Vec::with_capacity(ETH_HEADER_BYTES + LLC.len() + bytes);
        frame.extend(ADDRESS.0);
        frame.extend(from.0);
        frame.extend(((LLC.len() + bytes) as u16).to_be_bytes());
        frame.extend(LLC);
        frame.extend([0, 0, version, kind]);
        let (Bpdu::Config(message) | Bpdu::Rapid(message)) = self else { return frame.into() };
        let role = if version == 0 { 0 } else { (message.role as u8) << SenderRole::SHIFT };
        let Message { vector, times, .. } = message;
        frame.push(message.flags | role);
        frame.extend(vector.root.to_be_bytes());
        frame.extend(vector.cost.to_be_bytes());
        frame.extend(vector.bridge.to_be_bytes());
        for number in [vector.port, times.message_age, times.max_age, times.hello, times.forward_delay] {
            frame.extend(number.to_be_bytes());
        }
        frame.resize(ETH_HEADER_BYTES + LLC.len() + bytes, 0);
        frame.into()
    }
}

/// The payload of a frame, to the end that its length field tells; `None` without a length field or with a longer one.
pub fn payload(frame: &[u8]) -> Option<&[u8]> {
    let length = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    frame.get(ETH_HEADER_BYTES..ETH_HEADER_BYTES + usize::from(length))
}
