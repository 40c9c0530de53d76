//! Incremental checksums of rewritten headers (RFC 1624; for SCTP the CRC of RFC 9260 appendix A), so that wrong
//! ones stay wrong.
//!
//! The checksum field of a frame with `offload.needs_csum` holds only the sum of the pseudo-header, not
//! complemented; a device adds the rest. A change of ports thus changes nothing there, a change of addresses the sum
//! itself.

use packet::checksum;
use packet::{Offload, Packet};

/// Location and kind of a transport checksum.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// Frame offset of the checksum.
    pub(crate) at: usize,
    /// 0 means "no checksum" (UDP).
    pub(crate) zero_is_none: bool,
}

#[inline]
pub(crate) fn is_partial(packet: &Packet, at: usize) -> bool {
    let o = &packet.offload;
    o.needs_csum && usize::from(o.csum_start) + usize::from(o.csum_offset) == at
}

fn read(packet: &Packet, at: usize) -> u16 {
    packet::headers::be16(packet.data(), at).unwrap_or(0)
}

fn write(packet: &mut Packet, at: usize, value: u16) {
    if let Some(field) = packet.data_mut().get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
fn update(packet: &mut Packet, field: Field, old: &[u8], new: &[u8]) {
    let csum = read(packet, field.at);
    if field.zero_is_none && csum == 0 {
        return;
    }
    write(packet, field.at, non_zero(field, checksum::update_bytes(csum, old, new)));
}

/// A sum in the form of its field.
fn non_zero(field: Field, csum: u16) -> u16 {
    if field.zero_is_none && csum == 0 { 0xffff } else { csum }
}

/// Updates it for addresses of the pseudo-header, each changed from the first to the second.
#[inline]
pub(crate) fn addresses_changed<const N: usize>(
    packet: &mut Packet,
    field: Field,
    changes: [(&[u8; N], &[u8; N]); 2],
) {
    let partial = is_partial(packet, field.at);
    let mut csum = read(packet, field.at);
    if !partial && field.zero_is_none && csum == 0 {
        return;
    }
    for (old, new) in changes {
        csum = if partial {
            !checksum::update_bytes(!csum, old, new)
        } else {
            non_zero(field, checksum::update_bytes(csum, old, new))
        };
    }
    write(packet, field.at, csum);
}

/// Updates it for bytes of the transport header or payload (same even length, aligned).
#[inline]
pub(crate) fn body_changed(packet: &mut Packet, field: Field, old: &[u8], new: &[u8]) {
    if !is_partial(packet, field.at) {
        update(packet, field, old, new);
    }
}

/// Completes in software a checksum left to a device by `offload.needs_csum`. An offset of 8, unlike any Internet
/// checksum's, identifies SCTP's field (CRC32c, RFC 9260 §6.8).
pub(crate) fn complete(packet: &mut Packet) {
    let o = packet.offload;
    if !o.needs_csum {
        return;
    }
    packet.offload = Offload { needs_csum: false, ..o };
    let start = usize::from(o.csum_start);
    let at = start + usize::from(o.csum_offset);
    let Some(body) = packet.data().get(start..) else { return };
    if at + 2 > packet.len() {
        return;
    }
    if o.csum_offset == 8 {
        return sctp(packet, start, packet.len());
    }
    let csum = !checksum::fold(checksum::sum(body, 0));
    write(packet, at, if csum == 0 { 0xffff } else { csum });
}

const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, b| CRC32C[usize::from(crc as u8 ^ b)] ^ crc >> 8)
}

/// The checksum of the SCTP packet `sctp` in header format (with its own field as zero).
pub(crate) fn sctp_sum(sctp: &[u8]) -> [u8; 4] {
    let (ports, rest) = sctp.split_at(sctp.len().min(8));
    let crc = crc32c(crc32c(u32::MAX, ports), &[0; 4]);
    (!crc32c(crc, rest.get(4..).unwrap_or(&[]))).to_le_bytes()
}

/// Updates the checksum for changed ports of the SCTP packet at `start..end` of the frame, unless a device completes
/// it. A CRC is linear: the changed bits alone determine its own changed bits, so a wrong checksum stays wrong.
pub(crate) fn sctp_ports_changed(packet: &mut Packet, start: usize, end: usize, old: [u8; 4], new: [u8; 4]) {
    if is_partial(packet, start + 8) {
        return;
    }
    let Some(sctp) = packet.data_mut().get_mut(start..end).filter(|s| s.len() >= 12) else { return };
    let changed: [u8; 4] = std::array::from_fn(|i| old[i] ^ new[i]);
    let crc = (4..sctp.len()).fold(crc32c(0, &changed), |crc, _| crc32c(crc, &[0]));
    for (byte, flipped) in sctp[8..12].iter_mut().zip(crc.to_le_bytes()) {
        *byte ^= flipped;
    }
}

/// Writes the checksum of the SCTP packet at `start..end` of the frame.
fn sctp(packet: &mut Packet, start: usize, end: usize) {
    let Some(sctp) = packet.data_mut().get_mut(start..end).filter(|s| s.len() >= 12) else { return };
    let sum = sctp_sum(sctp);
    sctp[8..12].copy_from_slice(&sum);
}
