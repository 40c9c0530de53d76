//! Bytes to [`FlowKey`]: one bounded pass over the headers of a frame.
//!
//! A truncated or contradictory header ends the parse: later fields stay zero, as if the packet lacked them,
//! and the frame is forwarded by the parsed ones. Formats: IEEE 802.3, 802.1Q; RFC 826, 791, 8200, 9293, 768,
//! 9260, 792, 4443, 4861, 3032, 8300.

use crate::flow::VlanTag;
use crate::key::{FlowKey, shape};
use crate::nsh::Nsh;
use crate::nw_frag;
use packet::headers::{self as h, array, be16, be32};

/// Maximum number of parsed VLAN tags ([`crate::Flow::vlans`] has room for two).
pub const MAX_VLANS: u8 = 2;
/// Number of MPLS labels kept.
pub const MAX_MPLS_LABELS: usize = 3;
/// Maximum number of IPv6 extension headers skipped; the rest is opaque.
pub const MAX_IPV6_EXT_HEADERS: usize = 32;

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Datapath input port number.
    pub in_port: u32,
    /// Recirculation id, 0 for a packet from a port.
    pub recirc_id: u32,
    /// Packet mark.
    pub pkt_mark: u32,
    /// Packet priority.
    pub skb_priority: u32,
    /// Hash computed by the datapath.
    pub dp_hash: u32,
}

/// Offsets of the headers in a frame; [`Layout::NONE`] if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Header of IP, ARP, MPLS or NSH.
    pub l3: u16,
    /// Transport header.
    pub l4: u16,
}

impl Layout {
    /// No such header.
    pub const NONE: u16 = u16::MAX;
}

/// Parses `frame` into `key` (overwritten). Parses at most `vlan_limit` (0 to [`MAX_VLANS`]) VLAN tags; the
/// EtherType after them may be that of a further tag.
pub fn extract(frame: &[u8], md: &Metadata, vlan_limit: u8, key: &mut FlowKey) -> Layout {
    key.clear();
    let mut layout = Layout { l3: Layout::NONE, l4: Layout::NONE };
    set_metadata(md, key);
    let (Some(dst), Some(src)) = (array(frame, 0), array(frame, 6)) else { return layout };
    key.base.dl_dst = dst;
    key.base.dl_src = src;
    let mut at = parse_vlans(frame, vlan_limit, key);
    let Some(dl_type) = parse_ethertype(frame, &mut at) else {
        key.base.dl_type = h::FLOW_DL_TYPE_NONE;
        return layout;
    };
    key.base.dl_type = dl_type;
    if at > usize::from(u16::MAX) - 64 {
        return layout;
    }
    parse_payload(frame, at, key, &mut layout);
    layout
}

/// As [`extract`], of a packet that begins with the header of its packet type; 0 is Ethernet. A type without an
/// EtherType has no fields.
pub fn extract_typed(
    packet: &[u8],
    packet_type: u32,
    md: &Metadata,
    vlan_limit: u8,
    key: &mut FlowKey,
) -> Layout {
    if packet_type == 0 {
        return extract(packet, md, vlan_limit, key);
    }
    key.clear();
    let mut layout = Layout { l3: Layout::NONE, l4: Layout::NONE };
    set_metadata(md, key);
    key.arp.packet_type = packet_type;
    key.base.shape |= shape::ARP;
    if packet_type >> 16 == 1 {
        key.base.dl_type = packet_type as u16;
        parse_payload(packet, 0, key, &mut layout);
    }
    layout
}

fn set_metadata(md: &Metadata, key: &mut FlowKey) {
    key.base.in_port = md.in_port;
    key.base.recirc_id = md.recirc_id;
    key.base.pkt_mark = md.pkt_mark;
    key.base.dp_hash = md.dp_hash;
    if md.skb_priority != 0 {
        key.arp.skb_priority = md.skb_priority;
        key.base.shape |= shape::ARP;
    }
}

