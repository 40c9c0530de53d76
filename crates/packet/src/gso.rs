//! Software offloads: completes a checksum, splits a large segment into frames of wire size. For ports whose
//! device supports neither, and for code that needs the final bytes.
//!
//! The frames equal those of Linux and hardware segmentation (RFC 9293 for TCP, RFC 768 for UDP): headers
//! copied, IPv4 identification incremented, lengths and sequence numbers set, PSH and FIN on the last segment
//! only, CWR on the first only (RFC 3168 §6.1.2), checksums complete. VLAN tags, network service headers, labels, IPv4
//! options and IPv6 extension headers stay in place.
//!
//! A large segment inside a UDP tunnel is split likewise: each frame gets the outer headers with its own lengths, IPv4
//! identification (counted from that of the large segment) and UDP checksum, unless that is 0. Offload metadata from a
//! kernel do not mention the tunnel; its headers are recognised by the start of the inner checksum.
//!
//! Callable from any thread; stateless.

use crate::batch::PacketBatch;
use crate::checksum;
use crate::headers::*;
use crate::offload::{GsoKind, Offload};
use crate::pool::{Packet, PacketPool};

/// Maximum segments of one frame: a full frame in segments of 32 bytes. A smaller segment size in a long
/// frame would turn one frame into a flood.
pub const MAX_SEGMENTS: usize = 2048;

pub(crate) const TCP_FIN: u8 = 0x01;
pub(crate) const TCP_PSH: u8 = 0x08;
pub(crate) const TCP_CWR: u8 = 0x80;
const SCTP_CSUM_OFFSET: u16 = 8;
const MPLS_LABEL_BYTES: usize = 4;
/// Bottom of the stack, in a label.
const MPLS_BOTTOM: u32 = 0x100;
/// Least offset of layer 4 in a UDP tunnel: two Ethernet and IPv4 headers, UDP, and eight bytes of the tunnel.
const LEAST_INNER_L4: usize = 2 * (ETH_HEADER_BYTES + IPV4_HEADER_BYTES) + UDP_HEADER_BYTES + 8;

/// Reason for not segmenting a large segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The frame is not a large segment, or its segment size is 0.
    NotLarge,
    /// The headers are truncated, contradict the kind of segmentation, or are not Ethernet with IPv4 or IPv6.
    Headers,
    /// More than [`MAX_SEGMENTS`] segments.
    TooMany,
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SegmentError::NotLarge => "not a large segment",
            SegmentError::Headers => "headers do not fit the kind of segmentation",
            SegmentError::TooMany => "too many segments",
        })
    }
}

impl std::error::Error for SegmentError {}

