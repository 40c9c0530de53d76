//! The datapath's view of a packet: [`FlowKey`], a 64-byte block for the common packet and cold 64-byte
//! blocks for the rest.
//!
//! `base.shape` names the packet's extension blocks ([`shape`]); other blocks are zero and never read. A
//! [`KeyMask`] has the same layout; its shape bits are always all ones, so a megaflow never matches packets
//! of another shape. Hash and compare whole blocks ([`FlowKey::block`]).

use crate::flow::{Flow, Mask, VlanTag};
use crate::options::TunnelOptions;
use crate::tunnel::Tunnel;
use crate::types::{DpPort, OfPort};
use packet::headers::{ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bits of `base.shape`, one per extension block.
pub mod shape {
    /// [`super::Ipv6Block`].
    pub const IPV6: u16 = 1;
    /// [`super::ArpBlock`].
    pub const ARP: u16 = 2;
    /// [`super::Tunnel`].
    pub const TUNNEL: u16 = 4;
    /// [`super::CtBlock`].
    pub const CT: u16 = 8;
    /// The first of four blocks of [`super::TunnelOptions`]; a packet has as many as its options need.
    pub const OPTIONS: u16 = 16;
    /// All four.
    pub const ALL_OPTIONS: u16 = 15 * OPTIONS;
    /// Number of extension blocks.
    pub const COUNT: usize = 8;

    /// The bit of an extension block, by its index.
    #[inline(always)]
    pub const fn of_block(i: usize) -> u16 {
        1 << (i - 1)
    }

    /// Indices of the blocks with these bits.
    #[inline(always)]
    pub fn blocks(bits: u16) -> impl Iterator<Item = usize> {
        let mut left = bits & ((1 << COUNT) - 1);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize + 1);
            left &= left.wrapping_sub(1);
            next
        })
    }
}

/// The common packet: metadata, Ethernet, one VLAN, IPv4 or ARP addresses, ports, conntrack state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct BaseBlock {
    /// Datapath input port.
    pub in_port: u32,
    /// Recirculation id.
    pub recirc_id: u32,
    /// Ethernet destination.
    pub dl_dst: [u8; 6],
    /// Ethernet source.
    pub dl_src: [u8; 6],
    /// EtherType after the parsed VLAN tags.
    pub dl_type: u16,
    /// Outermost VLAN tag's EtherType.
    pub vlan_tpid: u16,
    /// Outermost VLAN tag with [`VlanTag::PRESENT`].
    pub vlan_tci: u16,
    /// Extension blocks present.
    pub shape: u16,
    /// IPv4 source or ARP sender.
    pub nw_src: u32,
    /// IPv4 destination or ARP target.
    pub nw_dst: u32,
    /// IP protocol or ARP opcode.
    pub nw_proto: u8,
    /// Type of service.
    pub nw_tos: u8,
    /// Time to live.
    pub nw_ttl: u8,
    /// Fragment bits.
    pub nw_frag: u8,
    /// Source port or ICMP type.
    pub tp_src: u16,
    /// Destination port or ICMP code.
    pub tp_dst: u16,
    /// TCP flags ([`FlowKey::tcp_flags`]); of neighbour discovery the type of the first link-layer address option.
    pub tcp_flags: u16,
    /// Connection zone.
    pub ct_zone: u16,
    /// Connection state.
    pub ct_state: u32,
    /// Connection mark.
    pub ct_mark: u32,
    /// Packet mark.
    pub pkt_mark: u32,
    /// Hash computed by the datapath.
    pub dp_hash: u32,
}

/// IPv6 and neighbour discovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Ipv6Block {
    /// Source.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
    /// ND target.
    pub nd_target: [u8; 16],
    /// ND source link-layer address.
    pub nd_sll: [u8; 6],
    /// ND target link-layer address.
    pub nd_tll: [u8; 6],
    /// Flow label.
    pub label: u32,
}

/// ARP hardware addresses, a second VLAN tag, MPLS, IGMP, rare metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct ArpBlock {
    /// MPLS label stack.
    pub mpls_lse: [u32; 4],
    /// Second VLAN tag.
    pub vlan1: VlanTag,
    /// IGMP group; reserved bytes of neighbour discovery; path of a packet with a network service header.
    pub igmp_group: u32,
    /// Packet priority.
    pub skb_priority: u32,
    /// Packet type; as in a [`Flow`].
    pub packet_type: u32,
    /// ARP sender hardware address.
    pub arp_sha: [u8; 6],
    /// ARP target hardware address.
    pub arp_tha: [u8; 6],
    /// Flags of a network service header.
    pub nsh_flags: u8,
    /// Its time to live.
    pub nsh_ttl: u8,
    /// Its metadata type.
    pub nsh_mdtype: u8,
    /// Its next protocol.
    pub nsh_np: u8,
    /// Its context headers.
    pub nsh_context: [u32; 4],
}

