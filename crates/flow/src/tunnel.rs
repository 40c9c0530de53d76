//! [`Tunnel`]: the outer headers of a packet, in flows on input and in ports on output.

use crate::flow::Flow;
use crate::options::TunnelOptions;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bits of [`Tunnel::flags`].
pub mod tunnel_flags {
    /// Management packet of the tunnel (Geneve's O bit).
    pub const OAM: u16 = 1;
    /// The outer packet must not be fragmented.
    pub const DF: u16 = 2;
    /// The outer packet has a checksum.
    pub const CSUM: u16 = 4;
    /// It has a tunnel key.
    pub const KEY: u16 = 8;
    /// All of them.
    pub const ALL: u16 = 15;
}

/// The outer headers of a packet: 64 bytes, a block of a flow key. Addresses are of one family, the other's
/// are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tunnel {
    /// Tunnel key (a VNI, for example).
    pub id: u64,
    /// IPv4 source.
    pub src: u32,
    /// IPv4 destination.
    pub dst: u32,
    /// IPv6 source.
    pub ipv6_src: [u8; 16],
    /// IPv6 destination.
    pub ipv6_dst: [u8; 16],
    /// Bits of [`tunnel_flags`].
    pub flags: u16,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// UDP source port; 0 lets the datapath choose.
    pub tp_src: u16,
    /// UDP destination port.
    pub tp_dst: u16,
    /// VXLAN group policy id.
    pub gbp_id: u16,
    /// VXLAN group policy flags.
    pub gbp_flags: u8,
    /// Always 0.
    pub pad: [u8; 5],
}

/// Outer headers with options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OuterHeaders {
    /// The fixed part.
    pub tunnel: Tunnel,
    /// The options.
    pub options: TunnelOptions,
}

impl Tunnel {
    /// Whether it is present: it has a destination.
    pub fn is_some(&self) -> bool {
        self.dst != 0 || self.ipv6_dst != [0; 16]
    }
}

impl Flow {
    /// The tunnel fields; of a mask, their mask.
    pub fn tunnel(&self) -> Tunnel {
        Tunnel {
            id: self.tun_id,
            src: self.tun_src,
            dst: self.tun_dst,
            ipv6_src: self.tun_ipv6_src,
            ipv6_dst: self.tun_ipv6_dst,
            flags: self.tun_flags,
            tos: self.tun_tos,
            ttl: self.tun_ttl,
            tp_src: self.tun_tp_src,
            tp_dst: self.tun_tp_dst,
            gbp_id: self.tun_gbp_id,
            gbp_flags: self.tun_gbp_flags,
            pad: [0; 5],
        }
    }

    /// Replaces the tunnel fields.
    pub fn set_tunnel(&mut self, t: &Tunnel) {
        (self.tun_id, self.tun_src, self.tun_dst) = (t.id, t.src, t.dst);
        (self.tun_ipv6_src, self.tun_ipv6_dst) = (t.ipv6_src, t.ipv6_dst);
        (self.tun_flags, self.tun_tos, self.tun_ttl) = (t.flags, t.tos, t.ttl);
        (self.tun_tp_src, self.tun_tp_dst) = (t.tp_src, t.tp_dst);
        (self.tun_gbp_id, self.tun_gbp_flags) = (t.gbp_id, t.gbp_flags);
    }
}
