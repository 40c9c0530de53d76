//! A connection as attributes (`CTA_*` of linux/netfilter/nfnetlink_conntrack.h). Numbers are in network byte order,
//! except labels.

use crate::message::NETFILTER_BYTES;
use dpif::{Connection, CtAddresses, CtCounters, CtProtocol, CtTransport, CtTuple, TcpSide, TcpState};
use flow::nlattr::{Attr, AttrError, AttrWriter, Attrs};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Address families.
mod family {
    pub(super) const INET: u8 = 2;
    pub(super) const INET6: u8 = 10;
}

/// `CTA_*`.
pub(super) mod attr {
    pub(crate) const TUPLE_ORIG: u16 = 1;
    pub(crate) const TUPLE_REPLY: u16 = 2;
    pub(crate) const STATUS: u16 = 3;
    pub(crate) const PROTOINFO: u16 = 4;
    pub(crate) const HELP: u16 = 5;
    pub(crate) const TIMEOUT: u16 = 7;
    pub(crate) const MARK: u16 = 8;
    pub(crate) const COUNTERS_ORIG: u16 = 9;
    pub(crate) const COUNTERS_REPLY: u16 = 10;
    pub(crate) const ID: u16 = 12;
    pub(crate) const TUPLE_MASTER: u16 = 14;
    pub(crate) const ZONE: u16 = 18;
    pub(crate) const TIMESTAMP: u16 = 20;
    pub(crate) const LABELS: u16 = 22;
}

/// Names of `CTA_*`, by number.
pub(super) const ATTRIBUTES: &[&str] = &[
    "CTA_UNSPEC",
    "CTA_TUPLE_ORIG",
    "CTA_TUPLE_REPLY",
    "CTA_STATUS",
    "CTA_PROTOINFO",
    "CTA_HELP",
    "CTA_NAT_SRC",
    "CTA_TIMEOUT",
    "CTA_MARK",
    "CTA_COUNTERS_ORIG",
    "CTA_COUNTERS_REPLY",
    "CTA_USE",
    "CTA_ID",
    "CTA_NAT_DST",
    "CTA_TUPLE_MASTER",
    "CTA_SEQ_ADJ_ORIG",
    "CTA_SEQ_ADJ_REPLY",
    "CTA_SECMARK",
    "CTA_ZONE",
];

/// Within a tuple (`CTA_TUPLE_*`), and within its parts (`CTA_IP_*`, `CTA_PROTO_*`).
mod tuple {
    pub(super) const IP: u16 = 1;
    pub(super) const PROTO: u16 = 2;
    pub(super) const V4_SRC: u16 = 1;
    pub(super) const V4_DST: u16 = 2;
    pub(super) const V6_SRC: u16 = 3;
    pub(super) const V6_DST: u16 = 4;
    pub(super) const NUMBER: u16 = 1;
    pub(super) const SRC_PORT: u16 = 2;
    pub(super) const DST_PORT: u16 = 3;
    /// Identifier, type and code of ICMP.
    pub(super) const ICMP: [u16; 3] = [4, 5, 6];
    /// Identifier, type and code of ICMPv6.
    pub(super) const ICMPV6: [u16; 3] = [7, 8, 9];
}

/// Within protocol data (`CTA_PROTOINFO_*`).
mod protoinfo {
    pub(super) const TCP: u16 = 1;
    pub(super) const SCTP: u16 = 3;
    pub(super) const STATE: u16 = 1;
    pub(super) const TCP_WSCALE: [u16; 2] = [2, 3];
    pub(super) const TCP_FLAGS: [u16; 2] = [4, 5];
    pub(super) const SCTP_VTAG: [u16; 2] = [2, 3];
}

/// Within counters, times and helpers.
mod inner {
    pub(super) const PACKETS: u16 = 1;
    pub(super) const BYTES: u16 = 2;
    pub(super) const START: u16 = 1;
    pub(super) const STOP: u16 = 2;
    pub(super) const HELPER_NAME: u16 = 1;
}

/// Identity of a connection in the kernel, as received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) address_family: u8,
    /// Attributes within `CTA_TUPLE_ORIG`, including zones of one direction.
    pub(super) orig: Vec<u8>,
    pub(super) zone: u16,
    pub(super) id: Option<u32>,
}

