//! Bytes to [`FlowKey`] for the common packet: Ethernet with at most one parsed VLAN tag, IPv4 without
//! options or IPv6 without extension headers, no fragment, TCP or UDP. Reads first and decides once at the
//! end, so mixed traffic causes few mispredictions.
//!
//! For accepted frames the result equals that of [`crate::extract::extract`], the oracle of its tests and the
//! fallback for all others. A rejected frame leaves the key untouched.

use crate::extract::{Layout, Metadata};
use crate::flow::VlanTag;
use crate::key::{BaseBlock, FlowKey, Ipv6Block, shape};
use packet::HEAD_BYTES;
use packet::headers as h;
use simd::{Lanes, Permutation};
use std::mem::offset_of;
use zerocopy::FromZeros;

/// Bytes read by the template, from the EtherType on.
const TAIL_BYTES: usize = HEAD_BYTES - 12 - h::VLAN_TAG_BYTES;

/// Offset of the IP header after the EtherType.
const IP: usize = 2;

/// Fields of the IP header.
struct Ip {
    src: u32,
    dst: u32,
    proto: u8,
    tos: u8,
    ttl: u8,
    /// Bytes of IP header and payload.
    total_bytes: usize,
    /// Bytes of the header.
    header_bytes: usize,
    shape: u16,
    ok: bool,
}

