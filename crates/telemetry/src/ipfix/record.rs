//! A sampled packet: its kind, the key of its flow, and what it adds to counters.

use super::Totals;
use super::template::{Kind, L3, L4};
use crate::bytes::Bytes;
use flow::Flow;

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It enters.
    Ingress,
    /// It leaves.
    Egress,
}

/// An interface in records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its index; 0: unknown.
    pub index: u32,
    /// Its type; 0: unknown.
    pub if_type: u32,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
}

/// Outer headers of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Number of its type.
    pub kind: u8,
    /// Protocol of its IP header.
    pub protocol: u8,
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// Key.
    pub key: u64,
    /// Bytes of the key, at most 8.
    pub key_bytes: u8,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its fields.
    pub flow: &'a Flow,
    /// Its bytes.
    pub frame_bytes: u32,
    /// Packets for which it stands.
    pub packets: u64,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// Its direction.
    pub direction: Direction,
    /// The interface that received it.
    pub ingress: Option<&'a Interface>,
    /// The interface that sends it.
    pub egress: Option<&'a Interface>,
    /// Its tunnel.
    pub tunnel: Option<Tunnel>,
    /// Whether no port gets it.
    pub is_dropped: bool,
}

/// The key of a flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) domain: u32,
    pub(super) kind: Kind,
    /// The first part of its record.
    pub(super) bytes: Vec<u8>,
}

/// Longest name of an interface in a record.
const NAME_MAX_BYTES: usize = 254;
/// The bit of a group address.
const GROUP: u8 = 1;
/// Bytes of the Ethernet header.
const ETH_BYTES: u32 = 14;
/// Bytes of a VLAN tag.
const VLAN_BYTES: u32 = 4;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV4_TYPE: u16 = 0x0800;
const IPV6_TYPE: u16 = 0x86dd;

/// A text with its length in a byte.
pub(super) fn put_text(out: &mut Bytes, text: &str, max_bytes: usize) {
    let bytes = &text.as_bytes()[..text.len().min(max_bytes)];
    out.u8(bytes.len() as u8);
    out.put(bytes);
}

fn put_interface(out: &mut Bytes, interface: Option<&Interface>) {
    let none = Interface::default();
    let Interface { index, if_type, name, description } = interface.unwrap_or(&none);
    out.u32(*index);
    out.u32(*if_type);
    put_text(out, name, NAME_MAX_BYTES);
    put_text(out, description, NAME_MAX_BYTES);
}

impl Record<'_> {
    fn kind(&self) -> Kind {
        let f = self.flow;
        let l3 = match f.dl_type {
            IPV4_TYPE => L3::V4,
            IPV6_TYPE => L3::V6,
            _ => L3::Other,
        };
        let l4 = match (l3, f.nw_proto) {
            (L3::Other, _) => L4::Other,
            (_, TCP) => L4::Tcp,
            (_, UDP) => L4::Udp,
            (_, SCTP) => L4::Sctp,
            (L3::V4, ICMP) | (L3::V6, ICMPV6) => L4::Icmp,
            _ => L4::Other,
        };
        Kind {
            has_vlan: f.vlans[0].tci != 0,
            l3,
            l4,
            has_tunnel: self.tunnel.is_some(),
            is_egress: self.direction == Direction::Egress,
        }
    }

    /// The key of its flow, and its kind.
    pub(super) fn key(&self) -> (Key, Kind) {
        let (f, kind) = (self.flow, self.kind());
        let mut out = Bytes(Vec::with_capacity(128));
        out.u32(self.point);
        out.u8(kind.is_egress.into());
        out.put(&f.dl_src);
        out.put(&f.dl_dst);
        out.u16(f.dl_type);
        out.u8(self.header_bytes(kind) as u8);
        put_interface(&mut out, self.ingress);
        if kind.is_egress {
            put_interface(&mut out, self.egress);
        }
        if kind.has_vlan {
            let tci = f.vlans[0].tci;
            out.u16(tci & 0xfff);
            out.u16(tci & 0xfff);
            out.u8((tci >> 13) as u8);
        }
        if kind.has_ip() {
            self.put_ip(&mut out, kind);
        }
        match kind.l4 {
            L4::Tcp | L4::Udp | L4::Sctp => {
                out.u16(f.tp_src);
                out.u16(f.tp_dst);
            }
            L4::Icmp => {
                out.u8(f.tp_src as u8);
                out.u8(f.tp_dst as u8);
            }
            L4::Other => {}
        }
        if let Some(t) = &self.tunnel {
            out.u32(t.src);
            out.u32(t.dst);
            out.u8(t.protocol);
            out.u16(t.src_port);
            out.u16(t.dst_port);
            out.u8(t.kind);
            let key_bytes = t.key_bytes.min(8);
            out.u8(key_bytes);
            out.put(&t.key.to_be_bytes()[8 - usize::from(key_bytes)..]);
        }
        (Key { domain: self.domain, kind, bytes: out.0 }, kind)
    }

    fn put_ip(&self, out: &mut Bytes, kind: Kind) {
        let f = self.flow;
        out.u8(if kind.is_ipv4() { 4 } else { 6 });
        for n in [f.nw_ttl, f.nw_proto, f.nw_tos >> 2, f.nw_tos >> 5, f.nw_tos] {
            out.u8(n);
        }
        if kind.is_ipv4() {
            out.u32(f.nw_src);
            out.u32(f.nw_dst);
        } else {
            out.put(&f.ipv6_src);
            out.put(&f.ipv6_dst);
            out.u32(f.ipv6_label);
        }
    }

    /// Bytes before the IP header, as stock switches count them: with one tag at most.
    fn header_bytes(&self, kind: Kind) -> u32 {
        ETH_BYTES + if kind.has_vlan { VLAN_BYTES } else { 0 }
    }

    /// Bytes of its IP packet.
    pub(super) fn octets(&self, kind: Kind) -> u64 {
        self.frame_bytes.saturating_sub(self.header_bytes(kind)).into()
    }

    /// The counts that it adds.
    pub(super) fn count(&self, kind: Kind) -> Totals {
        let packets = self.packets;
        let mut t = Totals {
            packets,
            octets_l2: packets.wrapping_mul(self.frame_bytes.into()),
            dropped_packets: if self.is_dropped { packets } else { 0 },
            ..Totals::default()
        };
        let is_broadcast = self.flow.dl_dst == [0xff; 6];
        let is_multicast = !is_broadcast && self.flow.dl_dst[0] & GROUP != 0;
        match (kind.is_egress, is_broadcast, is_multicast) {
            (false, false, false) => t.received[0] = packets,
            (false, _, true) => t.received[1] = packets,
            (false, true, _) => t.received[2] = packets,
            (true, false, false) => t.sent[0] = packets,
            (true, true, _) => t.sent[1] = packets,
            (true, _, true) => t.sent_multicast = packets,
        }
        if kind.has_ip() {
            let octets = self.octets(kind);
            t.octets = packets.wrapping_mul(octets);
            t.octets_squared = t.octets.wrapping_mul(octets);
            t.dropped_octets = if self.is_dropped { t.octets } else { 0 };
            t.sent_multicast_octets = if kind.is_egress && is_multicast { t.octets } else { 0 };
        }
        if kind.is_tcp() {
            // ACK, FIN, PSH, RST, SYN, URG.
            for (count, bit) in t.tcp.iter_mut().zip([0x10, 1, 8, 4, 2, 0x20]) {
                *count = if self.flow.tcp_flags & bit != 0 { packets } else { 0 };
            }
        }
        t
    }
}