/// Parses the header of the key's EtherType.
fn parse_payload(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    match key.base.dl_type {
        h::ETH_TYPE_IP => parse_ipv4(frame, at, key, layout),
        h::ETH_TYPE_IPV6 => parse_ipv6(frame, at, key, layout),
        h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => parse_arp(frame, at, key, layout),
        h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => parse_mpls(frame, at, key, layout),
        h::ETH_TYPE_NSH => parse_nsh(frame, at, key, layout),
        _ => layout.l3 = at as u16,
    }
}

fn is_vlan(eth_type: u16) -> bool {
    eth_type == h::ETH_TYPE_VLAN || eth_type == h::ETH_TYPE_VLAN_8021AD
}

/// Parses the tags; returns the offset of the EtherType after them.
fn parse_vlans(frame: &[u8], vlan_limit: u8, key: &mut FlowKey) -> usize {
    let mut at = 12;
    for n in 0..vlan_limit.min(MAX_VLANS) {
        let (Some(tpid), Some(tci)) = (be16(frame, at), be16(frame, at + 2)) else { break };
        // An EtherType must follow a tag.
        if !is_vlan(tpid) || frame.len() < at + h::VLAN_TAG_BYTES + 2 {
            break;
        }
        let tag = VlanTag { tpid, tci: tci | VlanTag::PRESENT };
        if n == 0 {
            key.base.vlan_tpid = tag.tpid;
            key.base.vlan_tci = tag.tci;
        } else {
            key.arp.vlan1 = tag;
            key.base.shape |= shape::ARP;
        }
        at += h::VLAN_TAG_BYTES;
    }
    at
}

/// Reads the EtherType at `*at` and advances `*at`; of an 802.3 frame the one of its LLC/SNAP header. `None`:
/// none present.
fn parse_ethertype(frame: &[u8], at: &mut usize) -> Option<u16> {
    let t = be16(frame, *at)?;
    *at += 2;
    if t >= h::ETH_TYPE_MIN {
        return Some(t);
    }
    let snap: [u8; 8] = array(frame, *at)?;
    if snap[..6] != [0xaa, 0xaa, 0x03, 0, 0, 0] {
        return None;
    }
    let t = u16::from_be_bytes([snap[6], snap[7]]);
    (t >= h::ETH_TYPE_MIN).then(|| {
        *at += 8;
        t
    })
}

fn parse_arp(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    key.base.shape |= shape::ARP;
    layout.l3 = at as u16;
    let Some(arp) = array::<{ h::ARP_ETH_BYTES }>(frame, at) else { return };
    // Ethernet (1), IPv4, 6-byte and 4-byte addresses.
    if arp[..6] != [0, 1, 0x08, 0, 6, 4] {
        return;
    }
    if arp[6] == 0 {
        key.base.nw_proto = arp[7];
    }
    key.arp.arp_sha.copy_from_slice(&arp[8..14]);
    key.arp.arp_tha.copy_from_slice(&arp[18..24]);
    key.base.nw_src = u32::from_be_bytes([arp[14], arp[15], arp[16], arp[17]]);
    key.base.nw_dst = u32::from_be_bytes([arp[24], arp[25], arp[26], arp[27]]);
}

fn parse_mpls(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    key.base.shape |= shape::ARP;
    layout.l3 = at as u16;
    for n in 0..MAX_MPLS_LABELS {
        let Some(lse) = be32(frame, at + 4 * n) else { return };
        key.arp.mpls_lse[n] = lse;
        if lse & 0x100 != 0 {
            return;
        }
    }
}

fn parse_nsh(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    key.base.shape |= shape::ARP;
    layout.l3 = at as u16;
    if let Some(nsh) = frame.get(at..).and_then(Nsh::parse) {
        key.set_nsh(&nsh);
    }
}

