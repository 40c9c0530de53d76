//! Ethernet address and datapath id of a bridge.

use ofproto::MacAddr;

/// A locally administered address of a single station, always the same for the same seed and names.
pub(super) fn derived_mac(seed: u64, names: &[&str]) -> MacAddr {
    // FNV-1a over seed and names, then the finalizer of SplitMix64. Collisions cost an operator's `hwaddr`, no more.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    for byte in seed.to_be_bytes().into_iter().chain(bytes) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut mac = MacAddr::from_u64((hash ^ (hash >> 31)) & 0xffff_ffff_ffff);
    mac.0[0] = mac.0[0] & !1 | 2;
    mac
}

/// Whether the address of a port may become that of its bridge: a real device's, not one made up by software.
pub(super) fn may_represent(mac: MacAddr) -> bool {
    !mac.is_multicast() && !mac.is_zero() && mac.0[0] & 2 == 0
}
