//! The Internet checksum (RFC 1071), whole and incremental (RFC 1624 eqn. 3).

/// One's-complement sum of `data`, added to `sum`; not yet folded. An odd last byte counts as the high half of a word.
///
/// Adds words in the processor's byte order and swaps the bytes of the sum, which is the same (RFC 1071 §2).
#[inline]
pub fn sum(data: &[u8], sum: u64) -> u64 {
    let mut acc = 0;
    let mut words = data.chunks_exact(8);
    for w in &mut words {
        // Vectorized, unlike a chain of carries, which takes four times as long for long data.
        let w = u64::from_ne_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]);
        acc += (w & 0xffff_ffff) + (w >> 32);
    }
    let mut rest = words.remainder();
    if let Some((w, after)) = rest.split_first_chunk::<4>() {
        acc += u64::from(u32::from_ne_bytes(*w));
        rest = after;
    }
    if let Some((w, after)) = rest.split_first_chunk::<2>() {
        acc += u64::from(u16::from_ne_bytes(*w));
        rest = after;
    }
    if let [last] = rest {
        acc += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum + be_halves(acc)
}

/// The same sum of words in network byte order: swaps the bytes of each 16-bit half, if needed.
#[inline]
fn be_halves(sum: u64) -> u64 {
    const HIGH: u64 = 0xff00_ff00_ff00_ff00;
    if cfg!(target_endian = "big") { sum } else { (sum & HIGH) >> 8 | (sum & !HIGH) << 8 }
}

/// Folds a sum to 16 bits without complementing. Without a branch: the number of carries is hard to predict.
#[inline]
pub fn fold(sum: u64) -> u16 {
    let (words, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let words = words + u32::from(carry);
    let (halves, carry) = (words as u16).overflowing_add((words >> 16) as u16);
    halves + u16::from(carry)
}

/// The checksum of `data`: complement of its folded sum.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    !fold(sum(data, 0))
}

/// Whether an IPv4 header without options has the right checksum: [`checksum`] is 0.
#[inline(always)]
pub fn ipv4_header_is_right(header: &[u8; crate::headers::IPV4_HEADER_BYTES]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    // Words of any size and byte order have the same sum modulo 0xffff (RFC 1071 §2). Only zeros sum up to 0.
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    (sum != 0) & sum.is_multiple_of(0xffff)
}

/// The checksum `csum` after a covered 16-bit word changed from `old` to `new` (RFC 1624).
pub fn update16(csum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!csum) + u64::from(!old) + u64::from(new))
}

/// The checksum `csum` after a covered aligned byte range changed from `old` to `new` (same even length).
#[inline]
pub fn update_bytes(csum: u16, old: &[u8], new: &[u8]) -> u16 {
    debug_assert_eq!(old.len(), new.len());
    debug_assert_eq!(old.len() % 2, 0);
    !fold(u64::from(!csum) + u64::from(!fold(sum(old, 0))) + sum(new, 0))
}

/// Unfolded sum of a TCP/UDP/ICMPv6 pseudo-header: addresses (4 or 16 bytes each), protocol, layer-4 length.
#[inline]
pub fn pseudo(src: &[u8], dst: &[u8], proto: u8, l4_bytes: usize) -> u64 {
    sum(src, sum(dst, u64::from(proto) + l4_bytes as u64))
}