fn parse_ipv4(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    let Some(ip) = array::<{ h::IPV4_HEADER_BYTES }>(frame, at) else { return };
    let header_bytes = usize::from(ip[0] & 0xf) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let there = frame.len() - at;
    // The EtherType selects the version; OVS and Linux ignore the version in the header.
    if header_bytes < h::IPV4_HEADER_BYTES || header_bytes > there {
        return;
    }
    let Some(payload_end) = end_of_payload(total_bytes, header_bytes, there) else { return };
    layout.l3 = at as u16;
    let b = &mut key.base;
    b.nw_tos = ip[1];
    b.nw_ttl = ip[8];
    b.nw_proto = ip[9];
    b.nw_src = u32::from_be_bytes([ip[12], ip[13], ip[14], ip[15]]);
    b.nw_dst = u32::from_be_bytes([ip[16], ip[17], ip[18], ip[19]]);
    let frag = u16::from_be_bytes([ip[6], ip[7]]);
    if frag & 0x3fff != 0 {
        b.nw_frag = nw_frag::ANY;
        if frag & 0x1fff != 0 {
            b.nw_frag |= nw_frag::LATER;
            return;
        }
    }
    parse_l4(&frame[..at + payload_end], at + header_bytes, key, layout);
}

/// Bytes of header and payload by the header's length field, of `there` bytes; `None`: they contradict each
/// other. The field is 0 in a segment too large for it.
fn end_of_payload(field_bytes: usize, header_bytes: usize, there: usize) -> Option<usize> {
    match field_bytes {
        0 if there > usize::from(u16::MAX) => Some(there),
        _ => (header_bytes..=there).contains(&field_bytes).then_some(field_bytes),
    }
}

fn parse_ipv6(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    key.base.shape |= shape::IPV6;
    let Some(ip) = array::<{ h::IPV6_HEADER_BYTES }>(frame, at) else { return };
    let payload_bytes = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let Some(payload_end) = end_of_payload(payload_bytes, 0, frame.len() - at - h::IPV6_HEADER_BYTES) else {
        return;
    };
    layout.l3 = at as u16;
    key.ipv6.src.copy_from_slice(&ip[8..24]);
    key.ipv6.dst.copy_from_slice(&ip[24..40]);
    let frame = &frame[..at + h::IPV6_HEADER_BYTES + payload_end];
    let walked = walk_ipv6_extensions(frame, at + h::IPV6_HEADER_BYTES, ip[6]);
    // Unparsable extension headers leave the addresses valid.
    let Some((proto, l4, frag)) = walked else { return };
    let first = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
    key.base.nw_tos = (first >> 20) as u8;
    key.ipv6.label = first & 0xf_ffff;
    key.base.nw_ttl = ip[7];
    key.base.nw_proto = proto;
    key.base.nw_frag = frag;
    if frag & nw_frag::LATER == 0 {
        parse_l4(frame, l4, key, layout);
    }
}

/// Skips extension headers; returns the next protocol, its offset and the fragment bits. `None`: truncated or
/// too many.
fn walk_ipv6_extensions(frame: &[u8], mut at: usize, mut next: u8) -> Option<(u8, usize, u8)> {
    let mut frag = 0;
    for _ in 0..MAX_IPV6_EXT_HEADERS {
        if !h::is_ipv6_extension(next) {
            return (at <= frame.len() && at < usize::from(u16::MAX)).then_some((next, at, frag));
        }
        let (kind, header) = (next, at);
        (next, at) = h::ipv6_next_header(frame, header, kind)?;
        if kind == h::IPPROTO_FRAGMENT {
            let header: [u8; 8] = array(frame, header)?;
            let offset = u16::from_be_bytes([header[2], header[3]]);
            if offset & 0xfff9 != 0 {
                frag = nw_frag::ANY;
                if offset & 0xfff8 != 0 {
                    // No header follows, so the packet's protocol is unknown.
                    return Some((h::IPPROTO_FRAGMENT, at, frag | nw_frag::LATER));
                }
            }
        }
    }
    None
}

