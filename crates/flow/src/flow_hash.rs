//! Hashes of packets that distribute them over buckets and links: [`five_tuple`] and [`symmetric_l4`] of datapath
//! keys (`hash` actions), [`HashFields`] and [`fields`] of flows in the slow path.
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

#[inline(always)]
fn mix(basis: u32, proto: u64, a: End, b: End) -> u32 {
    let addresses =
        fold(a.0 ^ P[0], a.1 ^ P[1] ^ u64::from(basis)) ^ fold(b.0 ^ P[2], b.1 ^ P[3]).rotate_left(32);
    let rest = proto << 32 | u64::from(a.2) << 16 | u64::from(b.2);
    let hash = fold(addresses ^ P[1], rest ^ P[0] ^ u64::from(basis) << 40);
    (hash ^ hash >> 32) as u32
}

/// 0 means "not computed" to datapaths.
#[inline(always)]
fn nonzero(hash: u32) -> u32 {
    hash.max(1)
}

#[inline(always)]
fn wide(address: &[u8; 16]) -> (u64, u64) {
    let n = u128::from_be_bytes(*address);
    ((n >> 64) as u64, n as u64)
}

fn mac(address: &[u8; 6]) -> u64 {
    address.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn is_ip(key: &FlowKey) -> bool {
    matches!(key.base.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6)
}

/// Both ends and the protocol of a packet. Fragments have no ports, so all those of a datagram agree.
#[inline(always)]
fn ends(key: &FlowKey, with_ports: bool) -> (End, End, u64) {
    let b = &key.base;
    let ((s0, s1), (d0, d1)) = match b.dl_type {
        h::ETH_TYPE_IP => ((0, b.nw_src.into()), (0, b.nw_dst.into())),
        h::ETH_TYPE_IPV6 if key.has(shape::IPV6) => (wide(&key.ipv6.src), wide(&key.ipv6.dst)),
        _ => ((0, 0), (0, 0)),
    };
    let is_ip = is_ip(key);
    let (src, dst) = if with_ports && is_ip && b.nw_frag == 0 { (b.tp_src, b.tp_dst) } else { (0, 0) };
    let proto = if is_ip { b.nw_proto.into() } else { 0 };
    ((s0, s1, src), (d0, d1, dst), u64::from(b.dl_type) << 8 | proto)
}

/// Hash over addresses, protocol and ports (`OVS_HASH_ALG_L4`); never 0.
#[inline(always)]
pub fn five_tuple(key: &FlowKey, basis: u32) -> u32 {
    let b = &key.base;
    if b.dl_type == h::ETH_TYPE_IP {
        // Addresses fit in one word, so one multiplication mixes all.
        let ports = if b.nw_frag == 0 { u64::from(b.tp_src) << 16 | u64::from(b.tp_dst) } else { 0 };
        let addresses = u64::from(b.nw_src) << 32 | u64::from(b.nw_dst);
        let rest = u64::from(b.nw_proto) << 32 | ports;
        let hash = fold(addresses ^ P[0] ^ u64::from(basis), rest ^ P[1] ^ u64::from(basis) << 40);
        return nonzero((hash ^ hash >> 32) as u32);
    }
    let (src, dst, proto) = ends(key, true);
    nonzero(mix(basis, proto, src, dst))
}

/// Hash that is equal for both directions of a conversation (`OVS_HASH_ALG_SYM_L4`), without the ports of UDP; never 0. As in OVS,
/// Ethernet addresses, VLAN and type decide for packets without IP.
pub fn symmetric_l4(key: &FlowKey, basis: u32) -> u32 {
    let b = &key.base;
    if !is_ip(key) {
        let [src, dst]: [End; 2] = [(0, mac(&b.dl_src), 0), (0, mac(&b.dl_dst), 0)];
        let kind = u64::from(b.vlan_tci & VlanTag::VID) << 16 | u64::from(b.dl_type);
        return nonzero(mix(basis, kind, src.min(dst), src.max(dst)));
    }
    let (src, dst, proto) = ends(key, key.base.nw_proto != h::IPPROTO_UDP);
    nonzero(mix(basis, proto, src.min(dst), src.max(dst)))
}

/// Fields of a hash in the slow path (`enum nx_hash_fields`). Symmetric hashes are equal in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum HashFields {
    /// Ethernet source.
    EthSrc,
    /// Ethernet addresses and type, IP addresses, protocol and ports except those of UDP.
    SymmetricL4,
    /// IP addresses, protocol, ports of TCP and SCTP.
    SymmetricL3L4,
    /// IP addresses, protocol, ports of TCP, SCTP and UDP.
    SymmetricL3L4Udp,
    /// IP source.
    NwSrc,
    /// IP destination.
    NwDst,
    /// IP addresses.
    SymmetricL3,
}

