//! The field registry: one row per match field.
//!
//! Numbers, widths and prerequisites are those of the OpenFlow specification 1.0-1.5 (§7.2.3 "Flow Match
//! Structures"), of the Nicira extensions (NXM classes 0 and 1) and of the ONF extension for TCP flags and
//! `actset_output`. A field's value is a number of up to 128 bits, most significant byte first on the wire.

mod fixed;
mod set;
mod table;

use crate::flow::{Flow, VlanTag, ct_state};
use packet::headers as h;
use std::mem::offset_of;

pub use set::FieldSet;
pub use table::{ALL_FIELDS, FieldId};

/// Text format of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldFormat {
    /// Decimal.
    Decimal,
    /// Hexadecimal.
    Hex,
    /// Six bytes with colons.
    Ethernet,
    /// Dotted quad.
    Ipv4,
    /// RFC 5952.
    Ipv6,
    /// OpenFlow port, 16-bit reserved numbers.
    OfPort16,
    /// OpenFlow port, 32-bit reserved numbers.
    OfPort32,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// Flag names of tunnels.
    TunnelFlags,
    /// Flag names of TCP.
    TcpFlags,
    /// Flag names of conntrack.
    CtState,
    /// `(namespace,type)`.
    PacketType,
}

/// Prerequisite of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prereq {
    /// None.
    None,
    /// An Ethernet frame.
    Ethernet,
    /// ARP or RARP.
    Arp,
    /// A VLAN tag.
    Vlan,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// MPLS.
    Mpls,
    /// A network service header.
    Nsh,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP over IPv4.
    Icmp4,
    /// ICMPv6.
    Icmp6,
    /// Neighbour solicitation or advertisement.
    Nd,
    /// Neighbour solicitation.
    NdSolicit,
    /// Neighbour advertisement.
    NdAdvert,
    /// A tracked connection with a known original direction.
    Connection,
}

/// Position of a field in a [`Flow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldPosition {
    /// `bits` bits at `shift` of a native integer of `size` bytes at byte `offset`.
    Int { offset: usize, size: u8, shift: u8 },
    /// `size` bytes at `offset`, most significant first.
    Bytes { offset: usize, size: u8 },
    /// The 16-bit form of a port number kept in 32 bits.
    Port16 { offset: usize },
    /// `count` registers from number `first`, most significant first.
    Regs { first: u8, count: u8 },
    /// Bits of the outermost VLAN's TCI; setting them sets the presence bit as well.
    VlanPresent { shift: u8 },
    /// The type-of-service byte without its ECN bits.
    Tos,
    /// A place that depends on a [`TlvTable`](crate::TlvTable).
    Mapped,
}

/// An NXM or OXM header's class and field number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OxmId {
    /// Class: 0 and 1 NXM, 0x8000 OpenFlow basic, 0x1000 Ericsson, 0x8001 packet registers, 0xffff experimenter (Nicira here).
    pub class: u16,
    /// Number within the class, 7 bits.
    pub field: u8,
}

/// One row of the registry.
#[derive(Debug)]
pub struct FieldDef {
    /// Canonical name.
    pub name: &'static str,
    /// Alternative name accepted in text (and printed in some places).
    pub alias: Option<&'static str>,
    /// Bytes of the value on the wire.
    pub wire_bytes: u8,
    /// Significant bits of the value.
    pub bits: u16,
    /// Whether partial masks are allowed.
    pub maskable: bool,
    /// Text format of the value.
    pub format: FieldFormat,
    /// Prerequisite of the field.
    pub prereq: Prereq,
    /// Whether actions may write it.
    pub writable: bool,
    /// NXM header.
    pub nxm: Option<OxmId>,
    /// OXM header and its first OpenFlow version (wire number).
    pub oxm: Option<(OxmId, u8)>,
    pub(crate) place: FieldPosition,
}