fn parse_l4(frame: &[u8], at: usize, key: &mut FlowKey, layout: &mut Layout) {
    let Some(l4) = frame.get(at..) else { return };
    let min_bytes = match key.base.nw_proto {
        h::IPPROTO_TCP => h::TCP_HEADER_BYTES,
        h::IPPROTO_UDP => h::UDP_HEADER_BYTES,
        h::IPPROTO_SCTP => h::SCTP_HEADER_BYTES,
        h::IPPROTO_ICMP | h::IPPROTO_IGMP | h::IPPROTO_ICMPV6 => h::ICMP_HEADER_BYTES,
        _ => 0,
    };
    if l4.len() < min_bytes || at >= usize::from(u16::MAX) {
        return;
    }
    // Options that exceed the packet, or a too small data offset, invalidate the header.
    if key.base.nw_proto == h::IPPROTO_TCP
        && !(h::TCP_HEADER_BYTES..=l4.len()).contains(&(usize::from(l4[12] >> 4) * 4))
    {
        return;
    }
    layout.l4 = at as u16;
    let v4 = key.base.dl_type == h::ETH_TYPE_IP;
    let b = &mut key.base;
    match b.nw_proto {
        h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP => {
            b.tp_src = u16::from_be_bytes([l4[0], l4[1]]);
            b.tp_dst = u16::from_be_bytes([l4[2], l4[3]]);
            if b.nw_proto == h::IPPROTO_TCP {
                b.tcp_flags = u16::from_be_bytes([l4[12], l4[13]]) & 0xfff;
            }
        }
        h::IPPROTO_ICMP if v4 => {
            b.tp_src = l4[0].into();
            b.tp_dst = l4[1].into();
        }
        h::IPPROTO_IGMP if v4 => {
            b.tp_src = l4[0].into();
            b.tp_dst = l4[1].into();
            key.arp.igmp_group = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]);
            if key.arp.igmp_group != 0 {
                b.shape |= shape::ARP;
            }
        }
        h::IPPROTO_ICMPV6 if !v4 => {
            b.tp_src = l4[0].into();
            b.tp_dst = l4[1].into();
            parse_nd(l4, key);
        }
        _ => {}
    }
}

/// Ambiguous or truncated messages keep the reserved bytes and the type of the option.
fn parse_nd(icmp: &[u8], key: &mut FlowKey) {
    let is_nd = matches!(icmp[0], h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT) && icmp[1] == 0;
    if !is_nd {
        return;
    }
    key.arp.igmp_group = u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]);
    if key.arp.igmp_group != 0 {
        key.base.shape |= shape::ARP;
    }
    let Some(target) = array(icmp, 8) else { return };
    let (mut sll, mut tll) = ([0; 6], [0; 6]);
    let mut options = &icmp[24..];
    while options.len() >= 8 {
        let bytes = usize::from(options[1]) * 8;
        // An option with an invalid length ends the list; earlier ones count.
        if bytes == 0 || bytes > options.len() {
            break;
        }
        let mac: [u8; 6] = [options[2], options[3], options[4], options[5], options[6], options[7]];
        match (options[0], bytes) {
            (h::ND_OPT_SOURCE_LINKADDR, 8) if sll == [0; 6] => sll = mac,
            (h::ND_OPT_TARGET_LINKADDR, 8) if tll == [0; 6] => tll = mac,
            // A repeated address makes the message ambiguous: ignore all its fields.
            (h::ND_OPT_SOURCE_LINKADDR | h::ND_OPT_TARGET_LINKADDR, 8) => return,
            _ => {}
        }
        let is_address = matches!(options[0], h::ND_OPT_SOURCE_LINKADDR | h::ND_OPT_TARGET_LINKADDR);
        if is_address && bytes == 8 && key.base.tcp_flags == 0 {
            key.base.tcp_flags = options[0].into();
        }
        options = &options[bytes..];
    }
    key.ipv6.nd_target = target;
    key.ipv6.nd_sll = sll;
    key.ipv6.nd_tll = tll;
}
