//! Large segments inside UDP tunnels, at devices that know only large segments of outer UDP.
//!
//! - [`Datagrams`]: a large inner segment as a few large segments of outer UDP (RFC 768 datagrams of equal size). A
//!   device splits them, or passes them on whole. Only headers are copied; payloads stay in place, for a gathering
//!   system call.
//! - [`join`]: the inverse, for a large segment of outer UDP at the end of its tunnel: its datagrams become one large
//!   segment of inner TCP again. [`crate::segment`] of that yields the frames that were in the datagrams.

use std::ops::Range;

use crate::checksum;
use crate::gso::{Cut, IpHeaders, SegmentError, TCP_CWR, TCP_FIN, TCP_PSH};
use crate::headers::*;
use crate::merge::MERGED_MAX;
use crate::offload::{GsoKind, Offload};
use crate::pool::Packet;

/// Largest IP packet.
const IP_MAX_BYTES: usize = 65535;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;
const TCP_URG: u8 = 0x20;
/// Flags of which no segment of a large one has any.
const TCP_SINGLE: u8 = TCP_SYN | TCP_RST | TCP_URG;

/// The datagrams of one large segment; reusable.
#[derive(Default)]
pub struct Datagrams {
    /// Headers of all datagrams.
    headers: Vec<u8>,
    pieces: Vec<Piece>,
    runs: Vec<Run>,
}

struct Piece {
    headers: Range<usize>,
    /// Its place in the packet.
    payload: Range<usize>,
}

struct Run {
    pieces: Range<usize>,
    offload: Offload,
}

impl Datagrams {
    /// Splits a large segment in a UDP tunnel. The checksum of every inner segment is complete; that of outer UDP is
    /// left to the device, also in a tunnel without one: devices compute it for all datagrams that they split.
    ///
    /// # Errors
    /// As [`crate::segment`]; [`SegmentError::NotLarge`] also for one segment, or outside of a tunnel, and
    /// [`SegmentError::Headers`] for outer headers that devices do not split. Use [`crate::segment`] then.
    pub fn split(&mut self, p: &Packet) -> Result<(), SegmentError> {
        self.clear();
        let mss = usize::from(p.offload.gso_size);
        if !p.offload.is_gso() || mss == 0 {
            return Err(SegmentError::NotLarge);
        }
        let cut = Cut::plan(p)?;
        let count = cut.count(mss)?;
        let outer = cut.outer.as_ref().filter(|_| count > 1).ok_or(SegmentError::NotLarge)?;
        let datagram_at = outer.ip.l4 + UDP_HEADER_BYTES;
        let bytes = cut.header_bytes - datagram_at + mss;
        let most = (IP_MAX_BYTES - (datagram_at - outer.ip.l3)) / bytes;
        if !outer.is_plain() || most == 0 {
            return Err(SegmentError::Headers);
        }
        // Runs of equal length, as far as possible.
        let a_run = count.div_ceil(count.div_ceil(most.min(MERGED_MAX)));
        let frame = p.data();
        let outer_pseudo = outer.ip.pseudo(frame);
        for i in 0..count {
            let from = cut.header_bytes + i * mss;
            let payload = from..cut.end.min(from + mss);
            let at = self.headers.len();
            self.headers.extend_from_slice(&frame[..cut.header_bytes]);
            let headers = &mut self.headers[at..];
            cut.finish_headers(headers, &frame[payload.clone()], i, i * mss, i + 1 == count);
            let first = i % a_run == 0;
            if first {
                let last = count.min(i + a_run);
                let payloads = cut.end.min(cut.header_bytes + last * mss) - from;
                let udp_bytes = UDP_HEADER_BYTES + (last - i) * (bytes - mss) + payloads;
                let (l3, l4) = (outer.ip.l3, outer.ip.l4);
                outer.ip.set_length(headers, l4 - l3 + udp_bytes, outer.ip_id.wrapping_add(i as u16));
                headers[l4 + 4..l4 + 6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
                let partial = checksum::fold(outer_pseudo + udp_bytes as u64);
                headers[l4 + 6..l4 + 8].copy_from_slice(&partial.to_be_bytes());
                let offload = Offload {
                    needs_csum: true,
                    csum_start: l4 as u16,
                    csum_offset: 6,
                    gso: if last - i > 1 { GsoKind::UdpL4 } else { GsoKind::None },
                    gso_size: bytes as u16,
                    hdr_len: datagram_at as u16,
                    ..Offload::NONE
                };
                self.runs.push(Run { pieces: i..last, offload });
            }
            let skip = if first { 0 } else { datagram_at };
            self.pieces.push(Piece { headers: at + skip..at + cut.header_bytes, payload });
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.headers.clear();
        self.pieces.clear();
        self.runs.clear();
    }

    /// The large segments of outer UDP, in order: offload metadata, and the number of parts of each.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (Offload, usize)> {
        self.runs.iter().map(|run| (run.offload, 2 * run.pieces.len()))
    }

    /// The parts of all of them, in order: headers and payload by turns. `p` is the packet that was split.
    pub fn parts<'a>(&'a self, p: &'a Packet) -> impl Iterator<Item = &'a [u8]> {
        let parts = |piece: &Piece| [&self.headers[piece.headers.clone()], &p.data()[piece.payload.clone()]];
        self.pieces.iter().flat_map(parts)
    }
}

/// Joins the frames in a large segment of outer UDP into one large segment of TCP, and removes the outer headers. The
/// UDP header is at `l4`, the first frame at `at`, with the headers of the tunnel in between; the packet ends with its
/// last datagram.
///
/// `false`, without effect: the frames are not consecutive segments of one connection, with equal headers and right
/// checksums; or the headers of the tunnel differ.
pub fn join(p: &mut Packet, l4: usize, at: usize) -> bool {
    let Some(run) = JoinableRun::parse(p, l4, at) else { return false };
    let JoinableRun { ip, header_bytes, size, last_flags, .. } = run;
    let (start, end, mss) = (l4 + UDP_HEADER_BYTES, p.len(), run.mss());
    let data = p.data_mut();
    let mut len = start + size;
    for from in (start + size..end).step_by(size) {
        let payload = from + (header_bytes - start)..end.min(from + size);
        let bytes = payload.len();
        data.copy_within(payload, len);
        len += bytes;
    }
    let id = be16(data, ip.l3 + 4).unwrap_or(0);
    ip.set_length(data, len - ip.l3, id);
    let first_flags = data[ip.l4 + 13];
    data[ip.l4 + 13] |= last_flags;
    let partial = checksum::fold(ip.pseudo(data) + (len - ip.l4) as u64);
    data[ip.l4 + 16..ip.l4 + 18].copy_from_slice(&partial.to_be_bytes());
    p.set_len(len);
    p.strip(at);
    p.offload = Offload {
        needs_csum: true,
        csum_start: (ip.l4 - at) as u16,
        csum_offset: 16,
        gso: if ip.v6 { GsoKind::Tcp6 } else { GsoKind::Tcp4 },
        gso_size: mss as u16,
        hdr_len: (header_bytes - at) as u16,
        ecn: first_flags & TCP_CWR != 0,
        ..Offload::NONE
    };
    true
}

/// The first of the frames; offsets in the packet.
struct JoinableRun {
    /// Start of the first datagram's payload, and of its frame.
    start: usize,
    at: usize,
    /// Bytes of a datagram.
    size: usize,
    ip: IpHeaders,
    /// Offset of the payload of TCP.
    header_bytes: usize,
    last_flags: u8,
}

impl JoinableRun {
    fn parse(p: &Packet, l4: usize, at: usize) -> Option<JoinableRun> {
        let (start, size) = (l4 + UDP_HEADER_BYTES, usize::from(p.offload.gso_size));
        let whole = p.data();
        if p.offload.gso != GsoKind::UdpL4
            || at < start
            || start + size >= whole.len()
            || whole.len() - l4 > IP_MAX_BYTES
        {
            return None;
        }
        let first = &whole[..start + size];
        let ip = IpHeaders::parse(first, at)?;
        let plain = !ip.v6 || ip.l4 == ip.l3 + IPV6_HEADER_BYTES;
        let tcp: [u8; TCP_HEADER_BYTES] = array(first, ip.l4)?;
        let header_bytes = ip.l4 + usize::from(tcp[12] >> 4) * 4;
        if ip.proto != IPPROTO_TCP
            || !plain
            || ip.has_shim()
            || header_bytes < ip.l4 + TCP_HEADER_BYTES
            || header_bytes >= first.len()
            || tcp[13] & TCP_SINGLE != 0
        {
            return None;
        }
        let mut run = JoinableRun { start, at, size, ip, header_bytes, last_flags: 0 };
        let pseudo = ip.pseudo(first);
        let count = (whole.len() - start).div_ceil(size);
        for i in 0..count {
            run.last_flags = run.check(whole, i, i + 1 == count, pseudo)?;
        }
        Some(run)
    }