impl FieldId {
    /// The row.
    #[inline]
    pub fn def(self) -> &'static FieldDef {
        &table::DEFS[self as usize]
    }

    /// Finds a field by its canonical name or alias.
    pub fn by_name(name: &str) -> Option<FieldId> {
        ALL_FIELDS.iter().copied().find(|f| {
            let d = f.def();
            d.name.eq_ignore_ascii_case(name) || d.alias.is_some_and(|a| a.eq_ignore_ascii_case(name))
        })
    }

    /// Finds the field of an NXM or OXM header.
    pub fn by_oxm(id: OxmId) -> Option<FieldId> {
        ALL_FIELDS.iter().copied().find(|f| {
            let d = f.def();
            d.nxm == Some(id) || d.oxm.is_some_and(|(o, _)| o == id)
        })
    }

    /// All significant bits; of tunnel metadata the low 128.
    pub fn full_mask(self) -> u128 {
        let bits = self.def().bits;
        if bits >= 128 { u128::MAX } else { (1u128 << bits) - 1 }
    }

    /// Value of the field in `flow` (in a mask: its mask). Tunnel metadata, which only a
    /// [`TlvTable`](crate::TlvTable) can find, reads as 0.
    pub fn get(self, flow: &Flow) -> u128 {
        let raw = match self.def().place {
            FieldPosition::Int { offset, size, shift } => read_int(flow, offset, size) >> shift,
            FieldPosition::VlanPresent { shift } => u128::from(flow.vlans[0].tci >> shift),
            FieldPosition::Tos => u128::from(flow.nw_tos & 0xfc),
            FieldPosition::Bytes { offset, size } => {
                bytes_of(flow)[offset..offset + size as usize].iter().fold(0, |n, b| n << 8 | u128::from(*b))
            }
            FieldPosition::Port16 { offset } => read_int(flow, offset, 4),
            FieldPosition::Mapped => 0,
            FieldPosition::Regs { first, count } => {
                (0..count).fold(0, |n, i| n << 32 | u128::from(flow.regs[(first + i) as usize]))
            }
        };
        raw & self.full_mask()
    }

    /// Writes the field of `flow`; ignores bits of `value` beyond the field's width, and tunnel metadata.
    pub fn set(self, flow: &mut Flow, value: u128) {
        let mask = self.full_mask();
        let value = value & mask;
        match self.def().place {
            FieldPosition::Int { offset, size, shift } => {
                let old = read_int(flow, offset, size);
                write_int(flow, offset, size, old & !(mask << shift) | value << shift);
            }
            FieldPosition::VlanPresent { shift } => {
                let tci = &mut flow.vlans[0].tci;
                *tci = *tci & !((mask as u16) << shift) | (value as u16) << shift | VlanTag::PRESENT;
            }
            FieldPosition::Mapped => {}
            FieldPosition::Tos => flow.nw_tos = flow.nw_tos & 3 | value as u8 & 0xfc,
            FieldPosition::Bytes { offset, size } => {
                let be = value.to_be_bytes();
                bytes_of_mut(flow)[offset..offset + size as usize].copy_from_slice(&be[16 - size as usize..]);
            }
            FieldPosition::Port16 { offset } => {
                let wide = if value >= 0xff00 { value | 0xffff_0000 } else { value };
                write_int(flow, offset, 4, wide);
            }
            FieldPosition::Regs { first, count } => {
                for i in 0..count {
                    flow.regs[(first + i) as usize] = (value >> (32 * (count - 1 - i))) as u32;
                }
            }
        }
    }

    /// Sets the field in the mask of a match. As in OVS, a match on the type of an option of neighbour discovery covers
    /// the whole place of these eight bits.
    pub(crate) fn set_mask(self, mask_flow: &mut Flow, mask: u128) {
        self.set(mask_flow, mask);
        if self == FieldId::NdOptionsType && mask == self.full_mask() {
            mask_flow.tcp_flags = u16::MAX;
        }
    }

    /// Adds the bits of `mask` to the field in a mask-flow.
    pub fn add_mask(self, mask_flow: &mut Flow, mask: u128) {
        let now = self.get(mask_flow);
        self.set(mask_flow, now | mask);
        if matches!(self.def().place, FieldPosition::Port16 { .. }) {
            mask_flow.in_port = u32::MAX;
        }
    }

    /// Whether packets such as `flow` have the field; with `mask`, whether the matched bits imply it.
    pub fn prereq_holds(self, flow: &Flow, mask: Option<&Flow>) -> bool {
        self.def().prereq.holds(flow, mask)
    }
}

