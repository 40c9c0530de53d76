//! The inverse of segmentation: merges a run of UDP datagrams of one flow into one large segment (UDP
//! segmentation, RFC 768 datagrams of equal size), for devices that split such segments or pass them on
//! whole.
//!
//! Invariant: [`crate::segment`] of a merged run yields, byte for byte, the run with its checksums completed.
//! So only datagrams with a pending checksum are merged: those fresh from a host of this machine. Unusual
//! datagrams (options, fragments, padding, non-consecutive identifications, lengths or checksums that
//! contradict the frame) are not merged.
//!
//! Copies only the headers: the payloads stay in place, for a gathering system call.

use crate::checksum;
use crate::headers::*;
use crate::offload::{GsoKind, Offload};
use crate::pool::Packet;

/// Maximum datagrams of a run: accepted by every kernel with UDP segmentation (`UDP_MAX_SEGMENTS` before
/// Linux 6.9).
pub const MERGED_MAX: usize = 64;
/// Maximum header bytes of a merged run: Ethernet, two VLAN tags, IPv6, UDP.
pub const MERGED_HEADERS_MAX_BYTES: usize =
    ETH_HEADER_BYTES + 2 * VLAN_TAG_BYTES + IPV6_HEADER_BYTES + UDP_HEADER_BYTES;
/// Largest IP packet.
const IP_MAX_BYTES: usize = 65535;
/// Offset of the checksum in UDP.
const UDP_CSUM_AT: usize = 6;

/// A run of datagrams as one large segment: its headers and its offload; the payloads are the packets' bytes
/// after [`Merged::header_bytes`].
#[derive(Clone, Debug)]
pub struct Merged {
    headers: [u8; MERGED_HEADERS_MAX_BYTES],
    header_bytes: usize,
    packets: usize,
    offload: Offload,
}

impl Merged {
    /// The headers of the large segment, to precede the payloads.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.header_bytes]
    }

    /// Bytes of headers of every frame of the run.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Frames of the run, two at least.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Offload metadata for the device.
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

/// Whether a frame may be part of a run, by its metadata. Rejects most frames.
fn may_merge(p: &Packet) -> bool {
    p.offload.needs_csum && !p.offload.is_gso() && usize::from(p.offload.csum_offset) == UDP_CSUM_AT
}

/// The longest run at the start of `packets`; `None` if it is a single frame.
pub fn merge(packets: &[Packet]) -> Option<Merged> {
    let [first, second, ..] = packets else { return None };
    if !may_merge(first) || !may_merge(second) {
        return None;
    }
    let head = Datagram::parse(first)?;
    let mut last = head;
    let mut run = 1;
    let mut ip_bytes = first.len() - head.l3;
    for p in packets.iter().take(MERGED_MAX).skip(1) {
        let whole = last.payload_bytes == head.payload_bytes;
        let Some(next) = Datagram::parse(p).filter(|_| whole && may_merge(p)) else { break };
        let more = ip_bytes + next.payload_bytes;
        if next.payload_bytes > head.payload_bytes || more > IP_MAX_BYTES || !next.follows(p, &last, first) {
            break;
        }
        (last, run, ip_bytes) = (next, run + 1, more);
    }
    (run > 1).then(|| head.merged(first, run, ip_bytes))
}

/// The checksum of an IPv4 header without options, ignoring its field.
fn header_checksum(mut ip: [u8; IPV4_HEADER_BYTES]) -> u16 {
    ip[10..12].fill(0);
    checksum::checksum(&ip)
}

/// Offsets of the layers of a datagram, and its fields that vary within a run.
#[derive(Clone, Copy)]
struct Datagram {
    l3: usize,
    l4: usize,
    v6: bool,
    ip_id: u16,
    payload_bytes: usize,
}

