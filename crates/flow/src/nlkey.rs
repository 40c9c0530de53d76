//! Flow keys and masks as netlink attributes (`OVS_KEY_ATTR_*` of linux/openvswitch.h), both ways.
//!
//! - [`key_attributes`]: a key for tracers, in the order of stock switches.
//! - [`key_to_bytes`], [`mask_to_bytes`]: key and mask for the kernel datapath, which accepts only its own
//!   canonical form. [`kernel_mask`] is the mask that it will hold, [`mask_fits`] whether its keys can
//!   express the mask.
//! - [`parse_key`], [`parse_mask`]: keys and masks from the kernel datapath, with the [`Fitness`] of the
//!   resulting [`FlowKey`].
//!
//! Lengths, types and plain numbers are in host byte order, header fields in network byte order. Fields
//! without an attribute are not written.

mod mask;
mod nsh;
mod parse;
mod tunnel;
mod write;

pub use mask::{kernel_mask, mask_fits};
pub use nsh::{parse_nsh, parse_nsh_masked, write_nsh, write_nsh_masked};
pub use parse::{parse_key, parse_mask};
pub use tunnel::{parse_tunnel, write_tunnel};
pub use write::{key_to_bytes, mask_to_bytes};

use crate::flow::{VlanTag, nw_frag};
use crate::key::{FlowKey, shape};
use crate::nlattr::AttrWriter;
use packet::headers as h;

/// Attribute types.
mod attr {
    pub(super) const ENCAP: u16 = 1;
    pub(super) const PRIORITY: u16 = 2;
    pub(super) const IN_PORT: u16 = 3;
    pub(super) const ETHERNET: u16 = 4;
    pub(super) const VLAN: u16 = 5;
    pub(super) const ETHERTYPE: u16 = 6;
    pub(super) const IPV4: u16 = 7;
    pub(super) const IPV6: u16 = 8;
    pub(super) const TCP: u16 = 9;
    pub(super) const UDP: u16 = 10;
    pub(super) const ICMP: u16 = 11;
    pub(super) const ICMPV6: u16 = 12;
    pub(super) const ARP: u16 = 13;
    pub(super) const ND: u16 = 14;
    pub(super) const SKB_MARK: u16 = 15;
    pub(super) const TUNNEL: u16 = 16;
    pub(super) const SCTP: u16 = 17;
    pub(super) const TCP_FLAGS: u16 = 18;
    pub(super) const DP_HASH: u16 = 19;
    pub(super) const RECIRC_ID: u16 = 20;
    pub(super) const MPLS: u16 = 21;
    pub(super) const CT_STATE: u16 = 22;
    pub(super) const CT_ZONE: u16 = 23;
    pub(super) const CT_MARK: u16 = 24;
    pub(super) const CT_LABELS: u16 = 25;
    pub(super) const CT_TUPLE_IPV4: u16 = 26;
    pub(super) const CT_TUPLE_IPV6: u16 = 27;
    pub(super) const NSH: u16 = 28;
    /// The content is a list of attributes (`NLA_F_NESTED`).
    pub(super) const NESTED: u16 = 0x8000;
}

/// Bytes before an attribute's content.
const HEADER_BYTES: usize = 4;
/// MPLS labels in the kernel's keys.
const LABELS_MAX: usize = 3;
/// The bottom of a label stack.
const BOTTOM: u32 = 0x100;
/// Connection state bits of the kernel.
const CT_STATE_BITS: u32 = 0xff;

/// How well our key represents the kernel's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fitness {
    /// Exactly.
    Perfect,
    /// The kernel's key has more (options of a tunnel, IPv6 extension headers, a tag beyond the limit): a
    /// flow made from ours also matches packets that differ there.
    TooMuch,
    /// The kernel's key has less (IGMP): our key has zeros for unknown fields. A mask with such bits cannot
    /// be written; packets that need them go through the slow path.
    TooLittle,
}

/// Limits of the keys of the other datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLimits {
    /// VLAN tags: 2 since Linux 4.9, 1 before.
    pub vlans: u8,
    /// MPLS labels: 3 since Linux 5.5, 1 before.
    pub mpls: u8,
    /// State, zone and mark of connections.
    pub ct: bool,
    /// Connection labels.
    pub ct_labels: bool,
    /// Addresses and ports of the connection's original direction (Linux 4.11).
    pub ct_tuple: bool,
}

