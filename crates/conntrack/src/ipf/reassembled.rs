//! A complete datagram: built from its fragments, and the way back of its translation into them.

use super::HeldFragment;
use super::header::{Fragment, MORE_FRAGMENTS, V6_FRAGMENT_BYTES};
use super::pieces::Piece;
use packet::checksum::{update_bytes, update16};
use packet::headers::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES};
use packet::{Offload, Packet};

/// Maximum bytes of a datagram from its IP header on.
const DATAGRAM_MAX_BYTES: usize = 65535;

/// A complete datagram and the fragments that it arrived in.
///
/// The caller tracks and translates `whole`, calls [`Reassembled::carry_back`], drops `whole`, and sends the fragments
/// on, each with the connection's state, mark and labels.
///
/// Translation may change addresses and bytes of the transport header, but no length: a helper that rewrites text
/// (FTP) must not run on a reassembled packet.
pub struct Reassembled<T> {
    /// The datagram as one packet, with the headers and the work left to a device of its first fragment. The IP header
    /// lies where it does there. IPv6: without the fragment header.
    pub whole: Packet,
    /// Its fragments as they arrived, in the order in which they go on: by their place in the datagram.
    pub fragments: Vec<T>,
    l3: usize,
    v6: bool,
    /// Offset of the payload from the IP header, and bytes of it, in the first fragment.
    payload: usize,
    payload_bytes: usize,
}

/// Places of the addresses in an IP header.
fn addresses(v6: bool) -> std::ops::Range<usize> {
    if v6 { 8..40 } else { 12..20 }
}

/// Makes the header at `l3` that of a datagram of `l3_bytes`, header included, in one piece.
fn unfragment(frame: &mut [u8], l3: usize, v6: bool, l3_bytes: usize) -> Option<()> {
    let header = frame.get_mut(l3..)?;
    if v6 {
        let bytes = l3_bytes.checked_sub(IPV6_HEADER_BYTES)? as u16;
        header.get_mut(4..6)?.copy_from_slice(&bytes.to_be_bytes());
        return Some(());
    }
    let ip = header.first_chunk_mut::<IPV4_HEADER_BYTES>()?;
    let word = |ip: &[u8], at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let mut sum = word(ip, 10);
    for (at, new) in [(2, l3_bytes as u16), (6, word(ip, 6) & !MORE_FRAGMENTS)] {
        sum = update16(sum, word(ip, at), new);
        ip[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// The datagram of `fragments`, which are in order, with `pieces` of them. `first` describes the first one. `None`: it
/// exceeds the size of a datagram.
pub(super) fn join<T: HeldFragment>(first: &Fragment, pieces: &[Piece], fragments: &[&T]) -> Option<Packet> {
    let (head, v6) = (fragments.first()?, first.key.v6);
    let (l3, payload) = (head.l3(), usize::from(first.payload));
    let removed = if v6 { V6_FRAGMENT_BYTES } else { 0 };
    let bytes = pieces.last()?.end as usize;
    let l3_bytes = payload - removed + bytes;
    if l3_bytes > DATAGRAM_MAX_BYTES {
        return None;
    }
    let mut whole = Packet::with_capacity(l3 + l3_bytes);
    whole.set_len(l3 + l3_bytes);
    let (headers, mut rest) = whole.data_mut().split_at_mut(l3 + payload - removed);
    headers.copy_from_slice(head.packet().data().get(..headers.len())?);
    if v6 {
        // The header before that of the fragment names the one after it.
        let frame = head.packet().data();
        *headers.get_mut(l3 + usize::from(first.named_at))? = *frame.get(l3 + usize::from(first.header))?;
    }
    for (piece, fragment) in pieces.iter().zip(fragments) {
        let from = fragment.l3() + usize::from(piece.payload);
        let part = fragment.packet().data().get(from..from + (piece.end - piece.start) as usize)?;
        let (to, after) = rest.split_at_mut_checked(part.len())?;
        to.copy_from_slice(part);
        rest = after;
    }
    unfragment(whole.data_mut(), l3, v6, l3_bytes)?;
    whole.offload = offload(head.packet(), l3 + payload, removed);
    Some(whole)
}

/// The work left to a device by the first fragment, whose payload is at `l4`, for the datagram without `removed` bytes
/// before it. A transport checksum covers the datagram, so no device can have verified that of a fragment.
fn offload(first: &Packet, l4: usize, removed: usize) -> Offload {
    let o = &first.offload;
    if !o.needs_csum || usize::from(o.csum_start) < l4 {
        return Offload::NONE;
    }
    let csum_start = o.csum_start - removed as u16;
    Offload { needs_csum: true, csum_start, csum_offset: o.csum_offset, ..Offload::NONE }
}

impl<T: HeldFragment> Reassembled<T> {
    pub(super) fn new(whole: Packet, first: &Fragment, fragments: Vec<T>) -> Reassembled<T> {
        Reassembled {
            l3: fragments.first().map_or(0, |f| f.l3()),
            v6: first.key.v6,
            payload: usize::from(first.payload),
            payload_bytes: first.end as usize,
            whole,
            fragments,
        }
    }

    /// Carries the addresses of `whole` into all fragments, whose IPv4 header checksums follow, and its transport
    /// header into the first one. Required also without a translation: if the transport checksum is left to a device,
    /// it is completed here, because a device would sum the fragment alone.
    pub fn carry_back(&mut self) {
        let range = addresses(self.v6);
        let mut new = [0; 32];
        let new = &mut new[..range.len()];
        match self.whole.data().get(self.l3 + range.start..self.l3 + range.end) {
            Some(from) => new.copy_from_slice(from),
            None => return,
        }
        for fragment in &mut self.fragments {
            let l3 = fragment.l3();
            set_addresses(fragment.packet_mut(), l3, self.v6, new);
        }
        packet::complete_checksum(&mut self.whole);
        let removed = if self.v6 { V6_FRAGMENT_BYTES } else { 0 };
        let Some(first) = self.fragments.first_mut() else { return };
        let l4 = first.l3() + self.payload;
        let first = first.packet_mut();
        let transport = self.whole.data().get(self.l3 + self.payload - removed..).unwrap_or(&[]);
        let transport = &transport[..transport.len().min(self.payload_bytes)];
        if let Some(to) = first.data_mut().get_mut(l4..l4 + transport.len()) {
            to.copy_from_slice(transport);
            if usize::from(first.offload.csum_start) >= l4 {
                first.offload.needs_csum = false;
            }
        }
    }
}

/// Sets both addresses of the IP header at `l3`.
fn set_addresses(packet: &mut Packet, l3: usize, v6: bool, new: &[u8]) {
    let Some(header) = packet.data_mut().get_mut(l3..) else { return };
    let range = addresses(v6);
    let Some(old) = header.get(range.clone()).filter(|old| *old != new) else { return };
    if !v6 {
        let sum = update_bytes(u16::from_be_bytes([header[10], header[11]]), old, new);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    header[range].copy_from_slice(new);
}
