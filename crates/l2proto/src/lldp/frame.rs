//! Frames of LLDP (IEEE 802.1AB §9) with the TLVs of auto-attach (draft-unbehagen-lldp-spb).
//!
//! [`build`] writes what OVS sends; [`parse`] takes what it takes: the first three TLVs in their order, the known ones behind
//! them, and an end. Each field of a TLV is read within its bytes.

use flow::MacAddr;
use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN, VLAN_TAG_BYTES};
use thiserror::Error;

/// EtherType of LLDP.
pub const ETH_TYPE_LLDP: u16 = 0x88cc;
/// Destination of frames.
pub const DST_MAC: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);
/// Seconds for which a sent frame is valid.
pub const TTL_S: u16 = 120;
/// Largest text in a sent TLV (IEEE 802.1AB §9.5).
pub const TEXT_BYTES_MAX: usize = 255;
/// Mappings that fit into a TLV.
pub const MAPPINGS_MAX: usize = (TLV_BYTES_MAX - ASSIGNMENTS_BYTES) / MAPPING_BYTES;

/// Largest value of a TLV.
const TLV_BYTES_MAX: usize = 511;
/// Largest identifier with its subtype.
const ID_BYTES_MAX: usize = 256;
/// Organization of auto-attach.
const ORG: [u8; 3] = [0x00, 0x04, 0x0d];
/// Organizations whose TLVs are skipped without a line.
const KNOWN_ORGS: [[u8; 3]; 4] =
    [[0x00, 0x80, 0xc2], [0x00, 0x12, 0x0f], [0x00, 0x12, 0xbb], [0x00, 0x1b, 0x21]];
/// Subtypes of auto-attach.
const ELEMENT: u8 = 11;
const ASSIGNMENTS: u8 = 12;
/// Organization, subtype and digest of each.
const ASSIGNMENTS_BYTES: usize = 4 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 32;
/// Bytes of an element: behind those four bytes, two words for type and VLAN, and a system.
const ELEMENT_BYTES: usize = ASSIGNMENTS_BYTES + 4 + SYSTEM_BYTES;
const SYSTEM_BYTES: usize = 10;
const MAPPING_BYTES: usize = 5;
/// Type of an element: a virtual switch as client.
const VIRTUAL_SWITCH: u16 = 14;
/// Capability of a bridge.
const BRIDGE: u16 = 4;
/// Longest management address with its family.
const ADDRESS_BYTES_MAX: usize = 32;

/// Types of TLVs.
mod tlv {
    pub(super) const END: u16 = 0;
    pub(super) const CHASSIS_ID: u16 = 1;
    pub(super) const PORT_ID: u16 = 2;
    pub(super) const TTL: u16 = 3;
    pub(super) const PORT_DESCRIPTION: u16 = 4;
    pub(super) const SYSTEM_NAME: u16 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u16 = 6;
    pub(super) const CAPABILITIES: u16 = 7;
    pub(super) const MANAGEMENT_ADDRESS: u16 = 8;
    pub(super) const ORGANIZATION: u16 = 127;
}

/// A service and its VLAN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mapping {
    /// Service identifier, 24 bits.
    pub isid: u32,
    /// VLAN, 12 bits.
    pub vlan: u16,
}

/// The contents of a sent frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local<'a> {
    /// Address of the port, which identifies the system.
    pub mac: MacAddr,
    /// Name of the port.
    pub port: &'a str,
    /// Name of the system; empty for none.
    pub name: &'a str,
    /// Its description; empty for none.
    pub description: &'a str,
    /// Requested services, [`MAPPINGS_MAX`] at most.
    pub mappings: &'a [Mapping],
}

