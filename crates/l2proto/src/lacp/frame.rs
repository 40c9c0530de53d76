//! A message of LACP, and the frame around it (IEEE 802.1AX-2014, clause 6.4.2).

use flow::MacAddr;
use packet::headers::{ETH_TYPE_LACP, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD};

/// Bytes of a message, without the Ethernet header.
pub const PDU_BYTES: usize = 110;
/// Bytes of a frame.
pub const FRAME_BYTES: usize = HEADER_BYTES + PDU_BYTES;
/// Bytes of an Ethernet header.
pub(super) const HEADER_BYTES: usize = 14;
/// Destination of slow protocols.
const SLOW_PROTOCOLS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x02]);
/// Bytes of an [`Information`] on the wire.
const INFORMATION_BYTES: usize = 15;
/// VLAN tags in front of a message at most.
const TAGS_MAX: usize = 2;

/// Subtypes of slow protocols.
const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;
const VERSION: u8 = 1;
/// Type and length of the three parts.
const ACTOR: [u8; 2] = [1, 20];
const PARTNER: [u8; 2] = [2, 20];
const COLLECTOR: [u8; 2] = [3, 16];
/// Offsets of the parts.
const ACTOR_AT: usize = 2;
const PARTNER_AT: usize = 22;
const COLLECTOR_AT: usize = 42;

/// Bits of [`Information::state`].
pub mod state {
    /// The system sends without being asked.
    pub const ACTIVITY: u8 = 0x01;
    /// The system expects a message each second.
    pub const TIMEOUT: u8 = 0x02;
    /// The link may be one of several.
    pub const AGGREGATION: u8 = 0x04;
    /// The link is attached to the right aggregator.
    pub const SYNCHRONIZED: u8 = 0x08;
    /// The system receives data on the link.
    pub const COLLECTING: u8 = 0x10;
    /// The system sends data on the link.
    pub const DISTRIBUTING: u8 = 0x20;
    /// The partner's half is a default.
    pub const DEFAULTED: u8 = 0x40;
    /// The partner's half is out of date.
    pub const EXPIRED: u8 = 0x80;
}

/// Names of the bits of a state, from the lowest.
pub const STATE_NAMES: [&str; 8] = [
    "activity",
    "timeout",
    "aggregation",
    "synchronized",
    "collecting",
    "distributing",
    "defaulted",
    "expired",
];

/// A system: the lower one decides on the priorities of links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct System {
    /// Its priority; the lowest wins.
    pub priority: u16,
    /// Its address.
    pub id: MacAddr,
}

/// One half of a message: the values of an end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Information {
    /// The system.
    pub system: System,
    /// Links with one key can be one bond.
    pub key: u16,
    /// Priority of the link.
    pub port_priority: u16,
    /// Number of the link.
    pub port_id: u16,
    /// Bits of [`state`].
    pub state: u8,
}

impl Information {
    fn to_bytes(self) -> [u8; INFORMATION_BYTES] {
        let mut bytes = [0; INFORMATION_BYTES];
        bytes[..2].copy_from_slice(&self.system.priority.to_be_bytes());
        bytes[2..8].copy_from_slice(&self.system.id.0);
        bytes[8..10].copy_from_slice(&self.key.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.port_priority.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.port_id.to_be_bytes());
        bytes[14] = self.state;
        bytes
    }

    fn parse(bytes: &[u8; INFORMATION_BYTES]) -> Information {
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let [_, _, id @ .., _, _, _, _, _, _, _] = *bytes;
        Information {
            system: System { priority: number(0), id: MacAddr(id) },
            key: number(8),
            port_priority: number(10),
            port_id: number(12),
            state: bytes[14],
        }
    }

    /// Whether a partner that knows `self` needs no message about `now`.
    pub(super) fn is_told(&self, now: &Information) -> bool {
        const TOLD: u8 = state::ACTIVITY | state::TIMEOUT | state::AGGREGATION | state::SYNCHRONIZED;
        let told = |one: &Information| Information { state: one.state & TOLD, ..*one };
        told(self) == told(now)
    }
}

/// A message: both ends of the link as its sender knows them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pdu {
    /// The sender.
    pub actor: Information,
    /// The receiver.
    pub partner: Information,
}

/// A payload of slow protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// A message of LACP.
    Pdu(Pdu),
    /// A marker.
    Marker,
    /// Neither.
    Bad,
}

impl Pdu {
    /// The bytes behind the Ethernet header.
    pub fn to_bytes(self) -> [u8; PDU_BYTES] {
        let mut bytes = [0; PDU_BYTES];
        bytes[..2].copy_from_slice(&[SUBTYPE_LACP, VERSION]);
        for (at, head, half) in [(ACTOR_AT, ACTOR, self.actor), (PARTNER_AT, PARTNER, self.partner)] {
            bytes[at..at + 2].copy_from_slice(&head);
            bytes[at + 2..at + 2 + INFORMATION_BYTES].copy_from_slice(&half.to_bytes());
        }
        bytes[COLLECTOR_AT..COLLECTOR_AT + 2].copy_from_slice(&COLLECTOR);
        bytes
    }

    /// Parses a payload. As in OVS, a short one is bad whatever its subtype, and versions and the collector do not matter.
    pub fn parse(payload: &[u8]) -> Parsed {
        let Some(bytes) = payload.first_chunk::<PDU_BYTES>() else { return Parsed::Bad };
        match bytes[0] {
            SUBTYPE_LACP => {}
            SUBTYPE_MARKER => return Parsed::Marker,
            _ => return Parsed::Bad,
        }
        let half = |at: usize, head: [u8; 2]| {
            let information = bytes[at..].strip_prefix(&head)?.first_chunk()?;
            Some(Information::parse(information))
        };
        match (half(ACTOR_AT, ACTOR), half(PARTNER_AT, PARTNER)) {
            (Some(actor), Some(partner)) => Parsed::Pdu(Pdu { actor, partner }),
            _ => Parsed::Bad,
        }
    }
}

/// The frame of a message from an address.
pub fn build(src: MacAddr, pdu: Pdu) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&SLOW_PROTOCOLS.0);
    frame[6..12].copy_from_slice(&src.0);
    frame[12..14].copy_from_slice(&ETH_TYPE_LACP.to_be_bytes());
    frame[HEADER_BYTES..].copy_from_slice(&pdu.to_bytes());
    frame
}

/// The bytes behind the Ethernet header and VLAN tags of a frame of slow protocols.
pub fn payload(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    for _ in 0..=TAGS_MAX {
        let (eth_type, behind) = rest.split_first_chunk::<2>()?;
        match u16::from_be_bytes(*eth_type) {
            ETH_TYPE_LACP => return Some(behind),
            ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD => rest = behind.get(2..)?,
            _ => return None,
        }
    }
    None
}
