//! The kernel's form of a mask, and whether it suffices.

use super::tunnel::{kernel_tunnel_mask, tunnel_mask_fits};
use super::write::has_tuple;
use super::{BOTTOM, CT_STATE_BITS, KeyLimits, Payload, Transport, labels, tags};
use crate::flow::{TcpFlags, VlanTag, nw_frag};
use crate::key::{FlowKey, KeyMask, shape};
use packet::headers as h;

/// The mask that the kernel will hold for `mask` from [`mask_to_bytes`](super::mask_to_bytes): never wider
/// than `mask` in fields of the kernel. It may be narrower, since the kernel accepts ports only with an exact
/// protocol, neighbour discovery only with an exact ICMPv6 type, and fragment bits only as a whole. If the
/// packet lacks a header in `mask`, the field that shows its absence becomes exact.
pub fn kernel_mask(key: &FlowKey, mask: &KeyMask, limits: &KeyLimits) -> KeyMask {
    let mask = &of_blocks(key, mask);
    let mut out = KeyMask::default();
    metadata(key, mask, limits, &mut out);
    match Payload::of(key) {
        Payload::Ipv4 => {
            (out.base.nw_src, out.base.nw_dst) = (mask.base.nw_src, mask.base.nw_dst);
            internet(key, mask, &mut out);
        }
        Payload::Ipv6 => {
            (out.ipv6.src, out.ipv6.dst) = (mask.ipv6.src, mask.ipv6.dst);
            out.ipv6.label = mask.ipv6.label & 0xf_ffff;
            internet(key, mask, &mut out);
        }
        Payload::Arp => {
            (out.base.nw_src, out.base.nw_dst) = (mask.base.nw_src, mask.base.nw_dst);
            out.base.nw_proto = mask.base.nw_proto;
            (out.arp.arp_sha, out.arp.arp_tha) = (mask.arp.arp_sha, mask.arp.arp_tha);
        }
        Payload::Mpls => {
            let (held, rest) = mask.arp.mpls_lse.split_at(labels(key, limits));
            out.arp.mpls_lse[..held.len()].copy_from_slice(held);
            if rest.iter().any(|m| *m != 0) {
                out.arp.mpls_lse[held.len() - 1] |= BOTTOM;
            }
        }
        Payload::Nsh => {
            let mut nsh = mask.nsh();
            if key.nsh().mdtype == h::NSH_MD_TYPE1 {
                // The contexts are those of this type only.
                nsh.mdtype |= if nsh.context == [0; 4] { 0 } else { u8::MAX };
            } else {
                nsh.context = [0; 4];
            }
            out.set_nsh(&nsh);
        }
        Payload::Other => {}
    }
    out = of_blocks(key, &out);
    out.base.shape = u16::MAX;
    out
}

/// Clears blocks that the key lacks.
pub(super) fn of_blocks(key: &FlowKey, mask: &KeyMask) -> KeyMask {
    let mut out = *mask;
    for n in 0..shape::COUNT {
        if key.base.shape >> n & 1 == 0 {
            *out.block_mut(n + 1) = [0; 8];
        }
    }
    out
}

fn metadata(key: &FlowKey, mask: &KeyMask, limits: &KeyLimits, out: &mut KeyMask) {
    let (b, m) = (&mut out.base, &mask.base);
    (b.in_port, b.recirc_id, b.dl_type) = (u32::MAX, u32::MAX, u16::MAX);
    (b.pkt_mark, b.dp_hash) = (m.pkt_mark, m.dp_hash);
    out.arp.skb_priority = mask.arp.skb_priority;
    out.arp.packet_type = u32::MAX;
    if key.arp.packet_type == 0 {
        (b.dl_src, b.dl_dst) = (m.dl_src, m.dl_dst);
    }
    let there = if key.arp.packet_type == 0 { tags(key).count() } else { 0 };
    let exact = |has: bool, tci: u16| VlanTag {
        tpid: u16::MAX,
        tci: if has { tci | VlanTag::PRESENT } else { u16::MAX },
    };
    let outer = exact(there > 0, m.vlan_tci);
    (b.vlan_tpid, b.vlan_tci) = (outer.tpid, outer.tci);
    // A second tag unknown to the datapath: only its type.
    let second = if limits.vlans > 1 { mask.arp.vlan1.tci } else { 0 };
    out.arp.vlan1 = exact(there > 1, second);
    if key.has(shape::TUNNEL) {
        out.tunnel = kernel_tunnel_mask(&key.tunnel, &mask.tunnel);
        out.options = mask.options;
    }
    if limits.ct {
        (b.ct_state, b.ct_zone, b.ct_mark) = (m.ct_state & CT_STATE_BITS, m.ct_zone, m.ct_mark);
    }
    if limits.ct_labels {
        out.ct.label = mask.ct.label;
    }
    if has_tuple(key, limits) {
        let (c, m) = (&mut out.ct, &mask.ct);
        (c.nw_proto, c.tp_src, c.tp_dst) = (m.nw_proto, m.tp_src, m.tp_dst);
        if Payload::of(key) == Payload::Ipv4 {
            (c.nw_src, c.nw_dst) = (m.nw_src, m.nw_dst);
        } else {
            (c.ipv6_src, c.ipv6_dst) = (m.ipv6_src, m.ipv6_dst);
        }
    }
}

