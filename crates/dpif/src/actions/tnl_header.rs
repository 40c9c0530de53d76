//! [`TnlHeader`]: the outer headers that `tnl_push` prepends: Ethernet, IPv4 or IPv6, and an encapsulation.
//!
//! A header is made once, for a flow; a packet gets its bytes and then its lengths, checksums, UDP source port and GRE
//! sequence number. Until then these are 0: the checksum of IPv4 covers a length of 0.
//!
//! Encapsulations: VXLAN (RFC 7348; flags of the group policy and of its generic protocol extension too), Geneve
//! (RFC 8926), GRE (RFC 2784 and 2890), ERSPAN versions 1 and 2 in GRE (draft-foschiano-erspan, types II and III), GTP-U
//! (3GPP TS 29.281), segment routing over IPv6 (RFC 8754).

use flow::{Erspan, TunnelOptions};
use packet::{checksum, headers as h};

/// UDP checksum that stands for one to be computed for each packet.
pub const UDP_CSUM_COMPUTED: u16 = 0xffff;
/// VXLAN: the header has a VNI.
pub const VXLAN_HAS_VNI: u32 = 1 << 27;
/// VXLAN: the header has a group policy (draft-smith-vxlan-group-policy).
pub const VXLAN_HAS_GBP: u32 = 1 << 31;
/// VXLAN: the header names the protocol of the payload (draft-ietf-nvo3-vxlan-gpe).
pub const VXLAN_HAS_GPE: u32 = 1 << 26;
/// VXLAN-GPE: Ethernet frames.
pub const VXLAN_GPE_ETHERNET: u8 = 3;
/// GRE: a checksum follows.
pub const GRE_HAS_CSUM: u16 = 0x8000;
/// GRE: a key follows.
pub const GRE_HAS_KEY: u16 = 0x2000;
/// GRE: a sequence number follows.
pub const GRE_HAS_SEQ: u16 = 0x1000;
/// IP protocol of GRE.
pub const IPPROTO_GRE: u8 = 47;
/// VXLAN-GPE: IPv4.
pub const VXLAN_GPE_IPV4: u8 = 1;
/// VXLAN-GPE: IPv6.
pub const VXLAN_GPE_IPV6: u8 = 2;
/// VXLAN-GPE: network service headers.
pub const VXLAN_GPE_NSH: u8 = 4;
/// GTP-U: version 1, not GTP'.
pub const GTPU_FLAGS: u8 = 0x30;
/// GTP-U: messages with a packet of a user.
pub const GTPU_GPDU: u8 = 255;
/// Most segments of a routing header that is pushed.
pub const SRV6_SEGMENTS_MAX: usize = 6;
/// Segment routing: type of the routing header.
pub const SRV6_ROUTING_TYPE: u8 = 4;
/// Bytes of its fixed part.
const SRV6_FIXED_BYTES: usize = 8;
/// IP protocol of IPv4 inside.
pub const IPPROTO_IPIP: u8 = 4;
/// IP protocol of IPv6 inside.
pub const IPPROTO_IPV6: u8 = 41;
/// Namespace of packet types that are EtherTypes.
const ETHERTYPES: u32 = 1 << 16;
/// EtherType of ERSPAN version 1 in GRE.
pub const ETH_TYPE_ERSPAN1: u16 = 0x88be;
/// EtherType of ERSPAN version 2 in GRE.
pub const ETH_TYPE_ERSPAN2: u16 = 0x22eb;
/// ERSPAN: bits of the session id.
pub const ERSPAN_SESSION: u16 = 0x3ff;
/// Bytes of the GRE header before ERSPAN: it has a sequence number.
pub const ERSPAN_GRE_BYTES: usize = 8;
/// Bytes of an ERSPAN header of version 1.
pub const ERSPAN1_BYTES: usize = 8;
/// Bytes of an ERSPAN header of version 2.
pub const ERSPAN2_BYTES: usize = 12;
/// Bytes of the subheader that may follow it.
pub const ERSPAN2_PLATFORM_BYTES: usize = 8;
/// Geneve: packets of the tunnel's control.
const GENEVE_OAM: u8 = 0x80;
/// Geneve: some option is critical.
const GENEVE_CRITICAL: u8 = 0x40;
/// Bytes of a VXLAN header, and of a Geneve header without options.
pub const UDP_ENCAP_BYTES: usize = 8;
/// Bytes of an Ethernet, an IPv6, a UDP and a Geneve header with the longest options.
pub const TNL_HEADER_MAX_BYTES: usize = h::ETH_HEADER_BYTES
    + h::IPV6_HEADER_BYTES
    + h::UDP_HEADER_BYTES
    + UDP_ENCAP_BYTES
    + TunnelOptions::MAX_BYTES;

