//! The configuration of tunnel ports, and outer headers on output.
//!
//! A tunnel port has a key, a remote and a local address. It may leave each of these to the rules (`flow`).

use dpif::actions::tnl_header::{
    ERSPAN_SESSION, Encap, GTPU_FLAGS, GTPU_GPDU, OuterFields, OuterIp, OuterUdp, TnlHeader,
    UDP_CSUM_COMPUTED, VXLAN_HAS_GBP, VXLAN_HAS_GPE, VXLAN_HAS_VNI, gpe_protocol,
};
use flow::{DpPort, Flow, MacAddr, Mask, Tunnel, TunnelOptions, tunnel_flags};
use packet::headers as h;
use std::net::IpAddr;

pub use dpif::port_types::tunnel::{
    Endpoint, ErspanOptions, FlowLabel, KindOptions, PacketTypes, Srv6Options, TUNNEL_TTL, TunnelConfig,
    TunnelKey, TunnelKind, usual_packet_types,
};

/// ECN bits of the type of service (RFC 3168).
const ECN_MASK: u8 = 3;
const ECN_CE: u8 = 3;
const ECN_ECT_0: u8 = 2;
/// Don't-fragment bit of IPv4.
const DONT_FRAGMENT: u16 = 0x4000;

/// Addresses of an encapsulated packet that its route decides.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Ethernet source: the device's.
    pub eth_src: MacAddr,
    /// Ethernet destination: the next hop's.
    pub eth_dst: MacAddr,
    /// Source, if the tunnel has none.
    pub source: IpAddr,
    /// Flow label of IPv6.
    pub label: u32,
}

/// Translation of packets from and to a tunnel.
pub trait TunnelHeaders {
    /// Whether two tunnels may receive the same packet, without a distinguishing header.
    fn collides(&self, other: &TunnelConfig) -> bool;

    /// The outer headers of a packet like `flow` sent by this port; adds the fields that they depend on to the mask.
    /// `None`: the rules should have set the destination and did not.
    fn wrap(&self, flow: &Flow, wc: &mut Mask) -> Option<Tunnel>;

    /// The headers that the userspace datapath pushes. UDP over IPv6 has a checksum, as RFC 8200 §8.1 requires.
    /// `None`: the encapsulation cannot express what rules set, or carries no packets of this type.
    fn header(
        &self,
        outer: &Tunnel,
        options: &TunnelOptions,
        packet_type: u32,
        way: &Way,
    ) -> Option<TnlHeader>;
}

impl TunnelHeaders for TunnelConfig {
    fn collides(&self, other: &TunnelConfig) -> bool {
        self.kind == other.kind
            && self.dst_port == other.dst_port
            && TunnelMatch::of(DpPort(0), self) == TunnelMatch::of(DpPort(0), other)
    }

