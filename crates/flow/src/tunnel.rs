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
    /// Not a flag: direction and hardware id of ERSPAN share the word ([`super::Erspan`]).
    pub(super) const ERSPAN: u16 = 0x7f << ERSPAN_SHIFT;
    pub(super) const ERSPAN_SHIFT: u32 = 8;
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
    /// Bits of [`tunnel_flags`], and a part of [`Tunnel::erspan`].
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
    /// GTP-U flags.
    pub gtpu_flags: u8,
    /// GTP-U message type.
    pub gtpu_msgtype: u8,
    /// Version and index of ERSPAN ([`Tunnel::erspan`]).
    pub erspan_ver_idx: [u8; 3],
}

/// An ERSPAN header, or a mask of it; all zeros: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Erspan {
    /// Version, 4 bits: 1 (type II) or 2 (type III).
    pub ver: u8,
    /// Index, 20 bits, in version 1.
    pub idx: u32,
    /// Direction, 1 bit, in version 2.
    pub dir: u8,
    /// Hardware id, 6 bits, in version 2.
    pub hwid: u8,
}

impl Erspan {
    /// All bits.
    pub const ALL: Erspan = Erspan { ver: 0xf, idx: 0xf_ffff, dir: 1, hwid: 0x3f };
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
    /// The ERSPAN header.
    pub fn erspan(&self) -> Erspan {
        let [a, b, c] = self.erspan_ver_idx;
        let rest = (self.flags >> tunnel_flags::ERSPAN_SHIFT) as u8;
        Erspan {
            ver: a >> 4,
            idx: u32::from_be_bytes([0, a & 0xf, b, c]),
            dir: rest >> 6 & 1,
            hwid: rest & 0x3f,
        }
    }

    /// Replaces the ERSPAN header; of each field, the bits that it has on the wire count.
    pub fn set_erspan(&mut self, erspan: &Erspan) {
        let [_, a, b, c] = (u32::from(erspan.ver) << 20 | erspan.idx & 0xf_ffff).to_be_bytes();
        self.erspan_ver_idx = [a, b, c];
        let rest = u16::from(erspan.dir & 1) << 6 | u16::from(erspan.hwid & 0x3f);
        self.flags = self.flags & !tunnel_flags::ERSPAN | rest << tunnel_flags::ERSPAN_SHIFT;
    }

    /// Whether it is present: it has a destination.
    pub fn is_some(&self) -> bool {
        self.dst != 0 || self.ipv6_dst != [0; 16]
    }
}

impl Flow {
    /// The tunnel fields; of a mask, their mask.
    pub fn tunnel(&self) -> Tunnel {
        let mut t = Tunnel {
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
            gtpu_flags: self.tun_gtpu_flags,
            gtpu_msgtype: self.tun_gtpu_msgtype,
            erspan_ver_idx: [0; 3],
        };
        t.set_erspan(&Erspan {
            ver: self.tun_erspan_ver,
            idx: self.tun_erspan_idx,
            dir: self.tun_erspan_dir,
            hwid: self.tun_erspan_hwid,
        });
        t
    }

    /// Replaces the tunnel fields.
    pub fn set_tunnel(&mut self, t: &Tunnel) {
        (self.tun_id, self.tun_src, self.tun_dst) = (t.id, t.src, t.dst);
        (self.tun_ipv6_src, self.tun_ipv6_dst) = (t.ipv6_src, t.ipv6_dst);
        (self.tun_flags, self.tun_tos, self.tun_ttl) = (t.flags & !tunnel_flags::ERSPAN, t.tos, t.ttl);
        (self.tun_tp_src, self.tun_tp_dst) = (t.tp_src, t.tp_dst);
        (self.tun_gbp_id, self.tun_gbp_flags) = (t.gbp_id, t.gbp_flags);
        (self.tun_gtpu_flags, self.tun_gtpu_msgtype) = (t.gtpu_flags, t.gtpu_msgtype);
        let Erspan { ver, idx, dir, hwid } = t.erspan();
        (self.tun_erspan_ver, self.tun_erspan_idx) = (ver, idx);
        (self.tun_erspan_dir, self.tun_erspan_hwid) = (dir, hwid);
    }
}