/// Connection tracking beyond state, zone and mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct CtBlock {
    /// Connection label.
    pub label: [u8; 16],
    /// IPv6 source of the original direction.
    pub ipv6_src: [u8; 16],
    /// IPv6 destination of the original direction.
    pub ipv6_dst: [u8; 16],
    /// IPv4 source of the original direction.
    pub nw_src: u32,
    /// IPv4 destination of the original direction.
    pub nw_dst: u32,
    /// Source port of the original direction.
    pub tp_src: u16,
    /// Destination port of the original direction.
    pub tp_dst: u16,
    /// IP protocol of the original direction.
    pub nw_proto: u8,
    /// Always 0.
    pub pad: [u8; 3],
}

/// A packet as matched by the datapath.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct FlowKey {
    /// Always present.
    pub base: BaseBlock,
    /// Present if `base.shape` has [`shape::IPV6`].
    pub ipv6: Ipv6Block,
    /// Present if `base.shape` has [`shape::ARP`].
    pub arp: ArpBlock,
    /// Present if `base.shape` has [`shape::TUNNEL`].
    pub tunnel: Tunnel,
    /// Present if `base.shape` has [`shape::CT`].
    pub ct: CtBlock,
    /// Present as far as `base.shape` has [`shape::OPTIONS`].
    pub options: TunnelOptions,
}

/// A mask over a [`FlowKey`].
pub type KeyMask = FlowKey;

impl Default for FlowKey {
    fn default() -> FlowKey {
        FlowKey::new_zeroed()
    }
}

impl std::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut s = f.debug_struct("FlowKey");
        s.field("base", &self.base);
        if self.has(shape::IPV6) {
            s.field("ipv6", &self.ipv6);
        }
        if self.has(shape::ARP) {
            s.field("arp", &self.arp);
        }
        if self.has(shape::TUNNEL) {
            s.field("tunnel", &self.tunnel);
        }
        if self.has(shape::CT) {
            s.field("ct", &self.ct);
        }
        if self.has(shape::OPTIONS) {
            s.field("options", &self.options.as_bytes());
        }
        s.finish()
    }
}

impl std::hash::Hash for FlowKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for i in self.present_blocks() {
            self.block(i).hash(state);
        }
    }
}

impl FlowKey {
    /// Number of 64-byte blocks, the base block included.
    pub const BLOCKS: usize = 1 + shape::COUNT;

    /// Whether the packet has the extension block of that shape bit.
    #[inline]
    pub fn has(&self, shape_bit: u16) -> bool {
        self.base.shape & shape_bit != 0
    }

    /// Block `i` as words; 0 is the base block, `1 + n` the extension of shape bit `n`.
    #[inline(always)]
    pub fn block(&self, i: usize) -> &[u64; 8] {
        let all: &[[u64; 8]; FlowKey::BLOCKS] = zerocopy::transmute_ref!(self);
        &all[i]
    }

    /// Block `i`, writable.
    #[inline(always)]
    pub fn block_mut(&mut self, i: usize) -> &mut [u64; 8] {
        let all: &mut [[u64; 8]; FlowKey::BLOCKS] = zerocopy::transmute_mut!(self);
        &mut all[i]
    }

    /// Indices of the present blocks.
    #[inline]
    pub fn present_blocks(&self) -> impl Iterator<Item = usize> + use<> {
        std::iter::once(0).chain(self.extension_blocks())
    }

    /// Indices of the present extension blocks; none for the common packet.
    #[inline(always)]
    pub fn extension_blocks(&self) -> impl Iterator<Item = usize> + use<> {
        shape::blocks(self.base.shape)
    }

    /// Whether its shape has only bits of blocks.
    pub fn has_known_shape(&self) -> bool {
        self.base.shape >> shape::COUNT == 0
    }

    /// Clears the key; touches only the present blocks.
    #[inline]
    pub fn clear(&mut self) {
        for i in self.present_blocks() {
            *self.block_mut(i) = [0; 8];
        }
    }

    /// Clears all that connection tracking wrote.
    #[inline]
    pub fn clear_tracking(&mut self) {
        (self.base.ct_state, self.base.ct_zone, self.base.ct_mark) = (0, 0, 0);
        if self.has(shape::CT) {
            *self.block_mut(1 + shape::CT.trailing_zeros() as usize) = [0; 8];
            self.base.shape &= !shape::CT;
        }
    }

    /// Whether parsing at most `limit` (1 or 2) VLAN tags gives a packet this key. `None`: it has one tag and the
    /// EtherType of a second one, which the packet has in part at most if the limit is 2.
    pub fn is_of_vlan_limit(&self, limit: u8) -> Option<bool> {
        let is_tag = matches!(self.base.dl_type, ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD);
        let tagged = self.base.vlan_tci & VlanTag::PRESENT != 0;
        match self.has(shape::ARP) && self.arp.vlan1.is_present() {
            true => Some(limit > 1),
            false if limit > 1 && tagged && is_tag => None,
            false => Some(true),
        }
    }