fn put(frame: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(bytes <= TLV_BYTES_MAX);
    frame.extend_from_slice(&(kind << 9 | bytes as u16).to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
}

/// The start of a text, cut at a character.
fn text(text: &str) -> &[u8] {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

/// The whole frame.
pub fn build(local: &Local<'_>) -> Vec<u8> {
    let mut frame = Vec::with_capacity(256);
    frame.extend_from_slice(&DST_MAC.0);
    frame.extend_from_slice(&local.mac.0);
    frame.extend_from_slice(&ETH_TYPE_LLDP.to_be_bytes());
    // An address of the system, a name of the interface.
    put(&mut frame, tlv::CHASSIS_ID, &[&[4], &local.mac.0]);
    put(&mut frame, tlv::PORT_ID, &[&[5], text(local.port)]);
    put(&mut frame, tlv::TTL, &[&TTL_S.to_be_bytes()]);
    for (kind, value) in [(tlv::SYSTEM_NAME, local.name), (tlv::SYSTEM_DESCRIPTION, local.description)] {
        if !value.is_empty() {
            put(&mut frame, kind, &[text(value)]);
        }
    }
    put(&mut frame, tlv::CAPABILITIES, &[&BRIDGE.to_be_bytes(), &BRIDGE.to_be_bytes()]);
    let digest = [0; DIGEST_BYTES];
    let element = (VIRTUAL_SWITCH << 10).to_be_bytes();
    put(
        &mut frame,
        tlv::ORGANIZATION,
        &[&ORG, &[ELEMENT], &digest, &element, &[0; 2], &local.mac.0, &[0; SYSTEM_BYTES - 6]],
    );
    if !local.mappings.is_empty() {
        let mut pairs = Vec::with_capacity(MAPPINGS_MAX * MAPPING_BYTES);
        for Mapping { isid, vlan } in local.mappings.iter().take(MAPPINGS_MAX) {
            pairs.extend_from_slice(&vlan.to_be_bytes());
            pairs.extend_from_slice(&isid.to_be_bytes()[1..]);
        }
        put(&mut frame, tlv::ORGANIZATION, &[&ORG, &[ASSIGNMENTS], &digest, &pairs]);
    }
    put(&mut frame, tlv::END, &[]);
    frame
}

/// An element of auto-attach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// Type, 6 bits.
    pub kind: u8,
    /// Whether it demands tags.
    pub has_tags: bool,
    /// Provisioning mode, 2 bits.
    pub mode: u8,
    /// VLAN of its management, 12 bits.
    pub vlan: u16,
    /// Its address.
    pub mac: MacAddr,
    /// Type of its connection, 3 bits.
    pub connection: u8,
    /// Reserved bits, 10.
    pub reserved: u16,
    /// Reserved bytes.
    pub reserved_bytes: [u8; 2],
}

impl Element {
    /// Its system as `autoattach/status` shows it: the 12 bytes of a structure of OVS on machines with the least
    /// significant byte first.
    pub fn system(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.mac.0);
        bytes[6] = self.connection;
        bytes[8..10].copy_from_slice(&self.reserved.to_le_bytes());
        bytes[10..].copy_from_slice(&self.reserved_bytes);
        bytes
    }
}

/// A service that another system assigns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Service and VLAN.
    pub mapping: Mapping,
    /// Status, 4 bits.
    pub status: u8,
}

/// An identifier: its subtype and its bytes.
pub type Id = Box<[u8]>;

/// The contents of a received frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Identifier of the system.
    pub chassis: Id,
    /// Identifier of its port.
    pub port: Id,
    /// Seconds for which the frame is valid.
    pub ttl_s: u16,
    /// Description of the system.
    pub description: Option<Box<[u8]>>,
    /// Its element of auto-attach.
    pub element: Option<Element>,
    /// Assigned services.
    pub assignments: Vec<Assignment>,
    /// TLVs that are skipped as unknown.
    pub unknown: u32,
    /// Unknown organizations, one at most.
    pub unknown_org: Option<[u8; 3]>,
}