impl Prereq {
    /// Whether the prerequisite holds in `flow`; with `mask`, whether the matched bits imply it.
    pub fn holds(self, flow: &Flow, mask: Option<&Flow>) -> bool {
        let proto_known = mask.is_none_or(|m| m.nw_proto == 0xff);
        // The type of a packet without an Ethernet header is that of its packet type.
        let type_known = mask.is_none_or(|m| match flow.packet_type {
            0 => m.dl_type == 0xffff,
            _ => m.packet_type == u32::MAX,
        });
        let dl_type = flow.effective_type();
        let not_later = flow.nw_frag & crate::nw_frag::LATER == 0;
        let v4 = type_known && dl_type == h::ETH_TYPE_IP;
        let v6 = type_known && dl_type == h::ETH_TYPE_IPV6;
        let proto = |p: u8| (v4 || v6) && proto_known && flow.nw_proto == p && not_later;
        // As in OVS, only protocols with ports require that the packet is no later fragment.
        let icmp4 = v4 && proto_known && flow.nw_proto == h::IPPROTO_ICMP;
        let icmp6 = v6 && proto_known && flow.nw_proto == h::IPPROTO_ICMPV6;
        let nd = |t: u8| {
            icmp6
                && mask.is_none_or(|m| m.tp_src & 0xff == 0xff)
                && flow.tp_src == u16::from(t)
                && flow.tp_dst == 0
        };
        match self {
            Prereq::None => true,
            Prereq::Ethernet => flow.packet_type == 0,
            Prereq::Arp => type_known && matches!(dl_type, h::ETH_TYPE_ARP | h::ETH_TYPE_RARP),
            Prereq::Vlan => flow.vlans[0].is_present() && mask.is_none_or(|m| m.vlans[0].is_present()),
            Prereq::Ipv4 => v4,
            Prereq::Ipv6 => v6,
            Prereq::Ip => v4 || v6,
            Prereq::Mpls => type_known && h::is_mpls(dl_type),
            Prereq::Nsh => type_known && dl_type == h::ETH_TYPE_NSH,
            Prereq::Tcp => proto(h::IPPROTO_TCP),
            Prereq::Udp => proto(h::IPPROTO_UDP),
            Prereq::Sctp => proto(h::IPPROTO_SCTP),
            Prereq::Icmp4 => icmp4,
            Prereq::Icmp6 => icmp6,
            Prereq::Nd => nd(h::ND_NEIGHBOR_SOLICIT) || nd(h::ND_NEIGHBOR_ADVERT),
            Prereq::NdSolicit => nd(h::ND_NEIGHBOR_SOLICIT),
            Prereq::NdAdvert => nd(h::ND_NEIGHBOR_ADVERT),
            Prereq::Connection => is_connection(flow.ct_state, mask.map_or(u32::MAX, |m| m.ct_state)),
        }
    }
}

/// Whether every packet with these state bits belongs to a connection: a bit of one is set, or it is tracked
/// and not invalid.
fn is_connection(state: u32, mask: u32) -> bool {
    use ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};
    let known = state & (NEW | EST | REL | RPL | SNAT | DNAT) != 0;
    known || state & (TRK | INV) == TRK && mask & INV != 0
}

fn bytes_of(flow: &Flow) -> &[u8] {
    zerocopy::IntoBytes::as_bytes(flow)
}

fn bytes_of_mut(flow: &mut Flow) -> &mut [u8] {
    zerocopy::IntoBytes::as_mut_bytes(flow)
}

/// The first bytes, as an integer of one of the sizes of [`FieldPosition::Int`] has them: copies of a fixed length need no call.
fn array<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&b[..N]);
    array
}

fn read_int(flow: &Flow, offset: usize, size: u8) -> u128 {
    let b = &bytes_of(flow)[offset..];
    match size {
        1 => b[0].into(),
        2 => u16::from_ne_bytes(array(b)).into(),
        4 => u32::from_ne_bytes(array(b)).into(),
        8 => u64::from_ne_bytes(array(b)).into(),
        _ => u128::from_ne_bytes(array(b)),
    }
}

fn write_int(flow: &mut Flow, offset: usize, size: u8, value: u128) {
    let b = &mut bytes_of_mut(flow)[offset..];
    match size {
        1 => b[0] = value as u8,
        2 => b[..2].copy_from_slice(&(value as u16).to_ne_bytes()),
        4 => b[..4].copy_from_slice(&(value as u32).to_ne_bytes()),
        8 => b[..8].copy_from_slice(&(value as u64).to_ne_bytes()),
        _ => b[..16].copy_from_slice(&value.to_ne_bytes()),
    }
}

/// Prints the non-zero fields of a flow.
pub(crate) fn debug_flow(flow: &Flow, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let mut s = f.debug_struct("Flow");
    let skip = |id: FieldId| {
        matches!(id.def().place, FieldPosition::Regs { count: 2.., .. } | FieldPosition::Port16 { .. })
    };
    for id in ALL_FIELDS.iter().copied().filter(|id| !skip(*id)) {
        let v = id.get(flow);
        if v != 0 {
            s.field(id.def().name, &format_args!("{v:#x}"));
        }
    }
    s.finish()
}

pub(crate) const OFFSET_IN_PORT: usize = offset_of!(Flow, in_port);