impl KeyLimits {
    /// Limits of kernels since Linux 5.5 with connection tracking.
    pub const LINUX: KeyLimits = KeyLimits { vlans: 2, mpls: 3, ct: true, ct_labels: true, ct_tuple: true };
}

/// Encodes the attributes of a key.
pub fn key_attributes(key: &FlowKey) -> Vec<u8> {
    let b = &key.base;
    let mut out = Vec::with_capacity(192);
    put(&mut out, attr::RECIRC_ID, &b.recirc_id.to_ne_bytes());
    put(&mut out, attr::DP_HASH, &b.dp_hash.to_ne_bytes());
    put(&mut out, attr::PRIORITY, &key.arp.skb_priority.to_ne_bytes());
    put(&mut out, attr::IN_PORT, &b.in_port.to_ne_bytes());
    put(&mut out, attr::SKB_MARK, &b.pkt_mark.to_ne_bytes());
    put(&mut out, attr::CT_STATE, &b.ct_state.to_ne_bytes());
    put(&mut out, attr::CT_ZONE, &b.ct_zone.to_ne_bytes());
    put(&mut out, attr::CT_MARK, &b.ct_mark.to_ne_bytes());
    put(&mut out, attr::ETHERNET, &[b.dl_src, b.dl_dst].concat());
    let second = key.arp.vlan1;
    let tags = [(b.vlan_tpid, b.vlan_tci), (second.tpid, second.tci)];
    vlans(&mut out, &tags, key);
    out
}

/// Encodes the tags, each with its payload nested, and the rest.
fn vlans(out: &mut Vec<u8>, tags: &[(u16, u16)], key: &FlowKey) {
    match tags {
        [(tpid, tci), inner @ ..] if *tpid != 0 => {
            put(out, attr::ETHERTYPE, &tpid.to_be_bytes());
            put(out, attr::VLAN, &tci.to_be_bytes());
            let mut carried = Vec::new();
            vlans(&mut carried, inner, key);
            put(out, attr::ENCAP | attr::NESTED, &carried);
        }
        _ => payload(out, key),
    }
}

fn payload(out: &mut Vec<u8>, key: &FlowKey) {
    let b = &key.base;
    if b.dl_type < h::ETH_TYPE_MIN {
        return;
    }
    put(out, attr::ETHERTYPE, &b.dl_type.to_be_bytes());
    let frag = frag_type(b.nw_frag);
    match b.dl_type {
        h::ETH_TYPE_IP => {
            let mut ip = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
            ip.extend([b.nw_proto, b.nw_tos, b.nw_ttl, frag]);
            put(out, attr::IPV4, &ip);
            transport(out, key);
        }
        h::ETH_TYPE_IPV6 => {
            let mut ip = [key.ipv6.src, key.ipv6.dst].concat();
            ip.extend(key.ipv6.label.to_be_bytes());
            ip.extend([b.nw_proto, b.nw_tos, b.nw_ttl, frag]);
            put(out, attr::IPV6, &ip);
            transport(out, key);
        }
        h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => {
            let mut arp = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
            arp.extend(u16::from(b.nw_proto).to_be_bytes());
            arp.extend([key.arp.arp_sha, key.arp.arp_tha].concat());
            // Pads to the size of the structure.
            arp.extend([0, 0]);
            put(out, attr::ARP, &arp);
        }
        h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => {
            let labels = key.arp.mpls_lse.iter().take_while(|l| **l != 0);
            put(out, attr::MPLS, &labels.flat_map(|l| l.to_be_bytes()).collect::<Vec<u8>>());
        }
        h::ETH_TYPE_NSH => {
            let mut nested = AttrWriter::new();
            write_nsh(&mut nested, &key.nsh());
            put(out, attr::NSH | attr::NESTED, &nested.finish().unwrap_or_default());
        }
        _ => {}
    }
}