impl Name {
    /// For a connection known by its original tuple.
    pub(super) fn of_tuple(zone: u16, tuple: &CtTuple) -> Result<Name, flow::nlattr::TooLong> {
        let mut orig = AttrWriter::new();
        write_tuple(&mut orig, tuple);
        let address_family = match tuple.addresses {
            CtAddresses::V4 { .. } => family::INET,
            CtAddresses::V6 { .. } => family::INET6,
        };
        Ok(Name { address_family, orig: orig.finish()?, zone, id: None })
    }

    pub(super) fn write(&self, out: &mut AttrWriter) {
        out.nested_bytes(attr::TUPLE_ORIG, &self.orig);
        out.be16(attr::ZONE, self.zone);
        if let Some(id) = self.id {
            out.be32(attr::ID, id);
        }
    }
}

/// Reads a connection and its identity from the body of a message, after netfilter's header.
pub(super) fn parse(body: &[u8]) -> Result<(Connection, Name), AttrError> {
    let head: &[u8; NETFILTER_BYTES] = body.first_chunk().ok_or(AttrError::Cut { at_bytes: body.len() })?;
    let attrs = Attrs::parse(&body[NETFILTER_BYTES..])?;
    let orig = attrs.require(attr::TUPLE_ORIG)?;
    let be32 = |kind| attrs.get(kind).map(|a| a.be32()).transpose();
    let zone = attrs.get(attr::ZONE).map(|a| a.be16()).transpose()?.unwrap_or(0);
    let id = be32(attr::ID)?;
    let [start_ns, stop_ns] = numbers(attrs.get(attr::TIMESTAMP), [inner::START, inner::STOP])?;
    let counters = |kind| {
        let [packets, bytes] = numbers(attrs.get(kind), [inner::PACKETS, inner::BYTES])?;
        Ok(CtCounters { packets, bytes })
    };
    let connection = Connection {
        orig: parse_tuple(orig)?,
        reply: parse_tuple(attrs.require(attr::TUPLE_REPLY)?)?,
        parent: attrs.get(attr::TUPLE_MASTER).map(parse_tuple).transpose()?,
        zone,
        mark: be32(attr::MARK)?.unwrap_or(0),
        labels: attrs.get(attr::LABELS).map(|a| a.array()).transpose()?.map_or(0, u128::from_ne_bytes),
        status: be32(attr::STATUS)?.unwrap_or(0),
        id: id.unwrap_or(0),
        timeout_s: be32(attr::TIMEOUT)?.unwrap_or(0),
        counters: [counters(attr::COUNTERS_ORIG)?, counters(attr::COUNTERS_REPLY)?],
        start_ns,
        stop_ns,
        protocol: attrs.get(attr::PROTOINFO).map(parse_protocol).transpose()?.flatten(),
        helper: attrs.get(attr::HELP).map(parse_helper).transpose()?.flatten(),
    };
    let name = Name { address_family: head[0], orig: orig.content.to_vec(), zone, id };
    Ok((connection, name))
}

/// Two 64-bit numbers within an attribute; zero if missing.
fn numbers(list: Option<Attr<'_>>, kinds: [u16; 2]) -> Result<[u64; 2], AttrError> {
    let Some(list) = list else { return Ok([0; 2]) };
    let list = list.nested()?;
    let mut found = [0; 2];
    for (found, kind) in found.iter_mut().zip(kinds) {
        if let Some(a) = list.get(kind) {
            *found = u64::from_be_bytes(a.array()?);
        }
    }
    Ok(found)
}

/// The tuple of an identity, for fuzzing.
pub(super) fn tuple_of(name: &Name) -> Option<CtTuple> {
    read_tuple(Attrs::parse(&name.orig).ok()?).ok()
}

fn parse_tuple(a: Attr<'_>) -> Result<CtTuple, AttrError> {
    read_tuple(a.nested()?)
}

