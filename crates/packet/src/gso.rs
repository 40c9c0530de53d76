//! Software offloads: completes a checksum, splits a large segment into frames of wire size. For ports whose
//! device supports neither, and for code that needs the final bytes.
//!
//! The frames equal those of Linux and hardware segmentation (RFC 9293 for TCP, RFC 768 for UDP): headers
//! copied, IPv4 identification incremented, lengths and sequence numbers set, PSH and FIN on the last segment
//! only, CWR on the first only (RFC 3168 §6.1.2), checksums complete. VLAN tags, IPv4 options and IPv6
//! extension headers stay in place.
//!
//! Callable from any thread; stateless. Does not split large segments inside tunnels: split before
//! encapsulation.

use crate::batch::PacketBatch;
use crate::checksum;
use crate::headers::*;
use crate::offload::{GsoKind, Offload};
use crate::pool::{Packet, PacketPool};

/// Maximum segments of one frame: a full frame in segments of 32 bytes. A smaller segment size in a long
/// frame would turn one frame into a flood.
pub const MAX_SEGMENTS: usize = 2048;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const SCTP_CSUM_OFFSET: u16 = 8;

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
        && IpHeaders::parse(p.data()).is_some_and(|h| h.proto == IPPROTO_SCTP && h.l4 == start);
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

/// Splits a large segment into frames of at most `gso_size` payload bytes each and appends them to `out`,
/// complete. On an error `out` is unchanged. The caller keeps the packet.
pub fn segment(p: &Packet, pool: &mut PacketPool, out: &mut PacketBatch) -> Result<(), SegmentError> {
    let size = usize::from(p.offload.gso_size);
    if !p.offload.is_gso() || size == 0 {
        return Err(SegmentError::NotLarge);
    }
    let cut = Cut::plan(p)?;
    let payload = &p.data()[cut.header_bytes..cut.end];
    let count = payload.len().div_ceil(size).max(1);
    if count > MAX_SEGMENTS {
        return Err(SegmentError::TooMany);
    }
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
        out.push(s);
    }
    Ok(())
}

/// Offsets of the layers of an IP frame.
struct IpHeaders {
    l3: usize,
    l4: usize,
    proto: u8,
    v6: bool,
    /// The pseudo-header's destination differs from the IP header's: a routing header has segments left.
    routed: bool,
}

impl IpHeaders {
    /// Parses Ethernet, VLAN tags, IP and its options or extension headers. `None`: no IP, truncated, or a
    /// fragment.
    fn parse(frame: &[u8]) -> Option<IpHeaders> {
        let mut l3 = ETH_HEADER_BYTES;
        let mut eth_type = be16(frame, 12)?;
        while eth_type == ETH_TYPE_VLAN || eth_type == ETH_TYPE_VLAN_8021AD {
            eth_type = be16(frame, l3 + 2)?;
            l3 += VLAN_TAG_BYTES;
        }
        match eth_type {
            ETH_TYPE_IP => {
                let ip: [u8; IPV4_HEADER_BYTES] = array(frame, l3)?;
                let ihl = usize::from(ip[0] & 0xf) * 4;
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
                let ok = ip[0] >> 4 == 4 && ihl >= IPV4_HEADER_BYTES && !fragment;
                ok.then_some(IpHeaders { l3, l4: l3 + ihl, proto: ip[9], v6: false, routed: false })
            }
            ETH_TYPE_IPV6 => IpHeaders::parse_v6(frame, l3),
            _ => None,
        }
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
        Some(IpHeaders { l3, l4, proto, v6: true, routed })
    }

    /// Unfolded pseudo-header sum without the length.
    fn pseudo(&self, frame: &[u8]) -> u64 {
        let (src, dst, len) = if self.v6 { (8, 24, 16) } else { (12, 16, 4) };
        let at = |from: usize| &frame[self.l3 + from..self.l3 + from + len];
        checksum::pseudo(at(src), at(dst), self.proto, 0)
    }
}

/// Common fields of all segments of one frame.
struct Cut {
    ip: IpHeaders,
    /// Offset of the payload.
    header_bytes: usize,
    /// End of the payload; bytes after the IP packet are padding.
    end: usize,
    /// Unfolded pseudo-header sum without the length.
    pseudo: u64,
    ip_id: u16,
    seq: u32,
}

impl Cut {
    fn plan(p: &Packet) -> Result<Cut, SegmentError> {
        let frame = p.data();
        let ip = IpHeaders::parse(frame).ok_or(SegmentError::Headers)?;
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
        let ip_bytes = if ip.v6 {
            usize::from(be16(frame, ip.l3 + 4).unwrap_or(0)) + IPV6_HEADER_BYTES
        } else {
            usize::from(be16(frame, ip.l3 + 2).unwrap_or(0))
        };
        // A length of 0 marks a packet too large for the field (RFC 2675; Linux does so for IPv4 too).
        let jumbo = ip_bytes == if ip.v6 { IPV6_HEADER_BYTES } else { 0 };
        let end = if jumbo { frame.len() } else { ip.l3 + ip_bytes };
        if !fits || l4_bytes < least || header_bytes > end || end > frame.len() {
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
        Ok(Cut { ip, header_bytes, end, pseudo, ip_id, seq })
    }

    /// Sets the fields of segment `i`, whose payload starts at offset `at` of the whole payload.
    fn finish(&self, s: &mut [u8], i: usize, at: usize, last: bool) {
        let (l3, l4) = (self.ip.l3, self.ip.l4);
        let total = s.len() - l3;
        let mut put = |at: usize, v: u16| s[at..at + 2].copy_from_slice(&v.to_be_bytes());
        if self.ip.v6 {
            put(l3 + 4, (total - IPV6_HEADER_BYTES) as u16);
        } else {
            put(l3 + 2, total as u16);
            put(l3 + 4, self.ip_id.wrapping_add(i as u16));
            put(l3 + 10, 0);
            let csum = checksum::checksum(&s[l3..l4]);
            s[l3 + 10..l3 + 12].copy_from_slice(&csum.to_be_bytes());
        }
        self.finish_l4(s, i, at, last);
    }

    fn finish_l4(&self, s: &mut [u8], i: usize, at: usize, last: bool) {
        let l4 = self.ip.l4;
        let l4_bytes = s.len() - l4;
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
        let sum = checksum::sum(&s[l4..], self.pseudo + l4_bytes as u64);
        s[field..field + 2].copy_from_slice(&nonzero(!checksum::fold(sum)).to_be_bytes());
    }
}

/// A computed checksum of 0 is sent as its other zero: 0 means "none" in UDP (RFC 768).
fn nonzero(csum: u16) -> u16 {
    if csum == 0 { 0xffff } else { csum }
}

/// CRC32c (Castagnoli), reflected, for SCTP (RFC 9260 appendix A; low byte first in the packet), computed part by part.
#[derive(Clone, Copy)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Of no bytes.
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
