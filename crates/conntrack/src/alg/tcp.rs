//! A TCP segment within a frame, and changes of it that keep lengths, checksums and offload metadata right. A wrong
//! checksum stays wrong.

use packet::Packet;
use packet::checksum::{fold, sum, update_bytes, update16};
use packet::headers::{IPPROTO_TCP, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP_HEADER_BYTES, array, be16};
use std::ops::Range;

/// Offset of the checksum from the TCP header.
const CHECKSUM: usize = 16;

/// Places of the headers of a TCP segment in its frame; the header and the lengths lie within the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    l3: usize,
    l4: usize,
    v6: bool,
    /// First byte of the payload.
    payload: usize,
    /// End of the payload; padding may follow.
    end: usize,
}

impl Segment {
    /// The segment of a frame with its IP header at `l3` and its TCP header at `l4`; IPv6 if `v6`, by the EtherType.
    /// `None`: truncated, contradicting lengths, or a packet too large for its length field.
    pub fn new(packet: &Packet, l3: usize, l4: usize, v6: bool) -> Option<Segment> {
        let frame = packet.data();
        let (length_at, header_bytes) = if v6 { (4, IPV6_HEADER_BYTES) } else { (2, IPV4_HEADER_BYTES) };
        let field = usize::from(be16(frame, l3 + length_at)?);
        let end = l3 + if v6 { field + header_bytes } else { field };
        let payload = l4 + usize::from(frame.get(l4 + 12)? >> 4) * 4;
        let fits = l3 + header_bytes <= l4 && l4 + TCP_HEADER_BYTES <= payload;
        (fits && payload <= end && end <= frame.len()).then_some(Segment { l3, l4, v6, payload, end })
    }

    /// Frame offsets of its payload.
    pub fn payload(&self) -> Range<usize> {
        self.payload..self.end
    }

    /// Unfolded sum of the segment and its pseudo-header.
    fn sum(&self, frame: &[u8]) -> u64 {
        let addresses = if self.v6 { self.l3 + 8..self.l3 + 40 } else { self.l3 + 12..self.l3 + 20 };
        let pseudo = sum(&frame[addresses], u64::from(IPPROTO_TCP) + (self.end - self.l4) as u64);
        sum(&frame[self.l4..self.end], pseudo)
    }

    /// Replaces the bytes `old` of the payload, frame offsets, by `new`. Returns the growth in bytes; `None`, with the
    /// packet unchanged: `old` is not in the payload, or the length field has no room.
    pub(super) fn replace(&self, packet: &mut Packet, old: Range<usize>, new: &[u8]) -> Option<i32> {
        let inside = self.payload <= old.start && old.start <= old.end && old.end <= self.end;
        let growth = new.len() as i32 - old.len() as i32;
        let (length_at, length) = self.length(packet)?;
        let new_length = u16::try_from(i32::from(length) + growth).ok()?;
        if !inside || Segment::new(packet, self.l3, self.l4, self.v6)? != *self {
            return None;
        }
        let partial = is_partial(packet, self.l4);
        let was = fold(self.sum(packet.data()));
        if growth > 0 {
            packet.insert(old.start, growth as usize);
        } else {
            packet.remove(old.start, -growth as usize);
        }
        let after = Segment { end: (self.end as i32 + growth) as usize, ..*self };
        let frame = packet.data_mut();
        frame[old.start..old.start + new.len()].copy_from_slice(new);
        frame[length_at..length_at + 2].copy_from_slice(&new_length.to_be_bytes());
        if !self.v6 {
            let at = self.l3 + 10;
            let header_sum = update16(u16::from_be_bytes([frame[at], frame[at + 1]]), length, new_length);
            frame[at..at + 2].copy_from_slice(&header_sum.to_be_bytes());
        }
        let at = self.l4 + CHECKSUM;
        let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let field = if partial {
            // The sum of the pseudo-header, not complemented.
            fold(u64::from(field) + u64::from(!length) + u64::from(new_length))
        } else {
            frame[at..at + 2].fill(0);
            let right = !fold(after.sum(frame));
            if was == 0xffff { right } else { fold(u64::from(right) + u64::from(was)) }
        };
        frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
        Some(growth)
    }

    /// Frame offset and value of the length field of the IP header.
    fn length(&self, packet: &Packet) -> Option<(usize, u16)> {
        let at = self.l3 + if self.v6 { 4 } else { 2 };
        Some((at, be16(packet.data(), at)?))
    }
}

/// Whether a device completes the checksum of the TCP header at `l4`.
fn is_partial(packet: &Packet, l4: usize) -> bool {
    let o = &packet.offload;
    o.needs_csum && usize::from(o.csum_start) + usize::from(o.csum_offset) == l4 + CHECKSUM
}

/// A number of the TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// Sequence number.
    Sequence,
    /// Acknowledgement number.
    Acknowledgement,
}

/// Adds `by` to a number of the TCP header at `l4` of the frame, modulo 2^32, with the checksum unless a device
/// completes it. Without a whole header it does nothing.
pub fn adjust(packet: &mut Packet, l4: usize, number: Number, by: i32) {
    let at = l4 + if number == Number::Sequence { 4 } else { 8 };
    let partial = is_partial(packet, l4);
    let frame = packet.data_mut();
    let (Some(old), Some(field)) = (array::<4>(frame, at), be16(frame, l4 + CHECKSUM)) else { return };
    let new = u32::from_be_bytes(old).wrapping_add_signed(by).to_be_bytes();
    frame[at..at + 4].copy_from_slice(&new);
    if !partial {
        let field = update_bytes(field, &old, &new);
        frame[l4 + CHECKSUM..l4 + CHECKSUM + 2].copy_from_slice(&field.to_be_bytes());
    }
}
