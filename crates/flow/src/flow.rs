//! The slow path's view of a packet: every match field at a fixed place in one block of 64-bit words.
//!
//! Invariant: fields are in the order of the lookup stages (metadata, layer 2, layer 3, layer 4), so a stage
//! is a range of words ([`Stage::words`]). There is no padding: two flows are equal if their words are.

use crate::types::{MacAddr, OfPort, RecircId};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A VLAN tag as in a frame; `tci` includes [`VlanTag::PRESENT`] if the tag exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VlanTag {
    /// EtherType of the tag (0x8100 or 0x88a8), 0 without a tag.
    pub tpid: u16,
    /// Priority (3 bits), presence (1), VLAN number (12).
    pub tci: u16,
}

impl VlanTag {
    /// Bit of `tci` for "tag present" (the standard's CFI/DEI bit, rarely used in frames).
    pub const PRESENT: u16 = 0x1000;
    /// VLAN number bits of `tci`.
    pub const VID: u16 = 0x0fff;
    /// Priority bits of `tci`.
    pub const PCP: u16 = 0xe000;

    /// Whether the tag exists.
    pub fn is_present(self) -> bool {
        self.tci & VlanTag::PRESENT != 0
    }

    /// The VLAN number.
    pub fn vid(self) -> u16 {
        self.tci & 0xfff
    }

