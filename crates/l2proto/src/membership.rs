//! Messages of hosts and routers about multicast groups: IGMP versions 1 to 3 (RFC 1112, 2236, 3376) and MLD versions 1 and 2
//! (RFC 2710, 3810).
//!
//! [`parse`] reads the payload of an IP packet. Sources of a record are not kept: as in OVS, a record that excludes all
//! sources is a join, and one that includes none is a leave. A message that ends early gives the records before its end.

use packet::checksum;
use packet::headers::IPPROTO_ICMPV6;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Types of ICMPv6 messages of MLD: query, report, done, and the report of version 2.
pub const MLD_TYPES: [u8; 4] = [mld::QUERY, mld::REPORT, mld::DONE, mld::REPORT_V2];

/// Types of IGMP messages (RFC 2236 §2.1, RFC 3376 §4).
mod igmp {
    pub(super) const QUERY: u8 = 0x11;
    pub(super) const REPORT_V1: u8 = 0x12;
    pub(super) const REPORT_V2: u8 = 0x16;
    pub(super) const LEAVE: u8 = 0x17;
    pub(super) const REPORT_V3: u8 = 0x22;
}

/// Types of MLD messages (RFC 2710 §3.1, RFC 3810 §5).
mod mld {
    pub(super) const QUERY: u8 = 130;
    pub(super) const REPORT: u8 = 131;
    pub(super) const DONE: u8 = 132;
    pub(super) const REPORT_V2: u8 = 143;
}

/// Bytes of the header of each message that this module reads.
const HEADER_BYTES: usize = 8;
/// Types of a record (RFC 3376 §4.2.12).
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 1..=6;
/// Types of a record that lists all sources wanted.
const INCLUDES: [u8; 2] = [1, 3];

/// The protocol of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// IGMP version 1.
    IgmpV1,
    /// IGMP version 2.
    IgmpV2,
    /// IGMP version 3.
    IgmpV3,
    /// MLD version 1.
    MldV1,
    /// MLD version 2.
    MldV2,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 5] =
        [Protocol::IgmpV1, Protocol::IgmpV2, Protocol::IgmpV3, Protocol::MldV1, Protocol::MldV2];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Protocol::IgmpV1 => "IGMPv1",
            Protocol::IgmpV2 => "IGMPv2",
            Protocol::IgmpV3 => "IGMPv3",
            Protocol::MldV1 => "MLDv1",
            Protocol::MldV2 => "MLDv2",
        })
    }
}

/// A change of the membership of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The group; an address of IPv4 is mapped.
    pub group: Ipv6Addr,
    /// Whether the host wants its packets.
    pub joins: bool,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router asks for members.
    Query,
    /// A host tells its memberships, of one or more groups.
    Report {
        /// Its protocol.
        protocol: Protocol,
        /// The groups, as many as the message has bytes for.
        records: Vec<Record>,
    },
    /// A message of an older report or leave: one group.
    Single {
        /// Its protocol.
        protocol: Protocol,
        /// The group.
        record: Record,
    },
}

/// Reason why a message has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Too short for its type.
    Short,
    /// The checksum is wrong.
    Checksum,
    /// A type that is none of these protocols.
    Type,
}

/// Whether an IGMP message of that type is a report or a leave.
pub fn is_igmp_membership(kind: u8) -> bool {
    matches!(kind, igmp::REPORT_V1 | igmp::REPORT_V2 | igmp::REPORT_V3 | igmp::LEAVE)
}

/// Whether an MLD message of that type is a report or a done.
pub fn is_mld_membership(kind: u8) -> bool {
    MLD_TYPES.contains(&kind) && kind != mld::QUERY
}

/// Reads the payload of an IP packet from `src` to `dst`: of IGMP for addresses of IPv4, else of ICMPv6. Bytes behind the
/// packet's length belong to its frame and are not part of the payload.
///
/// # Errors
/// The message has no effect.
pub fn parse(src: IpAddr, dst: IpAddr, payload: &[u8]) -> Result<Message, Fault> {
    let (Some((&kind, _)), true) = (payload.split_first(), payload.len() >= HEADER_BYTES) else {
        return Err(Fault::Short);
    };
    let pseudo = match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo(&src.octets(), &dst.octets(), IPPROTO_ICMPV6, payload.len())
        }
        _ => 0,
    };
    if checksum::fold(checksum::sum(payload, pseudo)) != u16::MAX {
        return Err(Fault::Checksum);
    }
    if dst.is_ipv4() { igmp_message(kind, payload) } else { mld_message(kind, payload) }
}

fn igmp_message(kind: u8, payload: &[u8]) -> Result<Message, Fault> {
    let single = |protocol, joins| {
        let group = address::<4>(payload, 4).map(|octets| Ipv4Addr::from(octets).to_ipv6_mapped());
        let group = group.ok_or(Fault::Short)?;
        Ok(Message::Single { protocol, record: Record { group, joins } })
    };
    match kind {
        igmp::QUERY => Ok(Message::Query),
        igmp::REPORT_V1 => single(Protocol::IgmpV1, true),
        igmp::REPORT_V2 => single(Protocol::IgmpV2, true),
        igmp::LEAVE => single(Protocol::IgmpV2, false),
        igmp::REPORT_V3 => {
            let group = |octets: [u8; 4]| Ipv4Addr::from(octets).to_ipv6_mapped();
            Ok(Message::Report { protocol: Protocol::IgmpV3, records: records(payload, group) })
        }
        _ => Err(Fault::Type),
    }
}

fn mld_message(kind: u8, payload: &[u8]) -> Result<Message, Fault> {
    let single = |joins| {
        let group = Ipv6Addr::from(address::<16>(payload, HEADER_BYTES).ok_or(Fault::Short)?);
        let records = vec![Record { group, joins }];
        Ok(Message::Report { protocol: Protocol::MldV1, records })
    };
    match kind {
        mld::QUERY => Ok(Message::Query),
        mld::REPORT => single(true),
        mld::DONE => single(false),
        mld::REPORT_V2 => {
            Ok(Message::Report { protocol: Protocol::MldV2, records: records(payload, Ipv6Addr::from) })
        }
        _ => Err(Fault::Type),
    }
}

fn address<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The records of a report with addresses of that many bytes (RFC 3376 §4.2, RFC 3810 §5.2). Their number is in the header;
/// those of unknown types are passed over.
fn records<const N: usize>(payload: &[u8], group: impl Fn([u8; N]) -> Ipv6Addr) -> Vec<Record> {
    let Some((header, mut rest)) = payload.split_first_chunk::<HEADER_BYTES>() else { return Vec::new() };
    let count = u16::from_be_bytes([header[6], header[7]]);
    let mut records = Vec::new();
    for _ in 0..count {
        let (Some(&[kind, aux_words, high, low]), Some(octets)) = (rest.first_chunk(), address(rest, 4))
        else {
            break;
        };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        if RECORD_TYPES.contains(&kind) {
            let joins = sources != 0 || !INCLUDES.contains(&kind);
            records.push(Record { group: group(octets), joins });
        }
        // Auxiliary data are counted in words of 32 bits.
        let bytes = 4 + N + sources * N + usize::from(aux_words) * 4;
        rest = rest.get(bytes..).unwrap_or_default();
    }
    records
}

#[cfg(test)]
mod tests;