    /// The input port.
    pub fn in_port(&self) -> DpPort {
        DpPort(self.base.in_port)
    }

    /// TCP flags, 0 of other protocols.
    #[inline(always)]
    pub fn tcp_flags(&self) -> u16 {
        if self.base.nw_proto == packet::headers::IPPROTO_TCP { self.base.tcp_flags } else { 0 }
    }

    /// Keeps only the bits of `mask`.
    pub fn masked(&self, mask: &KeyMask) -> FlowKey {
        let mut out = FlowKey::default();
        for i in self.present_blocks() {
            for w in 0..8 {
                out.block_mut(i)[w] = self.block(i)[w] & mask.block(i)[w];
            }
        }
        out
    }

    /// Whether this mask has all bits of `other`.
    pub fn covers(&self, other: &KeyMask) -> bool {
        (0..FlowKey::BLOCKS).all(|i| self.block(i).iter().zip(other.block(i)).all(|(a, b)| b & !a == 0))
    }

    /// Whether `key` agrees with this masked key in all bits of `mask`.
    #[inline]
    pub fn matches(&self, mask: &KeyMask, key: &FlowKey) -> bool {
        self.base.shape == key.base.shape
            && self.present_blocks().all(|i| {
                let (a, m, k) = (self.block(i), mask.block(i), key.block(i));
                (0..8).fold(0, |d, w| d | (k[w] & m[w]) ^ a[w]) == 0
            })
    }

    /// Computes `base.shape` from the non-zero extension blocks, for keys built field by field. Every IPv6
    /// packet has the IPv6 block and every ARP, MPLS and NSH packet the ARP block, whatever their bytes.
    pub fn set_shape(&mut self) {
        let mut bits = match self.options.as_bytes().len() {
            0 => 0,
            // The length and the options.
            len => ((1 << (4 + len).div_ceil(64)) - 1) * shape::OPTIONS,
        };
        for n in 0..shape::OPTIONS.trailing_zeros() as usize {
            if self.block(n + 1).iter().any(|w| *w != 0) {
                bits |= 1 << n;
            }
        }
        match self.base.dl_type {
            packet::headers::ETH_TYPE_IPV6 => bits |= shape::IPV6,
            packet::headers::ETH_TYPE_ARP
            | packet::headers::ETH_TYPE_RARP
            | packet::headers::ETH_TYPE_MPLS
            | packet::headers::ETH_TYPE_MPLS_MCAST
            | packet::headers::ETH_TYPE_NSH => bits |= shape::ARP,
            _ => {}
        }
        self.base.shape = bits;
    }

    /// Converts the key to a slow-path flow, with `in_port` as OpenFlow port and without tunnel metadata, which
    /// depends on the bridge ([`TlvTable::decode`]).
    pub fn to_flow(&self, in_port: OfPort) -> Flow {
        let (b, v6, a, c) = (&self.base, &self.ipv6, &self.arp, &self.ct);
        let is_nd = b.dl_type == packet::headers::ETH_TYPE_IPV6;
        let is_nsh = b.dl_type == packet::headers::ETH_TYPE_NSH;
        let mut flow = Flow {
            ct_label: c.label,
            skb_priority: a.skb_priority,
            pkt_mark: b.pkt_mark,
            dp_hash: b.dp_hash,
            in_port: in_port.0,
            recirc_id: b.recirc_id,
            packet_type: a.packet_type,
            ct_state: b.ct_state,
            ct_mark: b.ct_mark,
            ct_zone: b.ct_zone,
            ct_tp_src: c.tp_src,
            ct_tp_dst: c.tp_dst,
            ct_nw_proto: c.nw_proto,
            ct_nw_src: c.nw_src,
            ct_nw_dst: c.nw_dst,
            ct_ipv6_src: c.ipv6_src,
            ct_ipv6_dst: c.ipv6_dst,
            dl_dst: b.dl_dst,
            dl_src: b.dl_src,
            dl_type: b.dl_type,
            vlans: [VlanTag { tpid: b.vlan_tpid, tci: b.vlan_tci }, a.vlan1],
            mpls_lse: a.mpls_lse,
            ipv6_src: v6.src,
            ipv6_dst: v6.dst,
            nw_src: b.nw_src,
            nw_dst: b.nw_dst,
            ipv6_label: v6.label,
            nw_frag: b.nw_frag,
            nw_tos: b.nw_tos,
            nw_ttl: b.nw_ttl,
            nw_proto: b.nw_proto,
            nd_target: v6.nd_target,
            arp_sha: if is_nd { v6.nd_sll } else { a.arp_sha },
            arp_tha: if is_nd { v6.nd_tll } else { a.arp_tha },
            tcp_flags: b.tcp_flags,
            tp_src: b.tp_src,
            tp_dst: b.tp_dst,
            igmp_group: if is_nsh { 0 } else { a.igmp_group },
            ..Flow::default()
        };
        if is_nsh {
            flow.set_nsh(&self.nsh());
        }
        flow.set_tunnel(&self.tunnel);
        flow
    }