    /// The priority.
    pub fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// Registers of 32 bits, as many as in Open vSwitch 3.7. Pairs and fours of them are registers of 64 and 128 bits.
pub type Registers = [u32; 32];

/// Bits of `nw_frag`.
pub mod nw_frag {
    /// The packet is a fragment.
    pub const ANY: u8 = 1;
    /// It is not the first one.
    pub const LATER: u8 = 2;
    /// Both bits.
    pub const MASK: u8 = 3;
    /// In a mask of the datapath: its flow was written without a packet type. No key has the bit, so all packets match it.
    pub const UNTYPED: u8 = 0x80;
    /// In a mask of the datapath: its flow was written without a packet type and without an Ethernet header.
    pub const UNTYPED_BARE: u8 = 0x40;
}

/// Bits of `ct_state`.
pub mod ct_state {
    /// Beginning of a new connection.
    pub const NEW: u32 = 0x01;
    /// Part of an existing connection.
    pub const EST: u32 = 0x02;
    /// Related to an existing connection.
    pub const REL: u32 = 0x04;
    /// In the reply direction.
    pub const RPL: u32 = 0x08;
    /// Could not be tracked.
    pub const INV: u32 = 0x10;
    /// Conntrack has seen the packet.
    pub const TRK: u32 = 0x20;
    /// Source address or port was translated.
    pub const SNAT: u32 = 0x40;
    /// Destination address or port was translated.
    pub const DNAT: u32 = 0x80;
}

/// Bits of `tcp_flags` with their letters, low bit first (RFC 9293 §3.1, RFC 3540).
pub struct TcpFlags;

impl TcpFlags {
    /// The 12 bits of a TCP header.
    pub const MASK: u16 = 0xfff;
    /// Names of the low nine bits in match syntax.
    pub const NAMES: [&'static str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];
}

/// All match fields of one packet. Fields absent from the packet are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    // Stage 1: metadata.
    /// Tunnel key.
    pub tun_id: u64,
    /// Outer IPv4 source.
    pub tun_src: u32,
    /// Outer IPv4 destination.
    pub tun_dst: u32,
    /// Outer IPv6 source.
    pub tun_ipv6_src: [u8; 16],
    /// Outer IPv6 destination.
    pub tun_ipv6_dst: [u8; 16],
    /// Tunnel flags.
    pub tun_flags: u16,
    /// Outer type of service.
    pub tun_tos: u8,
    /// Outer time to live.
    pub tun_ttl: u8,
    /// Outer UDP source port.
    pub tun_tp_src: u16,
    /// Outer UDP destination port.
    pub tun_tp_dst: u16,
    /// VXLAN group policy id.
    pub tun_gbp_id: u16,
    /// VXLAN group policy flags.
    pub tun_gbp_flags: u8,
    /// GTP-U message type.
    pub tun_gtpu_msgtype: u8,
    /// Conjunction that matched.
    pub conj_id: u32,
    /// OpenFlow metadata.
    pub metadata: u64,
    /// Registers.
    pub regs: Registers,
    /// Connection label, as a big-endian number.
    pub ct_label: [u8; 16],
    /// Packet priority (QoS).
    pub skb_priority: u32,
    /// Packet mark.
    pub pkt_mark: u32,
    /// Hash computed by the datapath.
    pub dp_hash: u32,
    /// OpenFlow input port (an [`OfPort`]).
    pub in_port: u32,
    /// Frozen state of a recirculated packet (a [`RecircId`]).
    pub recirc_id: u32,
    /// Packet type: namespace in the high half, type in the low; 0 is Ethernet.
    pub packet_type: u32,
    /// Connection state, bits of [`ct_state`].
    pub ct_state: u32,
    /// Connection mark.
    pub ct_mark: u32,
    /// Connection zone.
    pub ct_zone: u16,
    /// Source port of the connection's original direction.
    pub ct_tp_src: u16,
    /// Destination port of the connection's original direction.
    pub ct_tp_dst: u16,
    /// IP protocol of the connection's original direction.
    pub ct_nw_proto: u8,
    /// Always 0.
    pub pad1: u8,
    /// IPv4 source of the connection's original direction.
    pub ct_nw_src: u32,
    /// IPv4 destination of the connection's original direction.
    pub ct_nw_dst: u32,
    /// IPv6 source of the connection's original direction.
    pub ct_ipv6_src: [u8; 16],
    /// IPv6 destination of the connection's original direction.
    pub ct_ipv6_dst: [u8; 16],
    /// Output port in the action set (an [`OfPort`]).
    pub actset_output: u32,
    /// Always 0.
    pub pad2: u32,
    /// Index of a version 1 ERSPAN header, 20 bits.
    pub tun_erspan_idx: u32,
    /// ERSPAN version.
    pub tun_erspan_ver: u8,
    /// Direction in a version 2 ERSPAN header.
    pub tun_erspan_dir: u8,
    /// Hardware id in a version 2 ERSPAN header, 6 bits.
    pub tun_erspan_hwid: u8,
    /// GTP-U flags.
    pub tun_gtpu_flags: u8,
    /// Presence of tunnel options, a bit for each `tun_metadata` field.
    pub tun_metadata_present: u64,
    /// Values of these options, as a [`TlvTable`](crate::TlvTable) places them.
    pub tun_metadata: [u32; 64],
    // Stage 2: layer 2.
    /// Ethernet destination.
    pub dl_dst: [u8; 6],
    /// Ethernet source.
    pub dl_src: [u8; 6],
    /// EtherType after the parsed VLAN tags.
    pub dl_type: u16,
    /// Always 0.
    pub pad3: u16,
    /// VLAN tags, outermost first.
    pub vlans: [VlanTag; 2],
    /// MPLS label stack, outermost first: label, class, bottom, time to live.
    pub mpls_lse: [u32; 4],
    // Stage 3: layer 3.
    /// IPv6 source.
    pub ipv6_src: [u8; 16],
    /// IPv6 destination.
    pub ipv6_dst: [u8; 16],
    /// IPv4 source, or ARP sender.
    pub nw_src: u32,
    /// IPv4 destination, or ARP target.
    pub nw_dst: u32,
    /// IPv6 flow label.
    pub ipv6_label: u32,
    /// Fragment bits of [`nw_frag`].
    pub nw_frag: u8,
    /// Type of service or traffic class, ECN included.
    pub nw_tos: u8,
    /// Time to live or hop limit.
    pub nw_ttl: u8,
    /// IP protocol, or low byte of the ARP opcode.
    pub nw_proto: u8,
    /// Neighbour discovery target.
    pub nd_target: [u8; 16],
    /// Flags of a network service header (NSH), 2 bits.
    pub nsh_flags: u8,
    /// Its time to live, 6 bits.
    pub nsh_ttl: u8,
    /// Its metadata type.
    pub nsh_mdtype: u8,
    /// Its next protocol.
    pub nsh_np: u8,
    /// Its service path identifier (24 bits) and service index.
    pub nsh_path: u32,
    /// Its context headers, with metadata type 1.
    pub nsh_context: [u32; 4],
    /// ARP sender hardware address, or ND source link-layer address.
    pub arp_sha: [u8; 6],
    /// ARP target hardware address, or ND target link-layer address.
    pub arp_tha: [u8; 6],
    /// TCP flags, 12 bits; of neighbour discovery the type of the first link-layer address option.
    pub tcp_flags: u16,
    /// Always 0.
    pub pad4: u16,
    // Stage 4: layer 4.
    /// TCP, UDP or SCTP source port, or ICMP type.
    pub tp_src: u16,
    /// TCP, UDP or SCTP destination port, or ICMP code.
    pub tp_dst: u16,
    /// IGMP group; of neighbour discovery the reserved bytes.
    pub igmp_group: u32,
}

/// Number of 64-bit words of a [`Flow`].
pub const FLOW_WORDS: usize = size_of::<Flow>() / 8;

/// A stage of the lookup: a range of a flow's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Tunnel, registers, input port, conntrack.
    Metadata,
    /// Ethernet, VLAN, MPLS.
    L2,
    /// IP, ARP, ND, TCP flags.
    L3,
    /// Ports.
    L4,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Stage; 4] = [Stage::Metadata, Stage::L2, Stage::L3, Stage::L4];

    /// The range of words of the stage.
    pub const fn words(self) -> std::ops::Range<usize> {
        const L2: usize = std::mem::offset_of!(Flow, dl_dst) / 8;
        const L3: usize = std::mem::offset_of!(Flow, ipv6_src) / 8;
        const L4: usize = std::mem::offset_of!(Flow, tp_src) / 8;
        match self {
            Stage::Metadata => 0..L2,
            Stage::L2 => L2..L3,
            Stage::L3 => L3..L4,
            Stage::L4 => L4..FLOW_WORDS,
        }
    }
}

