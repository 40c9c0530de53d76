//! The result of tracking in a flow key: `ct_state`, zone, mark, labels, original tuple.

use crate::key::{Key, Rest, Words, is_icmp};
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
#[inline]
pub(crate) fn write(key: &mut FlowKey, zone: u16, state: u32, mark: u32, labels: u128, orig: &Key) {
    let b = &mut key.base;
    (b.ct_state, b.ct_zone, b.ct_mark) = (state | ct_state::TRK, zone, mark);
    b.shape |= shape::CT;
    let rest = orig.rest();
    let icmp_parts = [rest.dst >> 8, rest.dst & 0xff];
    *key.block_mut(CT_BLOCK) = [0; 8];
    let ct = &mut key.ct;
    ct.label = labels.to_be_bytes();
    ct.nw_proto = rest.proto;
    let icmp = is_icmp(rest.proto, matches!(orig, Key::V6(_)));
    (ct.tp_src, ct.tp_dst) = if icmp { (icmp_parts[0], icmp_parts[1]) } else { (rest.src, rest.dst) };
    match orig {
        Key::V4([addresses, _]) => {
            (ct.nw_src, ct.nw_dst) = ((addresses >> 32) as u32, *addresses as u32);
        }
        Key::V6(words) => {
            let bytes = |a: u64, b: u64| (u128::from(a) << 64 | u128::from(b)).to_be_bytes();
            (ct.ipv6_src, ct.ipv6_dst) = (bytes(words[0], words[1]), bytes(words[2], words[3]));
        }
    }
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