    /// Payload bytes of TCP in all frames but the last.
    fn mss(&self) -> usize {
        self.start + self.size - self.header_bytes
    }

    /// Checks frame `i`; returns its flags that only a last segment has.
    fn check(&self, whole: &[u8], i: usize, last: bool, pseudo: u64) -> Option<u8> {
        let (l3, l4) = (self.ip.l3 - self.start, self.ip.l4 - self.start);
        let from = self.start + i * self.size;
        let first = &whole[self.start..self.start + self.size];
        let f = &whole[from..whole.len().min(from + self.size)];
        let header_bytes = self.header_bytes - self.start;
        if f.len() <= header_bytes {
            return None;
        }
        let same = |from: usize, to: usize| f[from..to] == first[from..to];
        let field = |at: usize| u16::from_be_bytes([f[at], f[at + 1]]);
        let ip = if self.ip.v6 {
            let length = usize::from(field(l3 + 4)) == f.len() - l3 - IPV6_HEADER_BYTES;
            length && same(l3, l3 + 4) && same(l3 + 6, l4)
        } else {
            let id = be16(first, l3 + 4)?.wrapping_add(i as u16);
            let length = usize::from(field(l3 + 2)) == f.len() - l3 && field(l3 + 4) == id;
            length
                && same(l3, l3 + 2)
                && same(l3 + 6, l3 + 10)
                && same(l3 + 12, l4)
                && checksum::checksum(&f[l3..l4]) == 0
        };
        let seq = be32(first, l4 + 4)?.wrapping_add((i * self.mss()) as u32);
        let (flags, of_first) = (f[l4 + 13], first[l4 + 13]);
        let of_last = flags & (TCP_FIN | TCP_PSH);
        let cwr = if i == 0 { of_first & TCP_CWR } else { 0 };
        let tcp = be32(f, l4 + 4)? == seq
            && same(l4, l4 + 4)
            && same(l4 + 8, l4 + 13)
            && same(l4 + 14, l4 + 16)
            && same(l4 + 18, header_bytes)
            && flags & !of_last == of_first & !TCP_CWR | cwr
            && (last || of_last == 0);
        // The headers of the tunnel, then Ethernet.
        let fits = same(0, l3) && ip && tcp;
        let sum = || checksum::fold(checksum::sum(&f[l4..], pseudo + (f.len() - l4) as u64));
        (fits && self.at <= self.ip.l3 && sum() == u16::MAX).then_some(of_last)
    }
}