fn read_tuple(parts: Attrs<'_>) -> Result<CtTuple, AttrError> {
    let ip = parts.require(tuple::IP)?.nested()?;
    let addresses = if ip.get(tuple::V4_SRC).is_some() {
        let one = |kind| ip.require(kind)?.array::<4>().map(Ipv4Addr::from);
        CtAddresses::V4 { src: one(tuple::V4_SRC)?, dst: one(tuple::V4_DST)? }
    } else {
        let one = |kind| ip.require(kind)?.array::<16>().map(Ipv6Addr::from);
        CtAddresses::V6 { src: one(tuple::V6_SRC)?, dst: one(tuple::V6_DST)? }
    };
    let header = parts.require(tuple::PROTO)?.nested()?;
    let proto = header.require(tuple::NUMBER)?.u8()?;
    let transport = if proto == addresses.icmp() {
        let [id, kind, code] = icmp_kinds(addresses);
        CtTransport::Icmp {
            id: header.require(id)?.be16()?,
            kind: header.require(kind)?.u8()?,
            code: header.require(code)?.u8()?,
        }
    } else {
        // Protocols without ports may have none.
        let port = |kind| header.get(kind).map_or(Ok(0), |a| a.be16());
        CtTransport::Ports { src: port(tuple::SRC_PORT)?, dst: port(tuple::DST_PORT)? }
    };
    Ok(CtTuple { addresses, proto, transport })
}

fn icmp_kinds(addresses: CtAddresses) -> [u16; 3] {
    match addresses {
        CtAddresses::V4 { .. } => tuple::ICMP,
        CtAddresses::V6 { .. } => tuple::ICMPV6,
    }
}

/// Writes the contents of a tuple.
fn write_tuple(out: &mut AttrWriter, t: &CtTuple) {
    out.nested(tuple::IP, |out| match t.addresses {
        CtAddresses::V4 { src, dst } => {
            out.put(tuple::V4_SRC, &src.octets());
            out.put(tuple::V4_DST, &dst.octets());
        }
        CtAddresses::V6 { src, dst } => {
            out.put(tuple::V6_SRC, &src.octets());
            out.put(tuple::V6_DST, &dst.octets());
        }
    });
    out.nested(tuple::PROTO, |out| {
        out.u8(tuple::NUMBER, t.proto);
        match t.transport {
            CtTransport::Ports { src, dst } => {
                out.be16(tuple::SRC_PORT, src);
                out.be16(tuple::DST_PORT, dst);
            }
            CtTransport::Icmp { id, kind, code } => {
                let [id_kind, type_kind, code_kind] = icmp_kinds(t.addresses);
                out.be16(id_kind, id);
                out.u8(type_kind, kind);
                out.u8(code_kind, code);
            }
        }
    });
}

/// Protocol data; `None` for unknown protocols.
fn parse_protocol(a: Attr<'_>) -> Result<Option<CtProtocol>, AttrError> {
    let parts = a.nested()?;
    if let Some(tcp) = parts.get(protoinfo::TCP) {
        let tcp = tcp.nested()?;
        // The kernel keeps one state for both sides.
        let state = tcp_state(tcp.require(protoinfo::STATE)?.u8()?);
        let side = |n: usize| {
            let window_scale = tcp.get(protoinfo::TCP_WSCALE[n]).map_or(Ok(0), |a| a.u8())?;
            // Flags and their mask.
            let [flags, _] = tcp.get(protoinfo::TCP_FLAGS[n]).map_or(Ok([0; 2]), |a| a.prefix())?;
            Ok(TcpSide { state, window_scale, flags })
        };
        return Ok(Some(CtProtocol::Tcp(side(0)?, side(1)?)));
    }
    if let Some(sctp) = parts.get(protoinfo::SCTP) {
        let sctp = sctp.nested()?;
        // In the machine's byte order, as in stock tools.
        let [orig, reply] = protoinfo::SCTP_VTAG.map(|kind| sctp.require(kind).and_then(|a| a.u32()));
        let state = sctp.require(protoinfo::STATE)?.u8()?;
        return Ok(Some(CtProtocol::Sctp { state, tags: [orig?, reply?] }));
    }
    Ok(None)
}

/// The state of a number of `TCP_CONNTRACK_*`.
fn tcp_state(number: u8) -> TcpState {
    match number {
        // Both sides sent a SYN.
        1 | 9 => TcpState::SynSent,
        2 => TcpState::SynRecv,
        3 => TcpState::Established,
        4 => TcpState::FinWait1,
        5 => TcpState::CloseWait,
        6 => TcpState::LastAck,
        7 => TcpState::TimeWait,
        8 => TcpState::Closing,
        _ => TcpState::Closed,
    }
}

fn parse_helper(a: Attr<'_>) -> Result<Option<String>, AttrError> {
    let name = a.nested()?.get(inner::HELPER_NAME).map(|name| name.text()).transpose()?;
    Ok(name.map(str::to_owned))
}

#[cfg(test)]
mod tests;
