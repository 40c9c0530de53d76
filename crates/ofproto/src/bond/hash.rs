//! The hash of `balance-slb`: MurmurHash3 of address and VLAN (public domain).

use flow::MacAddr;

/// The hash of a source address in a VLAN.
pub fn slb_hash(mac: MacAddr, vlan: u16, basis: u32) -> u8 {
    let key = u64::from(vlan) << 48 | mac.to_u64();
    murmur(&[key as u32, (key >> 32) as u32], basis) as u8
}

/// MurmurHash3 of whole words.
fn murmur(words: &[u32], basis: u32) -> u32 {
    let mut hash = words.iter().fold(basis, |hash, word| {
        let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    hash ^= 4 * words.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