impl HashFields {
    /// All, in the order of their numbers.
    pub const ALL: [HashFields; 7] = [
        HashFields::EthSrc,
        HashFields::SymmetricL4,
        HashFields::SymmetricL3L4,
        HashFields::SymmetricL3L4Udp,
        HashFields::NwSrc,
        HashFields::NwDst,
        HashFields::SymmetricL3,
    ];

    /// The name in the text of actions.
    pub fn name(self) -> &'static str {
        match self {
            HashFields::EthSrc => "eth_src",
            HashFields::SymmetricL4 => "symmetric_l4",
            HashFields::SymmetricL3L4 => "symmetric_l3l4",
            HashFields::SymmetricL3L4Udp => "symmetric_l3l4+udp",
            HashFields::NwSrc => "nw_src",
            HashFields::NwDst => "nw_dst",
            HashFields::SymmetricL3 => "symmetric_l3",
        }
    }

    /// Whether it reads the ports of such a packet.
    fn has_ports(self, flow: &Flow) -> bool {
        let is_udp = flow.nw_proto == h::IPPROTO_UDP;
        let is_stream = matches!(flow.nw_proto, h::IPPROTO_TCP | h::IPPROTO_SCTP);
        match self {
            HashFields::SymmetricL4 => !is_udp,
            HashFields::SymmetricL3L4 => is_stream && flow.nw_frag == 0,
            HashFields::SymmetricL3L4Udp => (is_stream || is_udp) && flow.nw_frag == 0,
            HashFields::EthSrc | HashFields::NwSrc | HashFields::NwDst | HashFields::SymmetricL3 => false,
        }
    }

    /// Whether it reads source address, destination address and protocol of IP.
    fn reads_ip(self) -> [bool; 3] {
        match self {
            HashFields::EthSrc => [false; 3],
            HashFields::SymmetricL4 | HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => [true; 3],
            HashFields::NwSrc => [true, false, false],
            HashFields::NwDst => [false, true, false],
            HashFields::SymmetricL3 => [true, true, false],
        }
    }

    /// The hash of a flow.
    pub fn hash(self, flow: &Flow, basis: u32) -> u32 {
        let (s, d) = (mac(&flow.dl_src), mac(&flow.dl_dst));
        let key = FlowKey::from_flow(flow, crate::DpPort(0));
        let (src, dst, proto) = ends(&key, self.has_ports(flow));
        let none: End = (0, 0, 0);
        match self {
            HashFields::EthSrc => mix(basis, 0, (0, s, 0), none),
            HashFields::NwSrc => mix(basis, 0, src, none),
            HashFields::NwDst => mix(basis, 0, dst, none),
            HashFields::SymmetricL3 => mix(basis, 0, src.min(dst), src.max(dst)),
            HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => {
                mix(basis, proto, src.min(dst), src.max(dst))
            }
            HashFields::SymmetricL4 => {
                let l2 = fold(s.min(d) ^ P[2], s.max(d) ^ P[3]);
                (fold(l2, P[0]) as u32) ^ mix(basis, proto, src.min(dst), src.max(dst))
            }
        }
    }

    /// Adds the fields that it reads to a mask, and for `symmetric_l4` the VLAN of a tagged packet, as in OVS.
    pub fn add_mask(self, flow: &Flow, wc: &mut Mask) {
        let m = &mut wc.0;
        m.dl_type = u16::MAX;
        if self == HashFields::EthSrc {
            m.dl_src = [0xff; 6];
        }
        if self == HashFields::SymmetricL4 {
            (m.dl_src, m.dl_dst) = ([0xff; 6], [0xff; 6]);
            let tags = flow.vlans.iter().zip(&mut m.vlans);
            for (_, mask) in tags.filter(|(tag, _)| tag.is_present()) {
                mask.tci |= VlanTag::PRESENT | VlanTag::VID;
            }
        }
        if !flow.is_ip() {
            return;
        }
        let [src, dst, proto] = self.reads_ip();
        let is_ipv4 = flow.dl_type == h::ETH_TYPE_IP;
        match (src, is_ipv4) {
            (true, true) => m.nw_src = u32::MAX,
            (true, false) => m.ipv6_src = [0xff; 16],
            (false, _) => {}
        }
        match (dst, is_ipv4) {
            (true, true) => m.nw_dst = u32::MAX,
            (true, false) => m.ipv6_dst = [0xff; 16],
            (false, _) => {}
        }
        if proto {
            m.nw_proto = u8::MAX;
        }
        if self.has_ports(flow) {
            (m.tp_src, m.tp_dst) = (u16::MAX, u16::MAX);
        }
    }
}

/// The `n`th of further hashes derived from `hash`.
pub fn rehash(hash: u32, n: u32) -> u32 {
    let mixed = (u64::from(hash) << 32 | u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
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