/// The reason to ignore a frame. `{}` is the text of OVS up to the name of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// Shorter than header and a TLV: not even counted.
    #[error("too short frame")]
    Short,
    /// Another destination.
    #[error("frame not targeted at LLDP multicast address received")]
    Destination,
    /// Another type.
    #[error("non LLDP frame received")]
    Type,
    /// Half a header.
    #[error("tlv header too short received")]
    Header,
    /// A TLV ends behind the frame.
    #[error("frame too short for tlv received")]
    Length,
    /// One of the first three TLVs is absent, or there again.
    #[error("{} TLV should be a {}, not {}", .0.0, .0.1, .1)]
    Order((&'static str, &'static str), u16),
    /// An end with a value.
    #[error("lldp end received with size not null")]
    End,
    /// A TLV without its fields.
    #[error("{0} TLV too short received")]
    TlvShort(&'static str),
    /// A long identifier.
    #[error("Port/Chassis Id TLV too large received")]
    IdLong,
    /// An identifier of unknown type.
    #[error("unknown subtype for tlv id received")]
    IdType,
    /// A long address.
    #[error("too large management address")]
    Address,
    /// Half an assignment.
    #[error("malformed vlan-isid mappings tlv received")]
    Assignments,
    /// An unknown type.
    #[error("unknown tlv ({0}) received")]
    Tlv(u16),
    /// No end.
    #[error("some mandatory tlv are missing for frame received")]
    Incomplete,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Parses a frame, with up to one VLAN tag.
///
/// # Errors
/// It is none that OVS takes.
pub fn parse(frame: &[u8]) -> Result<Remote, Refusal> {
    if frame.len() < ETH_HEADER_BYTES + 4 {
        return Err(Refusal::Short);
    }
    if frame[..6] != DST_MAC.0 {
        return Err(Refusal::Destination);
    }
    let tag_bytes = if word(frame, 12) == Some(ETH_TYPE_VLAN) { VLAN_TAG_BYTES } else { 0 };
    if word(frame, 12 + tag_bytes) != Some(ETH_TYPE_LLDP) {
        return Err(Refusal::Type);
    }
    let mut rest = &frame[ETH_HEADER_BYTES + tag_bytes..];
    let mut remote = Remote::default();
    for place in 0.. {
        if rest.is_empty() {
            break;
        }
        let header = word(rest, 0).ok_or(Refusal::Header)?;
        let (kind, bytes) = (header >> 9, usize::from(header & 0x1ff));
        let value = rest.get(2..2 + bytes).ok_or(Refusal::Length)?;
        rest = &rest[2 + bytes..];
        check_place(place, kind)?;
        if kind == tlv::END {
            return if value.is_empty() { Ok(remote) } else { Err(Refusal::End) };
        }
        take(&mut remote, kind, value)?;
    }
    Err(Refusal::Incomplete)
}

/// Checks that the first three TLVs, and no others, are the mandatory ones.
fn check_place(place: usize, kind: u16) -> Result<(), Refusal> {
    let first = [
        (tlv::CHASSIS_ID, ("first", "chassis ID")),
        (tlv::PORT_ID, ("second", "port ID")),
        (tlv::TTL, ("third", "TTL")),
    ];
    for (at, (expected, names)) in first.into_iter().enumerate() {
        if (place == at) != (kind == expected) {
            return Err(Refusal::Order(names, kind));
        }
    }
    Ok(())
}

fn take(remote: &mut Remote, kind: u16, value: &[u8]) -> Result<(), Refusal> {
    match kind {
        tlv::CHASSIS_ID => remote.chassis = id(value)?,
        tlv::PORT_ID => remote.port = id(value)?,
        tlv::TTL => remote.ttl_s = word(value, 0).ok_or(Refusal::TlvShort("TTL"))?,
        tlv::PORT_DESCRIPTION | tlv::SYSTEM_NAME => {}
        tlv::SYSTEM_DESCRIPTION if value.is_empty() => {}
        tlv::SYSTEM_DESCRIPTION => remote.description = Some(value.into()),
        tlv::CAPABILITIES if value.len() < 4 => return Err(Refusal::TlvShort("System capabilities")),
        tlv::CAPABILITIES => {}
        tlv::MANAGEMENT_ADDRESS => {
            let length = value.first().map(|length| usize::from(*length));
            match length {
                Some(length) if length > ADDRESS_BYTES_MAX && value.len() > length => {
                    return Err(Refusal::Address);
                }
                // Its interface follows: a byte and four.
                Some(length) if value.len() >= 1 + length + 5 => {}
                _ => return Err(Refusal::TlvShort("Management address")),
            }
        }
        tlv::ORGANIZATION => organization(remote, value)?,
        _ => return Err(Refusal::Tlv(kind)),
    }
    Ok(())
}

fn id(value: &[u8]) -> Result<Id, Refusal> {
    if value.len() < 2 {
        return Err(Refusal::TlvShort("Port/Chassis Id"));
    }
    if value.len() > ID_BYTES_MAX {
        return Err(Refusal::IdLong);
    }
    if !(1..=7).contains(&value[0]) {
        return Err(Refusal::IdType);
    }
    Ok(value.into())
}

fn organization(remote: &mut Remote, value: &[u8]) -> Result<(), Refusal> {
    let Some((head, _)) = value.split_first_chunk::<4>() else {
        return Err(Refusal::TlvShort("Organisational"));
    };
    let (org, subtype) = ([head[0], head[1], head[2]], head[3]);
    match (org, subtype) {
        (ORG, ELEMENT) => {
            let Some(fields) = value.get(ASSIGNMENTS_BYTES..ELEMENT_BYTES) else {
                return Err(Refusal::TlvShort("ELEMENT"));
            };
            remote.element = Some(element(fields));
        }
        (ORG, ASSIGNMENTS) => {
            let Some(pairs) = value.get(ASSIGNMENTS_BYTES..) else {
                return Err(Refusal::TlvShort("ISID_VLAN_ASGNS"));
            };
            if pairs.len() % MAPPING_BYTES != 0 {
                return Err(Refusal::Assignments);
            }
            let room = MAPPINGS_MAX - remote.assignments.len();
            remote.assignments.extend(pairs.chunks_exact(MAPPING_BYTES).take(room).map(assignment));
        }
        _ => {
            remote.unknown += 1;
            if org != ORG && !KNOWN_ORGS.contains(&org) {
                remote.unknown_org = Some(org);
            }
        }
    }
    Ok(())
}

/// An element behind its digest, 14 bytes.
fn element(fields: &[u8]) -> Element {
    let at = |at: usize| fields.get(at).copied().unwrap_or(0);
    let word = |from: usize| u16::from(at(from)) << 8 | u16::from(at(from + 1));
    let (first, second, connection) = (word(0), word(2), word(10));
    Element {
        kind: (first >> 10) as u8,
        has_tags: first >> 9 & 1 != 0,
        mode: (first >> 7 & 3) as u8,
        vlan: (first & 0xf) << 8 | second >> 8,
        mac: MacAddr([at(4), at(5), at(6), at(7), at(8), at(9)]),
        connection: (connection >> 13) as u8,
        reserved: connection & 0x3ff,
        reserved_bytes: [at(12), at(13)],
    }
}

/// An assignment of five bytes.
fn assignment(bytes: &[u8]) -> Assignment {
    let number = bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    let mapping = Mapping { isid: number as u32 & 0xff_ffff, vlan: (number >> 24) as u16 & 0xfff };
    Assignment { mapping, status: (number >> 36) as u8 & 0xf }
}
