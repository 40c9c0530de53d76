//! Continuity check messages (IEEE 802.1ag §21.6) in their frames, with the extensions of OVS.
//!
//! An extended message has a multicast address of its own. Fields that ITU-T Y.1731 leaves zero hold its interval in
//! milliseconds, an identifier of 64 bits and an operational state.

use flow::MacAddr;
use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD, VLAN_TAG_BYTES};
use thiserror::Error;

/// EtherType of connectivity fault management.
pub const ETH_TYPE_CFM: u16 = 0x8902;
/// Destination of messages.
pub const DST_MAC: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x30]);
/// Destination of extended messages.
pub const DST_MAC_EXTENDED: MacAddr = MacAddr([0x01, 0x23, 0x20, 0x00, 0x00, 0x30]);
/// Bytes of a sent message.
pub const MESSAGE_BYTES: usize = 75;
/// Bytes of the shortest accepted message: former releases of OVS omit the last one.
const ACCEPTED_BYTES: usize = 74;
/// Bytes of the name of a maintenance association.
const MAID_BYTES: usize = 48;
/// Name of the only maintenance association: domain "ovs" and association "ovs", both as strings.
const MAID: &[u8] = b"\x04\x03ovs\x02\x03ovs";
/// Operation code of a continuity check.
const OPCODE: u8 = 1;
/// Offset of the first TLV behind that field.
const TLV_OFFSET: u8 = 70;
/// Flag of a remote defect.
const RDI: u8 = 0x80;
/// VLAN tags that are skipped at most.
const VLAN_TAGS_MAX: usize = 2;
/// Bytes of a frame that sessions read.
pub(super) const FRAME_BYTES_MAX: usize = ETH_HEADER_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES + MESSAGE_BYTES;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Whether the sender received nothing.
    pub rdi: bool,
    /// Code of the interval, 0 to 7; 0 with [`Message::interval_ms`].
    pub interval: u8,
    /// Sequence number.
    pub seq: u32,
    /// Identifier of the sender, of 16 bits.
    pub mpid: u16,
    /// Interval of an extended message.
    pub interval_ms: u16,
    /// Identifier of the sender of an extended message.
    pub mpid_extended: u64,
    /// Whether the sender of an extended message is operationally down.
    pub is_down: bool,
}

/// A received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Ethernet source.
    pub src_mac: MacAddr,
    /// Its message; `None` if it belongs to another maintenance association.
    pub message: Option<Message>,
}

/// The reason to ignore a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// Too short.
    #[error("Received an unparseable 802.1ag CCM heartbeat.")]
    Short,
    /// Another operation.
    #[error("Received an unsupported 802.1ag message. (opcode {0})")]
    Opcode(u8),
}

impl Message {
    /// The bytes of the message.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[1] = OPCODE;
        bytes[2] = self.interval & 7 | if self.rdi { RDI } else { 0 };
        bytes[3] = TLV_OFFSET;
        bytes[4..8].copy_from_slice(&self.seq.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.mpid.to_be_bytes());
        bytes[10..10 + MAID.len()].copy_from_slice(MAID);
        bytes[58..60].copy_from_slice(&self.interval_ms.to_be_bytes());
        bytes[60..68].copy_from_slice(&self.mpid_extended.to_be_bytes());
        bytes[68] = self.is_down.into();
        bytes
    }

    /// Parses a message; `None` if it belongs to another maintenance association.
    ///
    /// # Errors
    /// It is too short or another operation.
    pub fn parse(bytes: &[u8]) -> Result<Option<Message>, Refusal> {
        let Some(bytes) = bytes.first_chunk::<ACCEPTED_BYTES>() else { return Err(Refusal::Short) };
        if bytes[1] != OPCODE {
            return Err(Refusal::Opcode(bytes[1]));
        }
        let (name, rest) = bytes[10..10 + MAID_BYTES].split_at(MAID.len());
        if name != MAID || rest.iter().any(|byte| *byte != 0) {
            return Ok(None);
        }
        let number = |from: usize, bytes_of: usize| {
            bytes[from..from + bytes_of].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Ok(Some(Message {
            rdi: bytes[2] & RDI != 0,
            interval: bytes[2] & 7,
            seq: number(4, 4) as u32,
            mpid: number(8, 2) as u16,
            interval_ms: number(58, 2) as u16,
            mpid_extended: number(60, 8),
            is_down: bytes[68] != 0,
        }))
    }
}

/// A tag of a sent frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// VLAN, 12 bits.
    pub vlan: u16,
    /// Priority, 3 bits.
    pub pcp: u8,
}

/// The whole frame of a message.
pub fn build(dst_mac: MacAddr, src_mac: MacAddr, tag: Option<Tag>, message: &Message) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETH_HEADER_BYTES + VLAN_TAG_BYTES + MESSAGE_BYTES);
    frame.extend_from_slice(&dst_mac.0);
    frame.extend_from_slice(&src_mac.0);
    if let Some(Tag { vlan, pcp }) = tag {
        frame.extend_from_slice(&ETH_TYPE_VLAN.to_be_bytes());
        frame.extend_from_slice(&(vlan & 0xfff | u16::from(pcp) << 13).to_be_bytes());
    }
    frame.extend_from_slice(&ETH_TYPE_CFM.to_be_bytes());
    frame.extend_from_slice(&message.to_bytes());
    frame
}

/// Parses a frame, with up to two VLAN tags.
///
/// # Errors
/// It is too short or another operation.
pub fn parse_frame(frame: &[u8]) -> Result<Frame, Refusal> {
    let src_mac = frame.get(6..).and_then(|rest| rest.first_chunk()).ok_or(Refusal::Short)?;
    let type_at = |at: usize| {
        let bytes = frame.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or(Refusal::Short)
    };
    let mut at = ETH_HEADER_BYTES - 2;
    for _ in 0..VLAN_TAGS_MAX {
        if matches!(type_at(at)?, ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD) {
            at += VLAN_TAG_BYTES;
        }
    }
    let message = Message::parse(frame.get(at + 2..).unwrap_or_default())?;
    Ok(Frame { src_mac: MacAddr(*src_mac), message })
}
