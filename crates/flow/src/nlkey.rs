//! Flow keys as netlink attributes (`OVS_KEY_ATTR_*` of linux/openvswitch.h), in the order in which stock switches write them:
//! what tracers and the kernel datapath read.
//!
//! Lengths, types and plain numbers are in the machine's byte order, header fields in the network's. Not written: tunnel options and
//! what has no attribute.

use crate::flow::nw_frag;
use crate::key::{FlowKey, shape};

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
    pub(super) const SCTP: u16 = 17;
    pub(super) const TCP_FLAGS: u16 = 18;
    pub(super) const DP_HASH: u16 = 19;
    pub(super) const RECIRC_ID: u16 = 20;
    pub(super) const MPLS: u16 = 21;
    pub(super) const CT_STATE: u16 = 22;
    pub(super) const CT_ZONE: u16 = 23;
    pub(super) const CT_MARK: u16 = 24;
    /// The content is made of attributes (`NLA_F_NESTED`).
    pub(super) const NESTED: u16 = 0x8000;
}

/// Bytes before an attribute's content.
const HEADER_BYTES: usize = 4;
/// EtherTypes.
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// Below this the field is a length: such frames have no EtherType.
const ETHERTYPE_MIN: u16 = 0x0600;

/// The attributes of a key.
pub fn key_attributes(key: &FlowKey) -> Vec<u8> {
    let b = &key.base;
    let mut out = Vec::with_capacity(192);
    put(&mut out, attr::PRIORITY, &key.arp.skb_priority.to_ne_bytes());
    put(&mut out, attr::SKB_MARK, &b.pkt_mark.to_ne_bytes());
    put(&mut out, attr::CT_STATE, &b.ct_state.to_ne_bytes());
    put(&mut out, attr::CT_ZONE, &b.ct_zone.to_ne_bytes());
    put(&mut out, attr::CT_MARK, &b.ct_mark.to_ne_bytes());
    put(&mut out, attr::RECIRC_ID, &b.recirc_id.to_ne_bytes());
    put(&mut out, attr::DP_HASH, &b.dp_hash.to_ne_bytes());
    put(&mut out, attr::IN_PORT, &b.in_port.to_ne_bytes());
    put(&mut out, attr::ETHERNET, &[b.dl_src, b.dl_dst].concat());
    let second = key.arp.vlan1;
    let tags = [(b.vlan_tpid, b.vlan_tci), (second.tpid, second.tci)];
    vlans(&mut out, &tags, key);
    out
}

/// The tags that are there, each around what it carries, and the rest.
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
    if b.dl_type < ETHERTYPE_MIN {
        return;
    }
    put(out, attr::ETHERTYPE, &b.dl_type.to_be_bytes());
    let frag = match b.nw_frag {
        f if f & nw_frag::LATER != 0 => 2,
        f if f & nw_frag::ANY != 0 => 1,
        _ => 0,
    };
    match b.dl_type {
        IPV4 => {
            let mut ip = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
            ip.extend([b.nw_proto, b.nw_tos, b.nw_ttl, frag]);
            put(out, attr::IPV4, &ip);
            transport(out, key);
        }
        IPV6 => {
            let mut ip = [key.ipv6.src, key.ipv6.dst].concat();
            ip.extend(key.ipv6.label.to_be_bytes());
            ip.extend([b.nw_proto, b.nw_tos, b.nw_ttl, frag]);
            put(out, attr::IPV6, &ip);
            transport(out, key);
        }
        ARP | RARP => {
            let mut arp = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
            arp.extend(u16::from(b.nw_proto).to_be_bytes());
            arp.extend([key.arp.arp_sha, key.arp.arp_tha].concat());
            // As long as the structure is.
            arp.extend([0, 0]);
            put(out, attr::ARP, &arp);
        }
        t if MPLS.contains(&t) => {
            let labels = key.arp.mpls_lse.iter().take_while(|l| **l != 0);
            put(out, attr::MPLS, &labels.flat_map(|l| l.to_be_bytes()).collect::<Vec<u8>>());
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
    // Types and codes take the ports' places.
    let type_and_code = [b.tp_src as u8, b.tp_dst as u8];
    match b.nw_proto {
        1 if b.dl_type == IPV4 => put(out, attr::ICMP, &type_and_code),
        6 => {
            put(out, attr::TCP, &ports);
            put(out, attr::TCP_FLAGS, &b.tcp_flags.to_be_bytes());
        }
        17 => put(out, attr::UDP, &ports),
        58 if b.dl_type == IPV6 => {
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

/// One attribute, filled up to a multiple of four bytes. Contents are far shorter than 64 KiB.
fn put(out: &mut Vec<u8>, kind: u16, content: &[u8]) {
    out.extend(((HEADER_BYTES + content.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(content);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests;
