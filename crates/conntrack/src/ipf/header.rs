//! The headers of one fragment (RFC 791 §3.1, RFC 8200 §4.5): from bytes to a [`Fragment`], without a panic on any
//! input. Lengths count from the IP header.

use super::Refusal;
use crate::key::KeyHash;
use packet::Packet;
use packet::headers::{self as h, array, be16, be32};

/// Flag of IPv4 in the field of the fragment's offset.
pub(super) const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
const V6_MORE_FRAGMENTS: u16 = 1;
const V6_OFFSET: u16 = 0xfff8;
/// Bytes of a fragment header of IPv6.
pub(super) const V6_FRAGMENT_BYTES: usize = 8;
/// Maximum extension headers before that of the fragment.
const MAX_EXTENSIONS: usize = 32;

/// The fields that the fragments of one datagram share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// Addresses; of IPv4 in the first 4 bytes.
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    /// Identification.
    pub(super) id: u32,
    pub(super) recirc_id: u32,
    pub(super) zone: u16,
    /// Protocol of IPv4; 0 for IPv6, whose later fragments do not show it.
    pub(super) proto: u8,
    pub(super) v6: bool,
}

impl Key {
    /// Its hash, so that a sender cannot direct datagrams to one bucket.
    pub(super) fn hash(&self, by: &KeyHash) -> u64 {
        let half = |a: &[u8; 16], at: usize| array(a, at).map_or(0, u64::from_ne_bytes);
        by.of(&[
            half(&self.src, 0),
            half(&self.src, 8),
            half(&self.dst, 0),
            half(&self.dst, 8),
            u64::from(self.id) << 32 | u64::from(self.recirc_id),
            u64::from(self.zone) << 16 | u64::from(self.proto) << 8 | u64::from(self.v6),
        ])
    }
}

/// One fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    /// The datagram, without zone and recirculation id.
    pub(super) key: Key,
    /// First byte of the datagram's payload in this fragment.
    pub(super) start: u32,
    /// Byte after the last one: up to 131,000, because hostile offsets and lengths add up.
    pub(super) end: u32,
    /// No fragment follows.
    pub(super) last: bool,
    /// Bytes from the IP header to the end of the payload.
    pub(super) l3_bytes: u32,
    /// Offset of the payload from the IP header.
    pub(super) payload: u16,
    /// IPv6: offset of the fragment header, and of the field that names it.
    pub(super) header: u16,
    pub(super) named_at: u16,
}

/// Parses the fragment whose IP header is at `l3`.
pub(super) fn parse(packet: &Packet, l3: usize, v6: bool) -> Result<Fragment, Refusal> {
    let bytes = packet.data().get(l3..).ok_or(Refusal::Invalid)?;
    let fragment = if v6 { parse_v6(bytes)? } else { parse_v4(bytes)? };
    // Segmentation of a large segment and fragments exclude each other.
    if packet.offload.is_gso() { Err(Refusal::Invalid) } else { Ok(fragment) }
}

fn wide(address: [u8; 4]) -> [u8; 16] {
    let mut all = [0; 16];
    all[..4].copy_from_slice(&address);
    all
}

fn parse_v4(bytes: &[u8]) -> Result<Fragment, Refusal> {
    let ip: [u8; h::IPV4_HEADER_BYTES] = array(bytes, 0).ok_or(Refusal::Invalid)?;
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let place = word(6);
    if place & (MORE_FRAGMENTS | OFFSET) == 0 {
        return Err(Refusal::NotFragment);
    }
    let header_bytes = usize::from(ip[0] & 0xf) * 4;
    let total = usize::from(word(2));
    if header_bytes < h::IPV4_HEADER_BYTES || total < header_bytes || bytes.len() < total {
        return Err(Refusal::Invalid);
    }
    if packet::checksum::checksum(&bytes[..header_bytes]) != 0 {
        return Err(Refusal::BadChecksum);
    }
    let address = |at: usize| wide([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let key = Key {
        src: address(12),
        dst: address(16),
        id: word(4).into(),
        recirc_id: 0,
        zone: 0,
        proto: ip[9],
        v6: false,
    };
    let start = u32::from(place & OFFSET) * 8;
    Ok(Fragment {
        key,
        start,
        end: start + (total - header_bytes) as u32,
        last: place & MORE_FRAGMENTS == 0,
        l3_bytes: total as u32,
        payload: header_bytes as u16,
        header: 0,
        named_at: 0,
    })
}

fn parse_v6(bytes: &[u8]) -> Result<Fragment, Refusal> {
    let ip: [u8; h::IPV6_HEADER_BYTES] = array(bytes, 0).ok_or(Refusal::Invalid)?;
    let total = h::IPV6_HEADER_BYTES + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let found = fragment_header(&bytes[..bytes.len().min(total)], ip[6])?;
    if bytes.len() < total {
        return Err(Refusal::Invalid);
    }
    let payload = found.at + V6_FRAGMENT_BYTES;
    let start = u32::from(found.place & V6_OFFSET);
    let address = |at: usize| array(&ip, at).unwrap_or_default();
    let key =
        Key { src: address(8), dst: address(24), id: found.id, recirc_id: 0, zone: 0, proto: 0, v6: true };
    Ok(Fragment {
        key,
        start,
        end: start + (total - payload) as u32,
        last: found.place & V6_MORE_FRAGMENTS == 0,
        l3_bytes: total as u32,
        payload: u16::try_from(payload).map_err(|_| Refusal::Invalid)?,
        header: u16::try_from(found.at).map_err(|_| Refusal::Invalid)?,
        named_at: u16::try_from(found.named_at).map_err(|_| Refusal::Invalid)?,
    })
}

struct Found {
    at: usize,
    named_at: usize,
    /// Offset of the payload and flags.
    place: u16,
    id: u32,
}

/// The first header of a real fragment: one with an offset or more fragments.
fn fragment_header(bytes: &[u8], first: u8) -> Result<Found, Refusal> {
    let (mut at, mut named_at, mut next) = (h::IPV6_HEADER_BYTES, 6, first);
    for _ in 0..MAX_EXTENSIONS {
        if !h::is_ipv6_extension(next) {
            return Err(Refusal::NotFragment);
        }
        let (following, behind) = h::ipv6_next_header(bytes, at, next).ok_or(Refusal::NotFragment)?;
        if next == h::IPPROTO_FRAGMENT {
            let place = be16(bytes, at + 2).ok_or(Refusal::NotFragment)?;
            let id = be32(bytes, at + 4).ok_or(Refusal::NotFragment)?;
            if place & (V6_OFFSET | V6_MORE_FRAGMENTS) != 0 {
                return Ok(Found { at, named_at, place, id });
            }
        }
        named_at = at;
        (next, at) = (following, behind);
    }
    Err(Refusal::NotFragment)
}