/// Fields common to IPv4 and IPv6, and the transport header.
fn internet(key: &FlowKey, mask: &KeyMask, out: &mut KeyMask) {
    let (b, m) = (&mut out.base, &mask.base);
    (b.nw_proto, b.nw_tos, b.nw_ttl) = (m.nw_proto, m.nw_tos, m.nw_ttl);
    let v6 = &mask.ipv6;
    let nd = Payload::of(key) == Payload::Ipv6
        && (v6.nd_target != [0; 16] || v6.nd_sll != [0; 6] || v6.nd_tll != [0; 6]);
    let behind = nd || m.tp_src | m.tp_dst | m.tcp_flags != 0 || mask.arp.igmp_group != 0;
    if behind {
        b.nw_proto = u8::MAX;
    }
    if m.nw_frag & nw_frag::MASK != 0 || behind && key.base.nw_frag & nw_frag::LATER != 0 {
        b.nw_frag = nw_frag::MASK;
    }
    match Transport::of(key) {
        Transport::Tcp => {
            (b.tp_src, b.tp_dst, b.tcp_flags) = (m.tp_src, m.tp_dst, m.tcp_flags & TcpFlags::MASK);
        }
        Transport::Udp | Transport::Sctp => (b.tp_src, b.tp_dst) = (m.tp_src, m.tp_dst),
        Transport::Icmp => (b.tp_src, b.tp_dst) = (m.tp_src & 0xff, m.tp_dst & 0xff),
        Transport::Icmpv6 { nd: is_nd } => {
            (b.tp_src, b.tp_dst) = (m.tp_src & 0xff, m.tp_dst & 0xff);
            if nd {
                b.tp_src = 0xff;
            }
            if is_nd {
                (out.ipv6.nd_target, out.ipv6.nd_sll, out.ipv6.nd_tll) = (v6.nd_target, v6.nd_sll, v6.nd_tll);
            }
        }
        Transport::None => {}
    }
}

/// Whether the kernel's keys can express the mask. If not (IGMP, fields beyond the limits), a flow with this
/// mask would be too wide: its packets must take the slow path one by one.
pub fn mask_fits(key: &FlowKey, mask: &KeyMask, limits: &KeyLimits) -> bool {
    let mask = &of_blocks(key, mask);
    let (b, c) = (&mask.base, &mask.ct);
    let tunnel = tunnel_mask_fits(&key.tunnel, &mask.tunnel);
    let second_tag = limits.vlans < 2 && tags(key).count() > 1 && mask.arp.vlan1.tci & !VlanTag::PRESENT != 0;
    let is_igmp = Payload::of(key) == Payload::Ipv4
        && key.base.nw_proto == h::IPPROTO_IGMP
        && key.base.nw_frag & nw_frag::LATER == 0;
    let igmp = is_igmp && (b.tp_src | b.tp_dst != 0 || mask.arp.igmp_group != 0);
    let state = !limits.ct && (b.ct_state & CT_STATE_BITS != 0 || b.ct_zone != 0 || b.ct_mark != 0);
    let label = !limits.ct_labels && c.label != [0; 16];
    let tuple = !has_tuple(key, limits)
        && (c.nw_proto != 0
            || c.tp_src | c.tp_dst != 0
            || c.nw_src | c.nw_dst != 0
            || c.ipv6_src != [0; 16]
            || c.ipv6_dst != [0; 16]);
    let held = labels(key, limits);
    let stack = Payload::of(key) == Payload::Mpls
        && key.arp.mpls_lse[held - 1] & BOTTOM == 0
        && mask.arp.mpls_lse[held..].iter().any(|m| *m != 0);
    tunnel && !(second_tag || igmp || state || label || tuple || stack)
}