/// Stores the layer-4 checksum requested by `offload.needs_csum`: the Internet checksum, or CRC32c for SCTP
/// (RFC 9260 §6.8). Then marks the checksum as verified. Does nothing without `needs_csum`; with offsets
/// outside the frame only clears the request. Use [`segment`] for a large segment.
pub fn complete_checksum(p: &mut Packet) {
    let o = p.offload;
    if !o.needs_csum {
        return;
    }
    p.offload.needs_csum = false;
    let start = usize::from(o.csum_start);
    let at = start + usize::from(o.csum_offset);
    if at + 2 > p.len() {
        return;
    }
    let sctp = o.csum_offset == SCTP_CSUM_OFFSET
        && IpHeaders::parse(p.data(), 0).is_some_and(|h| h.proto == IPPROTO_SCTP && h.l4 == start);
    let frame = p.data_mut();
    if sctp && at + 4 <= frame.len() {
        frame[at..at + 4].fill(0);
        let crc = crc32c(&frame[start..]);
        frame[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    } else {
        let csum = nonzero(checksum::checksum(&frame[start..]));
        frame[at..at + 2].copy_from_slice(&csum.to_be_bytes());
    }
    p.offload.csum_valid = true;
}

/// Bytes of the longest frame that `p` becomes: a large segment counts as its segments.
pub fn frame_bytes(p: &Packet) -> usize {
    if !p.offload.is_gso() {
        return p.len();
    }
    let first = |cut: Cut| cut.end.min(cut.header_bytes + usize::from(p.offload.gso_size));
    Cut::plan(p).map_or(p.len(), first)
}

/// Number of frames that `p` becomes: those of a large segment, or 1. A large segment of unknown headers counts by its
/// length.
pub fn frames(p: &Packet) -> usize {
    if !p.offload.is_gso() {
        return 1;
    }
    let payload = Cut::plan(p).map_or(p.len(), |cut| cut.end - cut.header_bytes);
    payload.div_ceil(usize::from(p.offload.gso_size).max(1)).max(1)
}

/// Packets and bytes of `p` on a wire: a large segment counts as its frames.
pub fn wire_cost(p: &Packet) -> (u64, u64) {
    let frames = frames(p);
    let headers = (frames - 1) * usize::from(p.offload.hdr_len);
    (frames as u64, (p.len() + headers) as u64)
}

/// Whether the frame is a large segment inside a UDP tunnel: its checksum starts behind an IP header in outer UDP.
#[inline]
pub fn is_tunneled(p: &Packet) -> bool {
    p.offload.is_gso() && Outer::parse(p).is_some()
}

/// Whether the frame is a large segment that [`segment`] still splits after headers of a UDP tunnel are pushed onto it: its
/// checksum starts behind an IP header that the tunnel does not hide.
pub fn can_be_tunneled(p: &Packet) -> bool {
    let o = &p.offload;
    if !o.is_gso() || o.gso_size == 0 || !o.needs_csum {
        return false;
    }
    let Ok(cut) = Cut::plan(p) else { return false };
    let found = IpHeaders::before(p.data(), o.csum_start.into());
    let is_seen = found.is_some_and(|ip| (ip.l3, ip.l4) == (cut.ip.l3, cut.ip.l4));
    is_seen && cut.outer.is_none() && cut.count(o.gso_size.into()).is_ok()
}

/// Splits a large segment into frames of at most `gso_size` payload bytes each and appends them to `out`,
/// complete. On an error `out` is unchanged. The caller keeps the packet.
pub fn segment(p: &Packet, pool: &mut PacketPool, out: &mut PacketBatch) -> Result<(), SegmentError> {
    let size = usize::from(p.offload.gso_size);
    if !p.offload.is_gso() || size == 0 {
        return Err(SegmentError::NotLarge);
    }
    let cut = Cut::plan(p)?;
    let count = cut.count(size)?;
    let payload = &p.data()[cut.header_bytes..cut.end];
    for i in 0..count {
        let chunk = &payload[i * size..payload.len().min((i + 1) * size)];
        let bytes = cut.header_bytes + chunk.len();
        let mut s = pool.alloc(bytes);
        s.set_len(bytes);
        let (headers, body) = s.data_mut().split_at_mut(cut.header_bytes);
        headers.copy_from_slice(&p.data()[..cut.header_bytes]);
        body.copy_from_slice(chunk);
        cut.finish(s.data_mut(), i, i * size, i + 1 == count);
        s.offload = Offload { csum_valid: true, ..Offload::NONE };
        s.set_queue(p.queue());
        out.push(s);
    }
    Ok(())
}

/// EtherType and offset of the contents of a network service header (RFC 8300 §2.2).
fn behind_nsh(frame: &[u8], at: usize) -> Option<(u16, usize)> {
    let end = at + usize::from(frame.get(at + 1)? & 0x3f) * 4;
    if end < at + NSH_BASE_BYTES {
        return None;
    }
    match frame.get(at + 3)? {
        1 => Some((ETH_TYPE_IP, end)),
        2 => Some((ETH_TYPE_IPV6, end)),
        3 => Some((be16(frame, end + 12)?, end + ETH_HEADER_BYTES)),
        4 => Some((ETH_TYPE_NSH, end)),
        _ => None,
    }
}

/// Whether the frame is a large segment behind a network service header, which kernels do not split.
pub fn is_large_behind_nsh(p: &Packet) -> bool {
    let frame = p.data();
    let mut at = ETH_HEADER_BYTES - 2;
    while p.offload.is_gso() {
        match be16(frame, at) {
            Some(ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD) => at += VLAN_TAG_BYTES,
            eth_type => return eth_type == Some(ETH_TYPE_NSH),
        }
    }
    false
}

/// Offsets of the layers of an IP frame.
#[derive(Clone, Copy)]
pub(crate) struct IpHeaders {
    pub(crate) l3: usize,
    pub(crate) l4: usize,
    pub(crate) proto: u8,
    pub(crate) v6: bool,
    /// The pseudo-header's destination differs from the IP header's: a routing header has segments left.
    routed: bool,
    /// Labels or a network service header precede the IP header.
    shim: bool,
}

impl IpHeaders {
    /// Parses Ethernet, VLAN tags, network service headers, MPLS labels, IP and its options or extension headers, from offset `at` of `frame` on.
    /// `None`: no IP, truncated, or a fragment.
    pub(crate) fn parse(frame: &[u8], at: usize) -> Option<IpHeaders> {
        let mut l3 = at + ETH_HEADER_BYTES;
        let mut eth_type = be16(frame, at + 12)?;
        let mut shim = false;
        loop {
            match eth_type {
                ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD => {
                    eth_type = be16(frame, l3 + 2)?;
                    l3 += VLAN_TAG_BYTES;
                }
                ETH_TYPE_NSH => {
                    shim = true;
                    (eth_type, l3) = behind_nsh(frame, l3)?;
                }
                _ => break,
            }
        }
        if is_mpls(eth_type) {
            shim = true;
            while be32(frame, l3)? & MPLS_BOTTOM == 0 {
                l3 += MPLS_LABEL_BYTES;
            }
            l3 += MPLS_LABEL_BYTES;
            eth_type = if frame.get(l3)? >> 4 == 4 { ETH_TYPE_IP } else { ETH_TYPE_IPV6 };
        }
        match eth_type {
            ETH_TYPE_IP => IpHeaders::parse_v4(frame, l3),
            ETH_TYPE_IPV6 => IpHeaders::parse_v6(frame, l3),
            _ => None,
        }
        .map(|ip| IpHeaders { shim, ..ip })
    }

    /// The headers behind an Ethernet header that end at `l4`: IPv4, or IPv6 without extension headers.
    fn before(frame: &[u8], l4: usize) -> Option<IpHeaders> {
        let of_type = |l3: usize, eth_type: u16| be16(frame, l3.checked_sub(2)?).filter(|t| *t == eth_type);
        let v6 = l4.checked_sub(IPV6_HEADER_BYTES).filter(|l3| of_type(*l3, ETH_TYPE_IPV6).is_some());
        if let Some(ip) = v6.and_then(|l3| IpHeaders::parse_v6(frame, l3)).filter(|ip| ip.l4 == l4) {
            return Some(ip);
        }
        let v4 = |words: usize| {
            let l3 = l4.checked_sub(words * 4)?;
            of_type(l3, ETH_TYPE_IP)?;
            IpHeaders::parse_v4(frame, l3).filter(|ip| ip.l4 == l4)
        };
        (IPV4_HEADER_BYTES / 4..=15).find_map(v4)
    }

    fn parse_v4(frame: &[u8], l3: usize) -> Option<IpHeaders> {
        let ip: [u8; IPV4_HEADER_BYTES] = array(frame, l3)?;
        let ihl = usize::from(ip[0] & 0xf) * 4;
        let l4 = l3 + ihl;
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
        let ok = ip[0] >> 4 == 4 && ihl >= IPV4_HEADER_BYTES && l4 <= frame.len() && !fragment;
        ok.then_some(IpHeaders { l3, l4, proto: ip[9], v6: false, routed: false, shim: false })
    }

    fn parse_v6(frame: &[u8], l3: usize) -> Option<IpHeaders> {
        let ip: [u8; IPV6_HEADER_BYTES] = array(frame, l3)?;
        if ip[0] >> 4 != 6 {
            return None;
        }
        let mut proto = ip[6];
        let mut l4 = l3 + IPV6_HEADER_BYTES;
        let mut routed = false;
        while is_ipv6_extension(proto) {
            match proto {
                IPPROTO_ROUTING => routed |= *frame.get(l4 + 3)? != 0,
                IPPROTO_FRAGMENT => return None,
                _ => {}
            }
            (proto, l4) = ipv6_next_header(frame, l4, proto)?;
        }
        Some(IpHeaders { l3, l4, proto, v6: true, routed, shim: false })
    }

    /// Whether labels or a network service header precede the IP header.
    pub(crate) fn has_shim(&self) -> bool {
        self.shim
    }

    /// Unfolded pseudo-header sum without the length.
    pub(crate) fn pseudo(&self, frame: &[u8]) -> u64 {
        let (src, dst, len) = if self.v6 { (8, 24, 16) } else { (12, 16, 4) };
        let at = |from: usize| &frame[self.l3 + from..self.l3 + from + len];
        checksum::pseudo(at(src), at(dst), self.proto, 0)
    }

    /// End of the IP packet by its length field; a length of 0 marks a packet too large for the field (RFC 2675; Linux
    /// does so for IPv4 too). `None`: beyond the frame.
    fn end(&self, frame: &[u8]) -> Option<usize> {
        let end = match (be16(frame, self.l3 + if self.v6 { 4 } else { 2 })?, self.v6) {
            (0, _) => frame.len(),
            (bytes, true) => self.l3 + IPV6_HEADER_BYTES + usize::from(bytes),
            (bytes, false) => self.l3 + usize::from(bytes),
        };
        (end <= frame.len()).then_some(end)
    }

    /// Sets the length of the IP packet, which is `bytes` with its header, and for IPv4 its identification and checksum.
    pub(crate) fn set_length(&self, frame: &mut [u8], bytes: usize, id: u16) {
        let (l3, l4) = (self.l3, self.l4);
        let mut put = |at: usize, v: u16| frame[at..at + 2].copy_from_slice(&v.to_be_bytes());
        if self.v6 {
            return put(l3 + 4, (bytes - IPV6_HEADER_BYTES) as u16);
        }
        put(l3 + 2, bytes as u16);
        put(l3 + 4, id);
        put(l3 + 10, 0);
        let csum = checksum::checksum(&frame[l3..l4]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&csum.to_be_bytes());
    }
}

/// Headers of the UDP tunnel around a large segment.
pub(crate) struct Outer {
    pub(crate) ip: IpHeaders,
    pub(crate) ip_id: u16,
    /// Unfolded pseudo-header sum without the length, if UDP has a checksum.
    pub(crate) pseudo: Option<u64>,
}

impl Outer {
    /// The tunnel around a large segment, if it is in one, and the IP headers inside.
    fn parse(p: &Packet) -> Option<(Outer, IpHeaders)> {
        let o = &p.offload;
        let start = usize::from(o.csum_start);
        if !o.is_gso() || !o.needs_csum || start < LEAST_INNER_L4 {
            return None;
        }
        let frame = p.data();
        let ip = IpHeaders::parse(frame, 0).filter(|ip| ip.proto == IPPROTO_UDP && !ip.routed)?;
        let inner = IpHeaders::before(frame, start)?;
        if inner.l3 < ip.l4 + UDP_HEADER_BYTES + ETH_HEADER_BYTES {
            return None;
        }
        let has_sum = be16(frame, ip.l4 + 6)? != 0;
        let pseudo = has_sum.then(|| ip.pseudo(frame));
        Some((Outer { ip, ip_id: be16(frame, ip.l3 + 4)?, pseudo }, inner))
    }

    /// Whether the kernel can split the tunnel's datagrams.
    pub(crate) fn is_plain(&self) -> bool {
        !self.ip.has_shim()
    }

    /// Sets lengths and checksum of segment `i`. `inner_pseudo`: unfolded sum of its inner pseudo-header. The inner
    /// layer 4 sums to the complement of that, so only headers are summed ("local checksum offload").
    fn finish(&self, s: &mut [u8], i: usize, inner_l4: usize, inner_pseudo: u64) {
        let l4 = self.ip.l4;
        let l4_bytes = s.len() - l4;
        self.ip.set_length(s, s.len() - self.ip.l3, self.ip_id.wrapping_add(i as u16));
        s[l4 + 4..l4 + 6].copy_from_slice(&(l4_bytes as u16).to_be_bytes());
        let Some(pseudo) = self.pseudo else { return };
        s[l4 + 6..l4 + 8].fill(0);
        let inner = u64::from(!checksum::fold(inner_pseudo));
        let sum = checksum::sum(&s[l4..inner_l4], pseudo + l4_bytes as u64 + inner);
        s[l4 + 6..l4 + 8].copy_from_slice(&nonzero(!checksum::fold(sum)).to_be_bytes());
    }
}

/// Common fields of all segments of one frame.
pub(crate) struct Cut {
    pub(crate) ip: IpHeaders,
    /// Offset of the payload.
    pub(crate) header_bytes: usize,
    /// End of the payload; bytes after the IP packet are padding.
    pub(crate) end: usize,
    /// Unfolded pseudo-header sum without the length.
    pseudo: u64,
    ip_id: u16,
    seq: u32,
    pub(crate) outer: Option<Outer>,
}

impl Cut {
    pub(crate) fn plan(p: &Packet) -> Result<Cut, SegmentError> {
        let frame = p.data();
        let (outer, ip) = match Outer::parse(p) {
            Some((outer, inner)) => (Some(outer), inner),
            None => (None, IpHeaders::parse(frame, 0).ok_or(SegmentError::Headers)?),
        };
        let fits = match p.offload.gso {
            GsoKind::Tcp4 => !ip.v6 && ip.proto == IPPROTO_TCP,
            GsoKind::Tcp6 => ip.v6 && ip.proto == IPPROTO_TCP,
            GsoKind::UdpL4 => ip.proto == IPPROTO_UDP,
            GsoKind::None => false,
        };
        let l4_bytes = if ip.proto == IPPROTO_TCP {
            usize::from(*frame.get(ip.l4 + 12).ok_or(SegmentError::Headers)? >> 4) * 4
        } else {
            UDP_HEADER_BYTES
        };
        let least = if ip.proto == IPPROTO_TCP { TCP_HEADER_BYTES } else { UDP_HEADER_BYTES };
        let header_bytes = ip.l4 + l4_bytes;
        let end = ip.end(frame).ok_or(SegmentError::Headers)?;
        if !fits || l4_bytes < least || header_bytes > end {
            return Err(SegmentError::Headers);
        }
        let pseudo = if ip.routed {
            // Only the sender knows the final destination: subtract the length from its own partial sum.
            let field = ip.l4 + if ip.proto == IPPROTO_TCP { 16 } else { 6 };
            let sum = be16(frame, field).ok_or(SegmentError::Headers)?;
            u64::from(sum) + u64::from(!checksum::fold((end - ip.l4) as u64))
        } else {
            ip.pseudo(frame)
        };
        let ip_id = be16(frame, ip.l3 + 4).unwrap_or(0);
        let seq = be32(frame, ip.l4 + 4).unwrap_or(0);
        Ok(Cut { ip, header_bytes, end, pseudo, ip_id, seq, outer })
    }

    /// Number of segments with payloads of `size` bytes.
    pub(crate) fn count(&self, size: usize) -> Result<usize, SegmentError> {
        let count = (self.end - self.header_bytes).div_ceil(size.max(1)).max(1);
        if count > MAX_SEGMENTS { Err(SegmentError::TooMany) } else { Ok(count) }
    }

    /// Sets the fields of segment `i`, whose payload starts at offset `at` of the whole payload.
    fn finish(&self, s: &mut [u8], i: usize, at: usize, last: bool) {
        let (headers, payload) = s.split_at_mut(self.header_bytes);
        self.finish_headers(headers, payload, i, at, last);
        if let Some(outer) = &self.outer {
            outer.finish(s, i, self.ip.l4, self.pseudo + (s.len() - self.ip.l4) as u64);
        }
    }

    /// Sets the fields of the segment's own headers, not of a tunnel's, in `s`, which ends before the payload.
    pub(crate) fn finish_headers(&self, s: &mut [u8], payload: &[u8], i: usize, at: usize, last: bool) {
        let bytes = s.len() + payload.len() - self.ip.l3;
        self.ip.set_length(s, bytes, self.ip_id.wrapping_add(i as u16));
        let l4 = self.ip.l4;
        let l4_bytes = s.len() + payload.len() - l4;
        let field = if self.ip.proto == IPPROTO_TCP {
            let seq = self.seq.wrapping_add(at as u32);
            s[l4 + 4..l4 + 8].copy_from_slice(&seq.to_be_bytes());
            let mut flags = s[l4 + 13];
            if !last {
                flags &= !(TCP_FIN | TCP_PSH);
            }
            if i > 0 {
                flags &= !TCP_CWR;
            }
            s[l4 + 13] = flags;
            l4 + 16
        } else {
            s[l4 + 4..l4 + 6].copy_from_slice(&(l4_bytes as u16).to_be_bytes());
            l4 + 6
        };
        s[field..field + 2].fill(0);
        // Headers have an even length.
        let sum = checksum::sum(payload, checksum::sum(&s[l4..], self.pseudo + l4_bytes as u64));
        s[field..field + 2].copy_from_slice(&nonzero(!checksum::fold(sum)).to_be_bytes());
    }
}

/// A computed checksum of 0 is sent as its other zero: 0 means "none" in UDP (RFC 768).
pub(crate) fn nonzero(csum: u16) -> u16 {
    if csum == 0 { 0xffff } else { csum }
}

/// CRC32c (Castagnoli), reflected, for SCTP (RFC 9260 appendix A; low byte first in the packet), computed part by part.
#[derive(Clone, Copy)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The sum of no bytes.
    #[allow(clippy::new_without_default, reason = "a sum has a beginning, no default")]
    pub fn new() -> Crc32c {
        Crc32c(!0)
    }

    /// Adds bytes.
    pub fn add(&mut self, data: &[u8]) {
        for b in data {
            self.0 = CRC32C[usize::from((self.0 as u8) ^ b)] ^ (self.0 >> 8);
        }
    }

    /// The sum of all bytes.
    pub fn value(self) -> u32 {
        !self.0
    }
}

/// The CRC32c of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.add(data);
    crc.value()
}

static CRC32C: [u32; 256] = crc32c_table();

const fn crc32c_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}