    fn wrap(&self, flow: &Flow, wc: &mut Mask) -> Option<Tunnel> {
        let set = flow.tunnel();
        let mut t =
            Tunnel { ttl: self.ttl.unwrap_or(TUNNEL_TTL), tos: self.tos.unwrap_or(0), ..Tunnel::default() };
        match self.remote {
            Endpoint::Address(IpAddr::V4(a)) => t.dst = a.into(),
            Endpoint::Address(IpAddr::V6(a)) => t.ipv6_dst = a.octets(),
            Endpoint::Any | Endpoint::Flow => (t.dst, t.ipv6_dst) = (set.dst, set.ipv6_dst),
        }
        if !t.is_some() {
            return None;
        }
        let is_v4 = t.dst != 0;
        match self.local {
            Endpoint::Address(IpAddr::V4(a)) => t.src = a.into(),
            Endpoint::Address(IpAddr::V6(a)) => t.ipv6_src = a.octets(),
            Endpoint::Any => {}
            Endpoint::Flow if is_v4 => t.src = set.src,
            Endpoint::Flow => t.ipv6_src = set.ipv6_src,
        }
        if is_v4 {
            t.ipv6_dst = [0; 16];
        }
        match self.out_key {
            TunnelKey::None => {}
            TunnelKey::Value(id) => (t.id, t.flags) = (id, tunnel_flags::KEY),
            TunnelKey::Flow => (t.id, t.flags) = (set.id, tunnel_flags::KEY),
        }
        t.flags |= set.flags & tunnel_flags::OAM;
        t.flags |= if self.dont_fragment { tunnel_flags::DF } else { 0 };
        t.flags |= if self.csum { tunnel_flags::CSUM } else { 0 };
        if flow.is_ip() {
            if self.ttl.is_none() {
                wc.0.nw_ttl = u8::MAX;
                t.ttl = flow.nw_ttl;
            }
            if self.tos.is_none() {
                wc.0.nw_tos = u8::MAX;
                t.tos = flow.nw_tos & !ECN_MASK;
            }
            // RFC 3168 §9.1.1, the full-functionality option: inner congestion marks are not copied to the outer
            // header.
            wc.0.nw_tos |= ECN_MASK;
            t.tos |= match flow.nw_tos & ECN_MASK {
                ECN_CE => ECN_ECT_0,
                ecn => ecn,
            };
        }
        t.tp_dst = self.dst_port;
        if self.kind.is_erspan() {
            t.set_erspan(&self.of_kind.erspan.header(flow));
        }
        if self.gbp {
            (t.gbp_id, t.gbp_flags) = (set.gbp_id, set.gbp_flags);
        }
        Some(t)
    }

    fn header(
        &self,
        outer: &Tunnel,
        options: &TunnelOptions,
        packet_type: u32,
        way: &Way,
    ) -> Option<TnlHeader> {
        let is_v6 = outer.dst == 0;
        let source4 = if let IpAddr::V4(a) = way.source { a.into() } else { 0 };
        let source6 = if let IpAddr::V6(a) = way.source { a.octets() } else { [0; 16] };
        let frag = if outer.flags & tunnel_flags::DF != 0 { DONT_FRAGMENT } else { 0 };
        let ip = match is_v6 {
            true => OuterIp::V6 {
                src: if outer.ipv6_src == [0; 16] { source6 } else { outer.ipv6_src },
                dst: outer.ipv6_dst,
                label: way.label,
                tclass: outer.tos,
                hlimit: outer.ttl,
            },
            false => OuterIp::V4 {
                src: if outer.src == 0 { source4 } else { outer.src },
                dst: outer.dst,
                tos: outer.tos,
                ttl: outer.ttl,
                frag,
            },
        };
        let csum = outer.flags & tunnel_flags::CSUM != 0;
        let udp_csum = if csum || is_v6 { UDP_CSUM_COMPUTED } else { 0 };
        let udp = OuterUdp { src: 0, dst: outer.tp_dst, csum: udp_csum };
        let vni = outer.id as u32 & 0xff_ffff;
        let encap = match self.kind {
            TunnelKind::Vxlan => {
                let policy = u32::from(outer.gbp_flags) << 16 | u32::from(outer.gbp_id);
                let extension = match (self.of_kind.gpe, policy) {
                    (true, _) => VXLAN_HAS_GPE | u32::from(gpe_protocol(packet_type)?),
                    (false, 0) => 0,
                    (false, policy) => VXLAN_HAS_GBP | policy,
                };
                Encap::Vxlan { udp, flags: VXLAN_HAS_VNI | extension, vni }
            }
            TunnelKind::Geneve => Encap::Geneve {
                udp,
                oam: outer.flags & tunnel_flags::OAM != 0,
                critical: options.iter().any(|option| option.is_critical()),
                vni,
                options: Box::new(*options),
            },
            TunnelKind::Gre | TunnelKind::Ip6gre => Encap::Gre {
                proto: if packet_type == 0 { h::ETH_TYPE_TEB } else { packet_type as u16 },
                csum,
                key: (outer.flags & tunnel_flags::KEY != 0).then_some(outer.id as u32),
                seq: self.seq,
            },
            TunnelKind::Srv6 => {
                let segments: Vec<_> = self.of_kind.srv6.segments.iter().map(|s| s.octets()).collect();
                let segments = if segments.is_empty() { vec![outer.ipv6_dst] } else { segments };
                // Rules may set the remote address.
                if !is_v6 || segments.first() != Some(&outer.ipv6_dst) {
                    return None;
                }
                Encap::Srv6 { segments: segments.into() }
            }
            TunnelKind::Gtpu => {
                Encap::Gtpu { udp, flags: GTPU_FLAGS, msgtype: GTPU_GPDU, teid: outer.id as u32 }
            }
            TunnelKind::Erspan | TunnelKind::Ip6erspan => {
                let session = u16::try_from(outer.id).ok().filter(|id| id & !ERSPAN_SESSION == 0)?;
                let erspan = Some(outer.erspan()).filter(|erspan| erspan.ver != 0)?;
                Encap::Erspan { session, erspan }
            }
        };
        if !encap.carries(packet_type) {
            return None;
        }
        Some(TnlHeader::new(OuterFields { eth_dst: way.eth_dst.0, eth_src: way.eth_src.0, ip, encap }))
    }
}