/// Fields of the outer headers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OuterFields {
    /// Ethernet destination.
    pub eth_dst: [u8; 6],
    /// Ethernet source.
    pub eth_src: [u8; 6],
    /// IP header.
    pub ip: OuterIp,
    /// The header behind it.
    pub encap: Encap,
}

/// An outer IP header.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OuterIp {
    /// IPv4.
    V4 {
        /// Source.
        src: u32,
        /// Destination.
        dst: u32,
        /// Type of service.
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Flags and fragment offset: 0x4000 forbids fragmentation.
        frag: u16,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: [u8; 16],
        /// Destination.
        dst: [u8; 16],
        /// Flow label, 20 bits.
        label: u32,
        /// Traffic class.
        tclass: u8,
        /// Hop limit.
        hlimit: u8,
    },
}

/// An encapsulation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Encap {
    /// VXLAN.
    Vxlan {
        /// Its UDP header.
        udp: OuterUdp,
        /// All bits of the header before the VNI.
        flags: u32,
        /// Network, 24 bits.
        vni: u32,
    },
    /// Geneve.
    Geneve {
        /// Its UDP header.
        udp: OuterUdp,
        /// Packets of the tunnel's control.
        oam: bool,
        /// Some option is critical.
        critical: bool,
        /// Network, 24 bits.
        vni: u32,
        /// Options.
        options: Box<TunnelOptions>,
    },
    /// GRE.
    Gre {
        /// EtherType of the payload.
        proto: u16,
        /// It has a checksum.
        csum: bool,
        /// Its key.
        key: Option<u32>,
        /// It has a sequence number.
        seq: bool,
    },
    /// ERSPAN of version 1 or 2, in GRE with a sequence number. Each packet gets number and timestamp.
    Erspan {
        /// Session id, 10 bits.
        session: u16,
        /// Version, and its fields.
        erspan: Erspan,
    },
    /// GTP-U. As in OVS, each packet gets a UDP checksum.
    Gtpu {
        /// Its UDP header.
        udp: OuterUdp,
        /// Version and further flags.
        flags: u8,
        /// Type of the message.
        msgtype: u8,
        /// Tunnel.
        teid: u32,
    },
    /// Segment routing over IPv6. Each packet gets the protocol of what is inside.
    Srv6 {
        /// Segments in the order of the way, at most [`SRV6_SEGMENTS_MAX`].
        segments: Box<[[u8; 16]]>,
    },
}

/// An outer UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OuterUdp {
    /// Source port; 0: each packet gets one by its hash.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// 0: none, [`UDP_CSUM_COMPUTED`]: each packet gets one.
    pub csum: u16,
}

/// Outer headers and their bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TnlHeader {
    fields: OuterFields,
    bytes: Box<[u8]>,
}

impl Encap {
    /// IP protocol.
    pub fn ip_proto(&self) -> u8 {
        match self {
            Encap::Vxlan { .. } | Encap::Geneve { .. } | Encap::Gtpu { .. } => h::IPPROTO_UDP,
            Encap::Gre { .. } | Encap::Erspan { .. } => IPPROTO_GRE,
            Encap::Srv6 { .. } => h::IPPROTO_ROUTING,
        }
    }