const _: () = assert!(std::mem::offset_of!(Flow, dl_dst).is_multiple_of(8));
const _: () = assert!(std::mem::offset_of!(Flow, ipv6_src).is_multiple_of(8));
const _: () = assert!(std::mem::offset_of!(Flow, tp_src).is_multiple_of(8));

impl Default for Flow {
    fn default() -> Flow {
        Flow::new_zeroed()
    }
}

impl Flow {
    /// The words of the flow.
    #[inline]
    pub fn words(&self) -> &[u64; FLOW_WORDS] {
        zerocopy::transmute_ref!(self)
    }

    /// Clears all fields of the packet's connection.
    pub fn clear_conntrack(&mut self) {
        (self.ct_state, self.ct_zone, self.ct_mark, self.ct_label) = (0, 0, 0, [0; 16]);
        self.ct_nw_proto = 0;
        self.clear_connection_ends();
    }

    /// Clears addresses and ports of the connection's original direction, which OVS hides with the headers behind a label or
    /// service header.
    pub fn clear_connection_ends(&mut self) {
        (self.ct_nw_src, self.ct_nw_dst, self.ct_tp_src, self.ct_tp_dst) = (0, 0, 0, 0);
        (self.ct_ipv6_src, self.ct_ipv6_dst) = ([0; 16], [0; 16]);
    }

    /// Whether the packet belongs to a connection: every such packet is new, of an established one, or a reply.
    pub fn is_in_connection(&self) -> bool {
        self.ct_state & (ct_state::NEW | ct_state::EST | ct_state::RPL) != 0
    }

    /// The words of the flow, writable.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64; FLOW_WORDS] {
        zerocopy::transmute_mut!(self)
    }

    /// A flow from its words.
    pub fn from_words(words: [u64; FLOW_WORDS]) -> Flow {
        zerocopy::transmute!(words)
    }

    /// The input port.
    pub fn in_port(&self) -> OfPort {
        OfPort(self.in_port)
    }

    /// The recirculation id.
    pub fn recirc_id(&self) -> RecircId {
        RecircId(self.recirc_id)
    }

    /// Ethernet source.
    pub fn dl_src(&self) -> MacAddr {
        MacAddr(self.dl_src)
    }

    /// Ethernet destination.
    pub fn dl_dst(&self) -> MacAddr {
        MacAddr(self.dl_dst)
    }

    /// EtherType that selects the fields of the packet: without an Ethernet header that of its packet type, if it is
    /// one, else 0.
    pub fn effective_type(&self) -> u16 {
        match self.packet_type >> 16 {
            _ if self.packet_type == 0 => self.dl_type,
            1 => self.packet_type as u16,
            _ => 0,
        }
    }

    /// Changes the EtherType, and with it the packet type of a packet without an Ethernet header.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        self.dl_type = ethertype;
        if self.packet_type != 0 {
            self.packet_type = 1 << 16 | u32::from(ethertype);
        }
    }

    /// Whether the EtherType is that of IPv4 or IPv6.
    pub fn is_ip(&self) -> bool {
        self.dl_type == packet::headers::ETH_TYPE_IP || self.dl_type == packet::headers::ETH_TYPE_IPV6
    }

    /// TCP flags, 0 of other protocols.
    pub fn flags_of_tcp(&self) -> u16 {
        if self.nw_proto == packet::headers::IPPROTO_TCP { self.tcp_flags } else { 0 }
    }

    /// Whether the packet has a network service header.
    pub fn is_nsh(&self) -> bool {
        self.dl_type == packet::headers::ETH_TYPE_NSH
    }

    /// Whether the EtherType is that of ARP or RARP.
    pub fn is_arp(&self) -> bool {
        self.dl_type == packet::headers::ETH_TYPE_ARP || self.dl_type == packet::headers::ETH_TYPE_RARP
    }

    /// Keeps only the bits of `mask`.
    pub fn masked(&self, mask: &Mask) -> Flow {
        let mut out = *self;
        for (w, m) in out.words_mut().iter_mut().zip(mask.words()) {
            *w &= m;
        }
        out
    }

    /// Whether both flows agree in all bits of `mask`.
    pub fn equal_under(&self, other: &Flow, mask: &Mask) -> bool {
        self.words().iter().zip(other.words()).zip(mask.words()).all(|((a, b), m)| (a ^ b) & m == 0)
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::fields::debug_flow(self, f)
    }
}

/// A mask over a [`Flow`]: the same block, with matched bits set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Mask(pub Flow);

impl Mask {
    /// The words of the mask.
    #[inline]
    pub fn words(&self) -> &[u64; FLOW_WORDS] {
        self.0.words()
    }

    /// A mask that matches everything.
    pub fn none() -> Mask {
        Mask::default()
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|w| *w == 0)
    }

    /// Adds the bits of `other`.
    pub fn or(&mut self, other: &Mask) {
        for (w, o) in self.0.words_mut().iter_mut().zip(other.words()) {
            *w |= o;
        }
    }

    /// Whether this mask has all bits of `other`.
    pub fn contains(&self, other: &Mask) -> bool {
        self.words().iter().zip(other.words()).all(|(a, b)| b & !a == 0)
    }
}
