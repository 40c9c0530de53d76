//! Hashes of packets that distribute them over buckets and links: [`five_tuple`] and [`symmetric_l4`] of datapath
//! keys (`hash` actions), [`SymmetricL4`] and [`fields`] of flows in the slow path.
//!
//! All are keyed by a basis from the configuration alone, so they are equal on all threads and after a restart. A
//! sender that knows it can direct its own packets to one bucket.

use crate::fields::FieldId;
use crate::flow::{Flow, Mask, VlanTag};
use crate::key::{FlowKey, shape};
use packet::headers as h;

/// Odd constants: fractional parts of square roots of primes.
const P: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Multiplies to 128 bits and folds the halves.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// One end of a conversation: address as words, port.
type End = (u64, u64, u16);

fn mix(basis: u32, proto: u64, a: End, b: End) -> u32 {
    let addresses =
        fold(a.0 ^ P[0], a.1 ^ P[1] ^ u64::from(basis)) ^ fold(b.0 ^ P[2], b.1 ^ P[3]).rotate_left(32);
    let rest = proto << 32 | u64::from(a.2) << 16 | u64::from(b.2);
    let hash = fold(addresses ^ P[1], rest ^ P[0] ^ u64::from(basis) << 40);
    (hash ^ hash >> 32) as u32
}

/// 0 means "not computed" to datapaths.
fn nonzero(hash: u32) -> u32 {
    hash.max(1)
}

fn wide(address: &[u8; 16]) -> (u64, u64) {
    let n = u128::from_be_bytes(*address);
    ((n >> 64) as u64, n as u64)
}

/// Both ends and the protocol of a packet. Fragments have no ports, so all those of a datagram agree.
fn ends(key: &FlowKey, with_ports: bool) -> (End, End, u64) {
    let b = &key.base;
    let ((s0, s1), (d0, d1)) = match b.dl_type {
        h::ETH_TYPE_IP => ((0, b.nw_src.into()), (0, b.nw_dst.into())),
        h::ETH_TYPE_IPV6 if key.has(shape::IPV6) => (wide(&key.ipv6.src), wide(&key.ipv6.dst)),
        _ => ((0, 0), (0, 0)),
    };
    let is_ip = matches!(b.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6);
    let (src, dst) = if with_ports && is_ip && b.nw_frag == 0 { (b.tp_src, b.tp_dst) } else { (0, 0) };
    let proto = if is_ip { b.nw_proto.into() } else { 0 };
    ((s0, s1, src), (d0, d1, dst), u64::from(b.dl_type) << 8 | proto)
}

/// Hash over addresses, protocol and ports (`OVS_HASH_ALG_L4`); never 0.
pub fn five_tuple(key: &FlowKey, basis: u32) -> u32 {
    let (src, dst, proto) = ends(key, true);
    nonzero(mix(basis, proto, src, dst))
}

/// The same for both directions of a conversation (`OVS_HASH_ALG_SYM_L4`), without the ports of UDP; never 0.
pub fn symmetric_l4(key: &FlowKey, basis: u32) -> u32 {
    let (src, dst, proto) = ends(key, key.base.nw_proto != h::IPPROTO_UDP);
    nonzero(mix(basis, proto, src.min(dst), src.max(dst)))
}

/// Hash over Ethernet addresses, type, IP addresses, protocol and ports except those of UDP, equal in both
/// directions (`NX_HASH_FIELDS_SYMMETRIC_L4`).
#[derive(Clone, Copy, Debug)]
pub struct SymmetricL4;

impl SymmetricL4 {
    /// The hash of a flow.
    pub fn hash(self, flow: &Flow, basis: u32) -> u32 {
        let mac = |a: &[u8; 6]| a.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (s, d) = (mac(&flow.dl_src), mac(&flow.dl_dst));
        let l2 = fold(s.min(d) ^ P[2], s.max(d) ^ P[3]);
        let key = FlowKey::from_flow(flow, crate::DpPort(0));
        let (src, dst, proto) = ends(&key, flow.nw_proto != h::IPPROTO_UDP);
        (fold(l2, P[0]) as u32) ^ mix(basis, proto, src.min(dst), src.max(dst))
    }

    /// Adds the fields that it reads to a mask, and the VLAN of a tagged packet, as in OVS.
    pub fn add_mask(self, flow: &Flow, wc: &mut Mask) {
        let m = &mut wc.0;
        (m.dl_src, m.dl_dst) = ([0xff; 6], [0xff; 6]);
        m.dl_type = u16::MAX;
        let tags = flow.vlans.iter().zip(&mut m.vlans);
        for (_, mask) in tags.filter(|(tag, _)| tag.is_present()) {
            mask.tci |= VlanTag::PRESENT | VlanTag::VID;
        }
        if !flow.is_ip() {
            return;
        }
        m.nw_proto = u8::MAX;
        if flow.dl_type == h::ETH_TYPE_IP {
            (m.nw_src, m.nw_dst) = (u32::MAX, u32::MAX);
        } else {
            (m.ipv6_src, m.ipv6_dst) = ([0xff; 16], [0xff; 16]);
        }
        if flow.nw_proto != h::IPPROTO_UDP {
            (m.tp_src, m.tp_dst) = (u16::MAX, u16::MAX);
        }
    }
}

/// Hash over bits of chosen fields.
pub fn fields(flow: &Flow, fields: impl Iterator<Item = (FieldId, u128)>, basis: u64) -> u32 {
    let mut hash = fold(basis ^ P[0], P[1]);
    for (field, mask) in fields {
        let value = field.get(flow) & mask;
        hash = fold(hash ^ value as u64, (value >> 64) as u64 ^ P[2] ^ (field as u64) << 8);
    }
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests;