    /// Its UDP header.
    pub fn udp(&self) -> Option<&OuterUdp> {
        match self {
            Encap::Vxlan { udp, .. } | Encap::Geneve { udp, .. } | Encap::Gtpu { udp, .. } => Some(udp),
            Encap::Gre { .. } | Encap::Erspan { .. } | Encap::Srv6 { .. } => None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(OuterUdp { src, dst, csum }) = self.udp() {
            for half in [*src, *dst, 0, *csum] {
                out.extend(half.to_be_bytes());
            }
        }
        match self {
            Encap::Vxlan { flags, vni, .. } => {
                out.extend(flags.to_be_bytes());
                out.extend((vni << 8).to_be_bytes());
            }
            Encap::Geneve { oam, critical, vni, options, .. } => {
                let (bits, options) =
                    ([(*oam, GENEVE_OAM), (*critical, GENEVE_CRITICAL)], options.as_bytes());
                let bits = bits.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
                out.extend([(options.len() / 4) as u8, bits]);
                out.extend(h::ETH_TYPE_TEB.to_be_bytes());
                out.extend((vni << 8).to_be_bytes());
                out.extend(options);
            }
            Encap::Gre { proto, csum, key, seq } => {
                out.extend(self.gre_flags().to_be_bytes());
                out.extend(proto.to_be_bytes());
                out.extend(csum.then_some([0; 4]).into_iter().flatten());
                out.extend(key.iter().flat_map(|key| key.to_be_bytes()));
                out.extend(seq.then_some([0; 4]).into_iter().flatten());
            }
            Encap::Erspan { session, erspan } => write_erspan(out, *session, erspan),
            Encap::Srv6 { segments } => {
                let last = segments.len().saturating_sub(1) as u8;
                let words = (segments.len() * 2) as u8;
                let fixed: [u8; SRV6_FIXED_BYTES] = [0, words, SRV6_ROUTING_TYPE, last, last, 0, 0, 0];
                out.extend(fixed);
                segments.iter().rev().for_each(|segment| out.extend(segment));
            }
            Encap::Gtpu { flags, msgtype, teid, .. } => {
                out.extend([*flags, *msgtype, 0, 0]);
                out.extend(teid.to_be_bytes());
            }
        }
    }

    /// The flags of a GRE header, 0 of others.
    pub fn gre_flags(&self) -> u16 {
        match self {
            Encap::Gre { csum, key, seq, .. } => {
                let all = [(*csum, GRE_HAS_CSUM), (key.is_some(), GRE_HAS_KEY), (*seq, GRE_HAS_SEQ)];
                all.iter().filter(|(is, _)| *is).fold(0, |flags, (_, bit)| flags | bit)
            }
            Encap::Erspan { .. } => GRE_HAS_SEQ,
            Encap::Vxlan { .. } | Encap::Geneve { .. } | Encap::Gtpu { .. } | Encap::Srv6 { .. } => 0,
        }
    }

    /// Whether packets of this type, 0 for Ethernet frames, may be inside.
    #[inline]
    pub fn carries(&self, packet_type: u32) -> bool {
        match self {
            Encap::Vxlan { flags, .. } if flags & VXLAN_HAS_GPE != 0 => {
                gpe_protocol(packet_type) == Some(*flags as u8)
            }
            Encap::Vxlan { .. } | Encap::Geneve { .. } | Encap::Erspan { .. } => packet_type == 0,
            Encap::Gre { proto: h::ETH_TYPE_TEB, .. } => packet_type == 0,
            Encap::Gre { proto, .. } => packet_type == ETHERTYPES | u32::from(*proto),
            Encap::Gtpu { .. } | Encap::Srv6 { .. } => is_ip(packet_type),
        }
    }
}

/// Whether packets of this type are IP packets without an Ethernet header.
pub fn is_ip(packet_type: u32) -> bool {
    packet_type == ETHERTYPES | u32::from(h::ETH_TYPE_IP)
        || packet_type == ETHERTYPES | u32::from(h::ETH_TYPE_IPV6)
}

/// Next protocols of VXLAN-GPE, with their packet types.
const GPE_PROTOCOLS: [(u8, u32); 4] = [
    (VXLAN_GPE_ETHERNET, 0),
    (VXLAN_GPE_IPV4, ETHERTYPES | h::ETH_TYPE_IP as u32),
    (VXLAN_GPE_IPV6, ETHERTYPES | h::ETH_TYPE_IPV6 as u32),
    (VXLAN_GPE_NSH, ETHERTYPES | h::ETH_TYPE_NSH as u32),
];

/// The next protocol of packets of a type in VXLAN-GPE.
pub fn gpe_protocol(packet_type: u32) -> Option<u8> {
    GPE_PROTOCOLS.iter().find(|(_, known)| *known == packet_type).map(|(protocol, _)| *protocol)
}

/// The packet type behind a VXLAN-GPE header with this next protocol.
pub fn gpe_packet_type(protocol: u8) -> Option<u32> {
    GPE_PROTOCOLS.iter().find(|(known, _)| *known == protocol).map(|(_, packet_type)| *packet_type)
}

/// Fields that are 0: VLAN, class of service, truncation, security group, frame type, granularity (100 µs).
fn write_erspan(out: &mut Vec<u8>, session: u16, erspan: &Erspan) {
    out.extend(GRE_HAS_SEQ.to_be_bytes());
    let is_first = erspan.ver == 1;
    out.extend(if is_first { ETH_TYPE_ERSPAN1 } else { ETH_TYPE_ERSPAN2 }.to_be_bytes());
    out.extend([0; 4]);
    out.extend((u16::from(erspan.ver) << 12).to_be_bytes());
    out.extend((session & ERSPAN_SESSION).to_be_bytes());
    if is_first {
        out.extend((erspan.idx & 0xf_ffff).to_be_bytes());
    } else {
        // Timestamp and security group.
        out.extend([0; 6]);
        out.extend((u16::from(erspan.hwid & 0x3f) << 4 | u16::from(erspan.dir & 1) << 3).to_be_bytes());
    }
}

impl TnlHeader {
    /// The headers of these fields.
    pub fn new(fields: OuterFields) -> TnlHeader {
        let OuterFields { eth_dst, eth_src, ip, encap } = &fields;
        let mut out = Vec::with_capacity(TNL_HEADER_MAX_BYTES);
        out.extend(eth_dst);
        out.extend(eth_src);
        match ip {
            OuterIp::V4 { src, dst, tos, ttl, frag } => {
                out.extend(h::ETH_TYPE_IP.to_be_bytes());
                out.extend([0x45, *tos, 0, 0, 0, 0]);
                out.extend(frag.to_be_bytes());
                out.extend([*ttl, encap.ip_proto(), 0, 0]);
                out.extend(src.to_be_bytes());
                out.extend(dst.to_be_bytes());
                let sum = checksum::checksum(&out[h::ETH_HEADER_BYTES..]);
                let at = h::ETH_HEADER_BYTES + 10;
                out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            OuterIp::V6 { src, dst, label, tclass, hlimit } => {
                out.extend(h::ETH_TYPE_IPV6.to_be_bytes());
                let first = 6 << 28 | u32::from(*tclass) << 20 | label & 0xf_ffff;
                out.extend(first.to_be_bytes());
                out.extend([0, 0, encap.ip_proto(), *hlimit]);
                out.extend(src);
                out.extend(dst);
            }
        }
        encap.write(&mut out);
        TnlHeader { bytes: out.into(), fields }
    }

    /// Its fields.
    #[inline]
    pub fn fields(&self) -> &OuterFields {
        &self.fields
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Offset of the encapsulation.
    #[inline]
    pub fn l4(&self) -> usize {
        let ip = if self.is_v6() { h::IPV6_HEADER_BYTES } else { h::IPV4_HEADER_BYTES };
        h::ETH_HEADER_BYTES + ip
    }

    /// Whether it is of IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        matches!(self.fields.ip, OuterIp::V6 { .. })
    }

    /// Type of its tunnels: `OVS_VPORT_TYPE_*`.
    pub fn vport_type(&self) -> u32 {
        match (&self.fields.encap, self.is_v6()) {
            (Encap::Gre { .. }, false) => 3,
            (Encap::Vxlan { .. }, _) => 4,
            (Encap::Geneve { .. }, _) => 5,
            (Encap::Erspan { .. }, false) => 107,
            (Encap::Erspan { .. }, true) => 108,
            (Encap::Gre { .. }, true) => 109,
            (Encap::Gtpu { .. }, _) => 110,
            (Encap::Srv6 { .. }, _) => 112,
        }
    }
}