    /// The datapath key of a flow received on `in_port`; inverse of [`FlowKey::to_flow`]. Drops registers,
    /// metadata, tunnel options and other fields without a place in the datapath.
    pub fn from_flow(flow: &Flow, in_port: DpPort) -> FlowKey {
        let mut key = FlowKey::blocks_of(flow, in_port.0, flow.dl_type);
        key.set_shape();
        key
    }

    /// The datapath mask of a slow-path mask, for packets of the shape and EtherType of `key`: absent blocks
    /// stay zero. Always exact: input port, recirculation id, shape, packet type, EtherType, presence of each tag (as
    /// in the kernel's flows, and as translation assumes), headers of tunnel options. [`TlvTable::add_mask_of_options`]
    /// adds their data.
    pub fn from_mask(mask: &Mask, key: &FlowKey) -> KeyMask {
        let m = &mask.0;
        let mut out = FlowKey::blocks_of(m, u32::MAX, key.base.dl_type);
        out.base.recirc_id = u32::MAX;
        out.base.dl_type = u16::MAX;
        out.base.vlan_tci |= VlanTag::PRESENT;
        out.arp.vlan1.tci |= VlanTag::PRESENT;
        out.arp.packet_type = u32::MAX;
        if key.has(shape::OPTIONS) {
            out.options = key.options.header_mask();
        }
        for n in 0..shape::COUNT {
            if key.base.shape >> n & 1 == 0 {
                *out.block_mut(n + 1) = [0; 8];
            }
        }
        out.base.shape = u16::MAX;
        out
    }

    /// The blocks of a flow or a mask, whatever the shape, for packets of that EtherType.
    pub(crate) fn blocks_of(f: &Flow, in_port: u32, dl_type_of_packet: u16) -> FlowKey {
        let mut key = FlowKey::default();
        let is_nd = dl_type_of_packet == packet::headers::ETH_TYPE_IPV6;
        let is_nsh = dl_type_of_packet == packet::headers::ETH_TYPE_NSH;
        key.base = BaseBlock {
            in_port,
            recirc_id: f.recirc_id,
            dl_dst: f.dl_dst,
            dl_src: f.dl_src,
            dl_type: f.dl_type,
            vlan_tpid: f.vlans[0].tpid,
            vlan_tci: f.vlans[0].tci,
            shape: 0,
            nw_src: f.nw_src,
            nw_dst: f.nw_dst,
            nw_proto: f.nw_proto,
            nw_tos: f.nw_tos,
            nw_ttl: f.nw_ttl,
            nw_frag: f.nw_frag,
            tp_src: f.tp_src,
            tp_dst: f.tp_dst,
            tcp_flags: f.tcp_flags,
            ct_zone: f.ct_zone,
            ct_state: f.ct_state,
            ct_mark: f.ct_mark,
            pkt_mark: f.pkt_mark,
            dp_hash: f.dp_hash,
        };
        let (sha, tha) = (f.arp_sha, f.arp_tha);
        key.ipv6 = Ipv6Block {
            src: f.ipv6_src,
            dst: f.ipv6_dst,
            nd_target: f.nd_target,
            nd_sll: if is_nd { sha } else { [0; 6] },
            nd_tll: if is_nd { tha } else { [0; 6] },
            label: f.ipv6_label,
        };
        key.arp = ArpBlock {
            mpls_lse: f.mpls_lse,
            vlan1: f.vlans[1],
            igmp_group: f.igmp_group,
            skb_priority: f.skb_priority,
            packet_type: f.packet_type,
            arp_sha: if is_nd { [0; 6] } else { sha },
            arp_tha: if is_nd { [0; 6] } else { tha },
            nsh_flags: 0,
            nsh_ttl: 0,
            nsh_mdtype: 0,
            nsh_np: 0,
            nsh_context: [0; 4],
        };
        if is_nsh {
            key.set_nsh(&f.nsh());
        }
        key.tunnel = f.tunnel();
        key.ct = CtBlock {
            label: f.ct_label,
            ipv6_src: f.ct_ipv6_src,
            ipv6_dst: f.ct_ipv6_dst,
            nw_src: f.ct_nw_src,
            nw_dst: f.ct_nw_dst,
            tp_src: f.ct_tp_src,
            tp_dst: f.ct_tp_dst,
            nw_proto: f.ct_nw_proto,
            pad: [0; 3],
        };
        key
    }
}