impl Datagram {
    /// A whole UDP datagram with a payload, in IPv4 without options or IPv6 without extension headers, of the
    /// same length as its frame, with the checksums of an unfinished frame.
    fn parse(p: &Packet) -> Option<Datagram> {
        let frame = p.data();
        let mut l3 = ETH_HEADER_BYTES;
        let mut eth_type = be16(frame, 12)?;
        while matches!(eth_type, ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD) && l3 < ETH_HEADER_BYTES + 8 {
            eth_type = be16(frame, l3 + 2)?;
            l3 += VLAN_TAG_BYTES;
        }
        let (v6, l4, ip_id) = match eth_type {
            ETH_TYPE_IP => {
                let ip: [u8; IPV4_HEADER_BYTES] = array(frame, l3)?;
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0xbfff != 0;
                let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
                let plain = ip[0] == 0x45 && ip[9] == IPPROTO_UDP && !fragment;
                if !plain || l3 + length != frame.len() || ip[10..12] != header_checksum(ip).to_be_bytes() {
                    return None;
                }
                (false, l3 + IPV4_HEADER_BYTES, u16::from_be_bytes([ip[4], ip[5]]))
            }
            ETH_TYPE_IPV6 => {
                let ip: [u8; IPV6_HEADER_BYTES] = array(frame, l3)?;
                let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
                let plain = ip[0] >> 4 == 6 && ip[6] == IPPROTO_UDP;
                if !plain || l3 + IPV6_HEADER_BYTES + length != frame.len() {
                    return None;
                }
                (true, l3 + IPV6_HEADER_BYTES, 0)
            }
            _ => return None,
        };
        let udp: [u8; UDP_HEADER_BYTES] = array(frame, l4)?;
        let found =
            Datagram { l3, l4, v6, ip_id, payload_bytes: frame.len().checked_sub(l4 + UDP_HEADER_BYTES)? };
        let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let unfinished = u16::from_be_bytes([udp[6], udp[7]]) == found.pseudo(frame, length);
        let requested = usize::from(p.offload.csum_start) == l4 && length == frame.len() - l4;
        (requested && unfinished && found.payload_bytes > 0).then_some(found)
    }

    /// The pseudo-header sum of a datagram of `l4_bytes`, as in an unfinished frame.
    fn pseudo(&self, frame: &[u8], l4_bytes: usize) -> u16 {
        let (src, len) = if self.v6 { (self.l3 + 8, 16) } else { (self.l3 + 12, 4) };
        let (src, dst) = frame[src..src + 2 * len].split_at(len);
        checksum::fold(checksum::pseudo(src, dst, IPPROTO_UDP, l4_bytes))
    }

    /// Whether frame `p`, parsed as `self`, may follow the one parsed as `last` in the run that starts with
    /// `first`.
    fn follows(&self, p: &Packet, last: &Datagram, first: &Packet) -> bool {
        let (a, b) = (p.data(), first.data());
        let (l3, l4) = (self.l3, self.l4);
        let same = |from: usize, to: usize| a[from..to] == b[from..to];
        let shape = (l3, l4, self.v6) == (last.l3, last.l4, last.v6);
        let ip = || {
            if self.v6 {
                same(l3, l3 + 4) && same(l3 + 6, l4)
            } else {
                let counted = self.ip_id == last.ip_id.wrapping_add(1);
                counted && same(l3, l3 + 2) && same(l3 + 6, l3 + 10) && same(l3 + 12, l4)
            }
        };
        shape && same(0, l3) && ip() && same(l4, l4 + 4)
    }

    /// The large segment of `run` frames starting with `first`, of `ip_bytes` from the IP header on.
    fn merged(&self, first: &Packet, run: usize, ip_bytes: usize) -> Merged {
        let header_bytes = self.l4 + UDP_HEADER_BYTES;
        let mut headers = [0; MERGED_HEADERS_MAX_BYTES];
        headers[..header_bytes].copy_from_slice(&first.data()[..header_bytes]);
        let l4_bytes = ip_bytes - (self.l4 - self.l3);
        let pseudo = self.pseudo(first.data(), l4_bytes);
        let mut put = |at: usize, v: u16| headers[at..at + 2].copy_from_slice(&v.to_be_bytes());
        put(self.l4 + 4, l4_bytes as u16);
        put(self.l4 + UDP_CSUM_AT, pseudo);
        if self.v6 {
            put(self.l3 + 4, l4_bytes as u16);
        } else {
            put(self.l3 + 2, ip_bytes as u16);
            let csum = array(&headers, self.l3).map_or(0, header_checksum);
            headers[self.l3 + 10..self.l3 + 12].copy_from_slice(&csum.to_be_bytes());
        }
        let offload = Offload {
            gso: GsoKind::UdpL4,
            gso_size: self.payload_bytes as u16,
            hdr_len: header_bytes as u16,
            csum_valid: false,
            ..first.offload
        };
        Merged { headers, header_bytes, packets: run, offload }
    }
}