fn transport(out: &mut Vec<u8>, key: &FlowKey) {
    let b = &key.base;
    if b.nw_frag & nw_frag::LATER != 0 {
        return;
    }
    let ports = [b.tp_src.to_be_bytes(), b.tp_dst.to_be_bytes()].concat();
    // Types and codes are in the port fields.
    let type_and_code = [b.tp_src as u8, b.tp_dst as u8];
    match b.nw_proto {
        1 if b.dl_type == h::ETH_TYPE_IP => put(out, attr::ICMP, &type_and_code),
        6 => {
            put(out, attr::TCP, &ports);
            put(out, attr::TCP_FLAGS, &b.tcp_flags.to_be_bytes());
        }
        17 => put(out, attr::UDP, &ports),
        58 if b.dl_type == h::ETH_TYPE_IPV6 => {
            put(out, attr::ICMPV6, &type_and_code);
            if matches!(b.tp_src, 135 | 136) && key.has(shape::IPV6) {
                let link = [key.ipv6.nd_sll, key.ipv6.nd_tll].concat();
                put(out, attr::ND, &[&key.ipv6.nd_target[..], &link].concat());
            }
        }
        132 => put(out, attr::SCTP, &ports),
        _ => {}
    }
}

/// `OVS_FRAG_TYPE_*` of fragment bits.
fn frag_type(bits: u8) -> u8 {
    match bits {
        f if f & nw_frag::LATER != 0 => 2,
        f if f & nw_frag::ANY != 0 => 1,
        _ => 0,
    }
}

/// The headers after EtherType and tags, as the kernel's keys distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Payload {
    Ipv4,
    Ipv6,
    Arp,
    Mpls,
    Nsh,
    Other,
}

impl Payload {
    fn of(key: &FlowKey) -> Payload {
        match key.base.dl_type {
            h::ETH_TYPE_IP => Payload::Ipv4,
            h::ETH_TYPE_IPV6 => Payload::Ipv6,
            h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => Payload::Arp,
            h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => Payload::Mpls,
            h::ETH_TYPE_NSH => Payload::Nsh,
            _ => Payload::Other,
        }
    }
}

/// The transport header with an attribute in the kernel's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    /// With neighbour discovery (types 135 and 136) or without.
    Icmpv6 {
        nd: bool,
    },
    None,
}

impl Transport {
    fn of(key: &FlowKey) -> Transport {
        let b = &key.base;
        let payload = Payload::of(key);
        if b.nw_frag & nw_frag::LATER != 0 || !matches!(payload, Payload::Ipv4 | Payload::Ipv6) {
            return Transport::None;
        }
        match b.nw_proto {
            h::IPPROTO_TCP => Transport::Tcp,
            h::IPPROTO_UDP => Transport::Udp,
            h::IPPROTO_SCTP => Transport::Sctp,
            h::IPPROTO_ICMP if payload == Payload::Ipv4 => Transport::Icmp,
            h::IPPROTO_ICMPV6 if payload == Payload::Ipv6 => Transport::Icmpv6 {
                nd: matches!(b.tp_src as u8, h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT),
            },
            _ => Transport::None,
        }
    }
}

/// The tags of a key, outermost first.
fn tags(key: &FlowKey) -> impl Iterator<Item = VlanTag> {
    let outer = VlanTag { tpid: key.base.vlan_tpid, tci: key.base.vlan_tci };
    [outer, key.arp.vlan1].into_iter().take_while(|tag| tag.is_present())
}

fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, h::ETH_TYPE_VLAN | h::ETH_TYPE_VLAN_8021AD)
}

/// Number of labels in the kernel's view of this key: up to the bottom of the stack, at least one.
fn labels(key: &FlowKey, limits: &KeyLimits) -> usize {
    let stack = &key.arp.mpls_lse[..LABELS_MAX];
    let bottom = stack.iter().position(|lse| lse & BOTTOM != 0);
    let last = bottom.or_else(|| stack.iter().rposition(|lse| *lse != 0)).unwrap_or(0);
    (last + 1).min(usize::from(limits.mpls).max(1))
}

/// Appends an attribute, padded to a multiple of four bytes. Contents are far shorter than 64 KiB.
fn put(out: &mut Vec<u8>, kind: u16, content: &[u8]) {
    out.extend(((HEADER_BYTES + content.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(content);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests;