/// Common properties of a tunnel port's packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TunnelMatch {
    /// The datapath port that receives them.
    pub(crate) dp_port: DpPort,
    /// Key; `None`: any, as rules distinguish them.
    pub(crate) key: Option<u64>,
    /// Source; `None`: any.
    pub(crate) remote: Option<IpAddr>,
    /// Destination.
    pub(crate) local: Endpoint,
    /// Types of inner packets.
    pub(crate) packet_types: PacketTypes,
}

impl TunnelMatch {
    /// The match of a tunnel port on that datapath port.
    pub(crate) fn of(dp_port: DpPort, config: &TunnelConfig) -> TunnelMatch {
        TunnelMatch {
            dp_port,
            key: match config.in_key {
                TunnelKey::None => Some(0),
                TunnelKey::Value(id) => Some(id),
                TunnelKey::Flow => None,
            },
            remote: match config.remote {
                Endpoint::Address(a) => Some(a),
                Endpoint::Any | Endpoint::Flow => None,
            },
            local: config.local,
            packet_types: config.of_kind.packet_types,
        }
    }
}

/// The mask of the fields examined of any packet from a tunnel: those that select the tunnel port, and the
/// encapsulation flags. TTL and UDP ports are not included.
pub(crate) fn look_at(flow: &Flow, wc: &mut Mask) {
    let t = flow.tunnel();
    if !t.is_some() {
        return;
    }
    let m = &mut wc.0;
    m.tun_id = u64::MAX;
    if t.dst != 0 {
        (m.tun_src, m.tun_dst) = (u32::MAX, u32::MAX);
    } else {
        (m.tun_ipv6_src, m.tun_ipv6_dst) = ([0xff; 16], [0xff; 16]);
    }
    m.tun_flags = tunnel_flags::DF | tunnel_flags::CSUM | tunnel_flags::KEY;
    m.tun_tos = u8::MAX;
}

/// Marks the packet of a tunnel if its outer header has the mark of congestion (RFC 6040 §4.2). `false`: the packet
/// cannot carry the mark, and must be dropped.
pub(crate) fn take_congestion(flow: &mut Flow, wc: &mut Mask) -> bool {
    if !flow.is_ip() || flow.tun_tos & ECN_MASK != ECN_CE {
        return true;
    }
    wc.0.nw_tos |= ECN_MASK;
    let is_capable = flow.nw_tos & ECN_MASK != 0;
    if is_capable {
        flow.nw_tos |= ECN_CE;
    }
    is_capable
}

#[cfg(test)]
mod tests;
