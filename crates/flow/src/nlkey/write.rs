//! Encodes keys and masks for the kernel datapath.
//!
//! Requirements of the kernel for a key (observed from net/openvswitch/flow_netlink.c): every header
//! announced by EtherType and protocol has its attribute, even if all zero; a tag nests its payload and has
//! the presence bit; a frame without an EtherType has no such attribute. For a mask: only attributes of the
//! key, and those of a header only if the field that announces the header is exact. All-zero attributes of a
//! mask have no effect and are omitted.

use super::nsh::{write_nsh, write_nsh_mask};
use super::tunnel::{write_tunnel, write_tunnel_mask};
use super::{KeyLimits, Payload, Transport, attr, frag_type, is_tag, kernel_mask, labels, tags};
use crate::flow::{VlanTag, nw_frag};
use crate::key::{FlowKey, KeyMask, shape};
use crate::nlattr::AttrWriter;
use crate::nsh::Nsh;
use crate::tunnel::OuterHeaders;
use packet::headers as h;

/// Encodes the key of a new flow, or the metadata of a packet to execute, for the kernel datapath.
pub fn key_to_bytes(key: &FlowKey, limits: &KeyLimits) -> Vec<u8> {
    let mut out = AttrWriter::new();
    Writer { of: key, values: key, is_mask: false, limits }.all(&mut out);
    // Its size is far below the limit of an attribute.
    out.finish().unwrap_or_default()
}

/// Encodes the mask of a new flow for the kernel datapath: [`kernel_mask`] without zeros. Input port,
/// recirculation id, EtherType and the presence and type of VLAN tags are always exact.
pub fn mask_to_bytes(key: &FlowKey, mask: &KeyMask, limits: &KeyLimits) -> Vec<u8> {
    let mask = kernel_mask(key, mask, limits);
    let mut out = AttrWriter::new();
    Writer { of: key, values: &mask, is_mask: true, limits }.all(&mut out);
    out.finish().unwrap_or_default()
}

struct Writer<'a> {
    /// The key, which selects the attributes.
    of: &'a FlowKey,
    /// The encoded values: the key, or its mask.
    values: &'a FlowKey,
    is_mask: bool,
    limits: &'a KeyLimits,
}