#[inline(always)]
fn u16_at(b: &[u8; TAIL_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline(always)]
fn u32_at(b: &[u8; TAIL_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline(always)]
fn ipv4(b: &[u8; TAIL_BYTES]) -> Ip {
    Ip {
        src: u32_at(b, IP + 12),
        dst: u32_at(b, IP + 16),
        proto: b[IP + 9],
        tos: b[IP + 1],
        ttl: b[IP + 8],
        total_bytes: usize::from(u16_at(b, IP + 2)),
        header_bytes: h::IPV4_HEADER_BYTES,
        shape: 0,
        ok: (b[IP] == 0x45) & (u16_at(b, IP + 6) & 0x3fff == 0),
    }
}

#[inline(always)]
fn ipv6(b: &[u8; TAIL_BYTES]) -> Ip {
    Ip {
        src: 0,
        dst: 0,
        proto: b[IP + 6],
        tos: (u16_at(b, IP) >> 4) as u8,
        ttl: b[IP + 7],
        total_bytes: usize::from(u16_at(b, IP + 4)) + h::IPV6_HEADER_BYTES,
        header_bytes: h::IPV6_HEADER_BYTES,
        shape: shape::IPV6,
        ok: b[IP] >> 4 == 6,
    }
}

/// Bytes of the transport header at `l4`, options included, and whether they are valid.
#[inline(always)]
fn l4_header(tail: &[u8; TAIL_BYTES], l4: usize, tcp: bool) -> (usize, bool) {
    let tcp_bytes = usize::from(tail[l4 + 12] >> 4) * 4;
    (if tcp { tcp_bytes } else { h::UDP_HEADER_BYTES }, !tcp | (tcp_bytes >= h::TCP_HEADER_BYTES))
}

/// Parses the frame of `frame_bytes` that starts at `head` into `key` (overwritten) if it is a common one.
/// Bytes of `head` after the frame are arbitrary.
#[inline(always)]
pub fn extract_common(
    head: &[u8; HEAD_BYTES],
    frame_bytes: usize,
    md: &Metadata,
    vlan_limit: u8,
    key: &mut FlowKey,
) -> Option<Layout> {
    let tpid = u16::from_be_bytes([head[12], head[13]]);
    let tagged = ((tpid == h::ETH_TYPE_VLAN) | (tpid == h::ETH_TYPE_VLAN_8021AD)) & (vlan_limit != 0);
    let l3 = h::ETH_HEADER_BYTES + if tagged { h::VLAN_TAG_BYTES } else { 0 };
    let tail: &[u8; TAIL_BYTES] = head[l3 - 2..].first_chunk()?;
    let dl_type = u16_at(tail, 0);
    let ip = match dl_type {
        h::ETH_TYPE_IP => ipv4(tail),
        h::ETH_TYPE_IPV6 => ipv6(tail),
        _ => return None,
    };
    let tcp = ip.proto == h::IPPROTO_TCP;
    let l4 = IP + ip.header_bytes;
    let (l4_bytes, l4_ok) = l4_header(tail, l4, tcp);
    let ok = ip.ok
        & l4_ok
        & (tcp | (ip.proto == h::IPPROTO_UDP))
        & (ip.total_bytes >= ip.header_bytes + l4_bytes)
        & (l3 + ip.total_bytes <= frame_bytes)
        & (md.skb_priority == 0);
    if !ok {
        return None;
    }
    // Writes the shape's block whole.
    if key.base.shape & !ip.shape != 0 {
        clear_extensions(key);
    }
    let tag = if tagged { u16::MAX } else { 0 };
    let flags = if tcp { u16_at(tail, l4 + 12) & 0xfff } else { 0 };
    let ports = u32_at(tail, l4);
    let b = &mut key.base;
    b.in_port = md.in_port;
    b.recirc_id = md.recirc_id;
    b.dl_dst = *head[..6].first_chunk()?;
    b.dl_src = *head[6..].first_chunk()?;
    b.dl_type = dl_type;
    b.vlan_tpid = tpid & tag;
    b.vlan_tci = (u16::from_be_bytes([head[14], head[15]]) | VlanTag::PRESENT) & tag;
    b.shape = ip.shape;
    b.nw_src = ip.src;
    b.nw_dst = ip.dst;
    b.nw_proto = ip.proto;
    b.nw_tos = ip.tos;
    b.nw_ttl = ip.ttl;
    b.nw_frag = 0;
    b.tp_src = (ports >> 16) as u16;
    b.tp_dst = ports as u16;
    b.tcp_flags = flags;
    b.ct_zone = 0;
    b.ct_state = 0;
    b.ct_mark = 0;
    b.pkt_mark = md.pkt_mark;
    b.dp_hash = md.dp_hash;
    if ip.shape != 0 {
        key.ipv6 = Ipv6Block {
            src: *tail[IP + 8..].first_chunk()?,
            dst: *tail[IP + 24..].first_chunk()?,
            nd_target: [0; 16],
            nd_sll: [0; 6],
            nd_tll: [0; 6],
            label: u32_at(tail, IP) & 0xf_ffff,
        };
    }
    Some(Layout { l3: l3 as u16, l4: (l3 + ip.header_bytes) as u16 })
}

/// Parser of common frames of a burst: where the processor permutes bytes, one permutation moves header bytes into the key.
/// Equals [`extract_common`], to which it leaves IPv6.
pub struct Common<'a> {
    md: &'a Metadata,
    vlan_limit: u8,
    /// Bits that do not come from the frame, without a tag and with one.
    constant: [[u64; 8]; 2],
}

/// Permutations of the headers of one shape to a [`BaseBlock`], whose integers are little-endian. With a tag or without, TCP
/// or UDP: bit 0 is TCP, bit 1 a tag.
static PLACES: [Permutation; 4] = [places(0, false), places(0, true), places(4, false), places(4, true)];

const fn places(tag_bytes: usize, tcp: bool) -> Permutation {
    let (mut from, mut keep) = ([0u8; 64], [0u8; 64]);
    // Field of the block, field of the frame, bytes, in order or reversed.
    let (ip, l4) = (14 + tag_bytes, 34 + tag_bytes);
    let fields = [
        (offset_of!(BaseBlock, dl_dst), 0, 6, false),
        (offset_of!(BaseBlock, dl_src), 6, 6, false),
        (offset_of!(BaseBlock, dl_type), 12 + tag_bytes, 2, true),
        (offset_of!(BaseBlock, nw_tos), ip + 1, 1, false),
        (offset_of!(BaseBlock, nw_ttl), ip + 8, 1, false),
        (offset_of!(BaseBlock, nw_proto), ip + 9, 1, false),
        (offset_of!(BaseBlock, nw_src), ip + 12, 4, true),
        (offset_of!(BaseBlock, nw_dst), ip + 16, 4, true),
        (offset_of!(BaseBlock, tp_src), l4, 2, true),
        (offset_of!(BaseBlock, tp_dst), l4 + 2, 2, true),
        (offset_of!(BaseBlock, tcp_flags), l4 + 12, if tcp { 2 } else { 0 }, true),
        (offset_of!(BaseBlock, vlan_tpid), 12, if tag_bytes != 0 { 2 } else { 0 }, true),
        (offset_of!(BaseBlock, vlan_tci), 14, if tag_bytes != 0 { 2 } else { 0 }, true),
    ];
    let mut f = 0;
    while f < fields.len() {
        let (to, at, bytes, reversed) = fields[f];
        let mut i = 0;
        while i < bytes {
            from[to + i] = (if reversed { at + bytes - 1 - i } else { at + i }) as u8;
            keep[to + i] = 0xff;
            i += 1;
        }
        f += 1;
    }
    keep[offset_of!(BaseBlock, tcp_flags) + 1] &= 0x0f;
    Permutation::new(from, words(keep))
}

const fn words(bytes: [u8; 64]) -> [u64; 8] {
    let mut words = [0; 8];
    let mut i = 0;
    while i < 64 {
        words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
        i += 1;
    }
    words
}

impl<'a> Common<'a> {
    /// Prepares parsing of frames with this metadata.
    pub fn new(md: &'a Metadata, vlan_limit: u8) -> Common<'a> {
        let mut block = BaseBlock::new_zeroed();
        block.in_port = md.in_port;
        block.recirc_id = md.recirc_id;
        block.pkt_mark = md.pkt_mark;
        block.dp_hash = md.dp_hash;
        let tagged = BaseBlock { vlan_tci: VlanTag::PRESENT, ..block };
        Common { md, vlan_limit, constant: [block, tagged].map(|block| zerocopy::transmute!(block)) }
    }

    /// See [`extract_common`].
    #[inline(always)]
    pub fn extract<L: Lanes>(
        &self,
        head: &[u8; HEAD_BYTES],
        frame_bytes: usize,
        key: &mut FlowKey,
        lanes: L,
    ) -> Option<Layout> {
        if !L::PERMUTES {
            return extract_common(head, frame_bytes, self.md, self.vlan_limit, key);
        }
        let tpid = u16::from_be_bytes([head[12], head[13]]);
        let tagged =
            ((tpid == h::ETH_TYPE_VLAN) | (tpid == h::ETH_TYPE_VLAN_8021AD)) & (self.vlan_limit != 0);
        let l3 = h::ETH_HEADER_BYTES + if tagged { h::VLAN_TAG_BYTES } else { 0 };
        let tail: &[u8; TAIL_BYTES] = head[l3 - 2..].first_chunk()?;
        let proto = tail[IP + 9];
        let tcp = proto == h::IPPROTO_TCP;
        let (l4_bytes, l4_ok) = l4_header(tail, IP + h::IPV4_HEADER_BYTES, tcp);
        let ip_bytes = usize::from(u16_at(tail, IP + 2));
        let ok = (u16_at(tail, 0) == h::ETH_TYPE_IP)
            & l4_ok
            & (tail[IP] == 0x45)
            & (u16_at(tail, IP + 6) & 0x3fff == 0)
            & (tcp | (proto == h::IPPROTO_UDP))
            & (ip_bytes >= h::IPV4_HEADER_BYTES + l4_bytes)
            & (l3 + ip_bytes <= frame_bytes)
            & (self.md.skb_priority == 0)
            & cfg!(target_endian = "little");
        if !ok {
            return extract_common(head, frame_bytes, self.md, self.vlan_limit, key);
        }
        if key.base.shape != 0 {
            clear_extensions(key);
        }
        let places = &PLACES[usize::from(tagged) * 2 + usize::from(tcp)];
        let constant = &self.constant[usize::from(tagged)];
        lanes.permute(head.first_chunk()?, places, constant, key.block_mut(0));
        Some(Layout { l3: l3 as u16, l4: (l3 + h::IPV4_HEADER_BYTES) as u16 })
    }
}

/// Clears the key's extension blocks.
#[cold]
fn clear_extensions(key: &mut FlowKey) {
    for i in key.extension_blocks() {
        *key.block_mut(i) = [0; 8];
    }
}

#[cfg(test)]
mod tests;
