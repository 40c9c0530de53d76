//! The result of tracking in a flow key: `ct_state`, zone, mark, labels, original tuple.

use crate::key::{Rest, Words, is_icmp};
use flow::{FlowKey, ct_state, shape};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The extension block of connections.
const CT_BLOCK: usize = 1 + shape::CT.trailing_zeros() as usize;

/// Marks a packet as invalid.
pub(crate) fn write_invalid(key: &mut FlowKey, zone: u16) {
    key.clear_tracking();
    (key.base.ct_state, key.base.ct_zone) = (ct_state::INV | ct_state::TRK, zone);
}

/// Writes the result of tracking into a key.
#[inline(always)]
pub(crate) fn write<W: Words>(key: &mut FlowKey, zone: u16, state: u32, mark: u32, labels: u128, orig: &W) {
    let b = &mut key.base;
    (b.ct_state, b.ct_zone, b.ct_mark) = (state | ct_state::TRK, zone, mark);
    b.shape |= shape::CT;
    let rest = orig.rest();
    let (tp_src, tp_dst) = match is_icmp(rest.proto, W::IS_V6) {
        true => (rest.dst >> 8, rest.dst & 0xff),
        false => (rest.src, rest.dst),
    };
    // Whole words: the block is read as a whole soon.
    let mut words = [0; 8];
    words[0] = ((labels >> 64) as u64).to_be();
    words[1] = (labels as u64).to_be();
    orig.write_addresses(&mut words);
    let [a, b] = tp_src.to_ne_bytes();
    let [c, d] = tp_dst.to_ne_bytes();
    words[7] = u64::from_ne_bytes([a, b, c, d, rest.proto, 0, 0, 0]);
    *key.block_mut(CT_BLOCK) = words;
}

/// The original tuple in a key, with the ICMP identifier of the packet's own key `words`.
pub(crate) fn original_tuple<const W: usize>(words: [u64; W], key: &FlowKey) -> Option<[u64; W]>
where
    [u64; W]: Words,
{
    let ct = &key.ct;
    if ct.nw_proto == 0 {
        return None;
    }
    let mut orig = words;
    let is_v6 = <[u64; W]>::IS_V6;
    if is_v6 {
        orig.set_src(Ipv6Addr::from(ct.ipv6_src).into());
        orig.set_dst(Ipv6Addr::from(ct.ipv6_dst).into());
    } else {
        orig.set_src(Ipv4Addr::from(ct.nw_src).into());
        orig.set_dst(Ipv4Addr::from(ct.nw_dst).into());
    }
    let rest = words.rest();
    let (src, dst) = match is_icmp(ct.nw_proto, is_v6) {
        true => (rest.src, ct.tp_src << 8 | ct.tp_dst & 0xff),
        false => (ct.tp_src, ct.tp_dst),
    };
    orig.set_rest(Rest { src, dst, proto: ct.nw_proto, ..rest });
    Some(orig)
}