impl Writer<'_> {
    fn put(&self, out: &mut AttrWriter, kind: u16, content: &[u8]) {
        if !self.is_mask || content.iter().any(|b| *b != 0) {
            out.put(kind, content);
        }
    }

    fn all(&self, out: &mut AttrWriter) {
        let b = &self.values.base;
        if !(self.is_mask && self.has_excess_tag()) {
            self.put(out, attr::RECIRC_ID, &b.recirc_id.to_ne_bytes());
        }
        self.put(out, attr::DP_HASH, &b.dp_hash.to_ne_bytes());
        self.put(out, attr::PRIORITY, &self.values.arp.skb_priority.to_ne_bytes());
        if self.of.has(shape::TUNNEL) {
            // Also an empty mask: the presence of a tunnel is always matched.
            let outer = |key: &FlowKey| OuterHeaders { tunnel: key.tunnel, options: key.options };
            out.nested(attr::TUNNEL, |out| match self.is_mask {
                true => write_tunnel_mask(out, &outer(self.of), &outer(self.values)),
                false => write_tunnel(out, &outer(self.of)),
            });
        }
        // A key without an input port is that of a packet without one.
        if self.is_mask || b.in_port != u32::MAX {
            self.put(out, attr::IN_PORT, &b.in_port.to_ne_bytes());
        }
        self.put(out, attr::SKB_MARK, &b.pkt_mark.to_ne_bytes());
        self.connection(out);
        if self.of.arp.packet_type == 0 {
            self.put(out, attr::ETHERNET, &[b.dl_src, b.dl_dst].concat());
            let outer = VlanTag { tpid: b.vlan_tpid, tci: b.vlan_tci };
            self.vlans(out, &[outer, self.values.arp.vlan1], tags(self.of).count());
        } else {
            self.ethertype_and_up(out);
        }
    }

    /// Whether the EtherType is that of a tag beyond our limit, but within the kernel's. Such a key has the
    /// tag without its contents, and the mask its presence and type. The kernel ignores an empty mask of a
    /// tag, and requires an exact EtherType in a non-empty one, but accepts other attributes anywhere. So the
    /// recirculation id, which is always matched, goes there.
    fn has_excess_tag(&self) -> bool {
        let tags_held = if self.of.arp.packet_type == 0 { tags(self.of).count() } else { return false };
        tags_held < usize::from(self.limits.vlans) && is_tag(self.of.base.dl_type)
    }

    fn connection(&self, out: &mut AttrWriter) {
        let (b, c) = (&self.values.base, &self.values.ct);
        if self.limits.ct {
            self.put(out, attr::CT_STATE, &b.ct_state.to_ne_bytes());
            self.put(out, attr::CT_ZONE, &b.ct_zone.to_ne_bytes());
            self.put(out, attr::CT_MARK, &b.ct_mark.to_ne_bytes());
        }
        if self.limits.ct_labels {
            self.put(out, attr::CT_LABELS, &u128::from_be_bytes(c.label).to_ne_bytes());
        }
        let ports = [c.tp_src.to_be_bytes(), c.tp_dst.to_be_bytes()].concat();
        if !has_tuple(self.of, self.limits) {
        } else if Payload::of(self.of) == Payload::Ipv4 {
            let addresses = [c.nw_src.to_be_bytes(), c.nw_dst.to_be_bytes()].concat();
            self.put(out, attr::CT_TUPLE_IPV4, &[addresses, ports, vec![c.nw_proto, 0, 0, 0]].concat());
        } else {
            let addresses = [c.ipv6_src, c.ipv6_dst].concat();
            self.put(out, attr::CT_TUPLE_IPV6, &[addresses, ports, vec![c.nw_proto, 0, 0, 0]].concat());
        }
    }

    /// Encodes the present tags, each with its payload nested, and the rest.
    fn vlans(&self, out: &mut AttrWriter, values: &[VlanTag], there: usize) {
        let written = 2 - values.len();
        let (Some((tag, inner)), true) = (values.split_first(), written < usize::from(self.limits.vlans))
        else {
            // A tag beyond the datapath's limit becomes the EtherType.
            return match values.first().filter(|_| there > written) {
                Some(tag) => self.put(out, attr::ETHERTYPE, &tag.tpid.to_be_bytes()),
                None => self.ethertype_and_up(out),
            };
        };
        if there > written {
            self.put(out, attr::ETHERTYPE, &tag.tpid.to_be_bytes());
            self.put(out, attr::VLAN, &tag.tci.to_be_bytes());
            out.nested(attr::ENCAP, |out| self.vlans(out, inner, there));
        } else if self.has_excess_tag() {
            self.put(out, attr::ETHERTYPE, &self.values.base.dl_type.to_be_bytes());
            out.be16(attr::VLAN, VlanTag::PRESENT);
            out.nested(attr::ENCAP, |out| {
                if self.is_mask {
                    self.put(out, attr::RECIRC_ID, &self.values.base.recirc_id.to_ne_bytes());
                }
            });
        } else {
            self.ethertype_and_up(out);
        }
    }

    fn ethertype_and_up(&self, out: &mut AttrWriter) {
        let (b, v6, a) = (&self.values.base, &self.values.ipv6, &self.values.arp);
        let is_typed = self.of.base.dl_type >= h::ETH_TYPE_MIN || self.of.arp.packet_type != 0;
        if is_typed || self.is_mask {
            self.put(out, attr::ETHERTYPE, &b.dl_type.to_be_bytes());
        }
        let frag = match self.is_mask {
            true if b.nw_frag & nw_frag::MASK != 0 => u8::MAX,
            true => 0,
            false => frag_type(b.nw_frag),
        };
        match Payload::of(self.of) {
            Payload::Ipv4 => {
                let addresses = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
                let rest = vec![b.nw_proto, b.nw_tos, b.nw_ttl, frag];
                self.put(out, attr::IPV4, &[addresses, rest].concat());
                self.transport(out);
            }
            Payload::Ipv6 => {
                let addresses = [v6.src, v6.dst].concat();
                let label = (v6.label & 0xf_ffff).to_be_bytes().to_vec();
                let rest = vec![b.nw_proto, b.nw_tos, b.nw_ttl, frag];
                self.put(out, attr::IPV6, &[addresses, label, rest].concat());
                self.transport(out);
            }
            Payload::Arp => {
                let addresses = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()].concat();
                let op = u16::from(b.nw_proto).to_be_bytes().to_vec();
                // Pads to the size of the structure.
                let hardware = [&a.arp_sha[..], &a.arp_tha[..], &[0, 0]].concat();
                self.put(out, attr::ARP, &[addresses, op, hardware].concat());
            }
            Payload::Mpls => {
                let stack = &a.mpls_lse[..labels(self.of, self.limits)];
                self.put(
                    out,
                    attr::MPLS,
                    &stack.iter().flat_map(|lse| lse.to_be_bytes()).collect::<Vec<u8>>(),
                );
            }
            Payload::Nsh => {
                let (of, values) = (self.of.nsh(), self.values.nsh());
                if !self.is_mask {
                    out.nested(attr::NSH, |out| write_nsh(out, &of));
                } else if values != Nsh::default() {
                    out.nested(attr::NSH, |out| write_nsh_mask(out, &of, &values));
                }
            }
            Payload::Other => {}
        }
    }

    fn transport(&self, out: &mut AttrWriter) {
        let (b, v6) = (&self.values.base, &self.values.ipv6);
        let ports = [b.tp_src.to_be_bytes(), b.tp_dst.to_be_bytes()].concat();
        // Types and codes are in the port fields.
        let type_and_code = [b.tp_src as u8, b.tp_dst as u8];
        match Transport::of(self.of) {
            Transport::Tcp => {
                self.put(out, attr::TCP, &ports);
                self.put(out, attr::TCP_FLAGS, &b.tcp_flags.to_be_bytes());
            }
            Transport::Udp => self.put(out, attr::UDP, &ports),
            Transport::Sctp => self.put(out, attr::SCTP, &ports),
            Transport::Icmp => self.put(out, attr::ICMP, &type_and_code),
            Transport::Icmpv6 { nd } => {
                self.put(out, attr::ICMPV6, &type_and_code);
                if nd {
                    let link = [v6.nd_sll, v6.nd_tll].concat();
                    self.put(out, attr::ND, &[&v6.nd_target[..], &link].concat());
                }
            }
            Transport::None => {}
        }
    }
}

/// Whether this packet's original-direction tuple has an attribute: neighbour discovery uses its place in the
/// kernel's keys.
pub(super) fn has_tuple(key: &FlowKey, limits: &KeyLimits) -> bool {
    let is_ip = matches!(Payload::of(key), Payload::Ipv4 | Payload::Ipv6);
    let nd = Transport::of(key) == Transport::Icmpv6 { nd: true };
    limits.ct_tuple && key.ct.nw_proto != 0 && is_ip && !nd
}
