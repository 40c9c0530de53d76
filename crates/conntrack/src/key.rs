//! [`Key`]: a tuple and its zone, packed into words.
//!
//! The last word holds source port, destination port, zone and protocol, from the high bits down; ICMP has its
//! identifier as source port, type and code as destination port. The words before are the addresses: one word for both of
//! IPv4, two words each of IPv6. Equal tuples have equal words, so comparison and hash need no parsing.

use dpif::{CtAddresses, CtTransport, CtTuple};
use packet::headers as h;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Words of an IPv4 key.
pub(crate) const V4_WORDS: usize = 2;
/// Words of an IPv6 key.
pub(crate) const V6_WORDS: usize = 5;

/// A tuple and its zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// A key of IPv4.
    V4([u64; V4_WORDS]),
    /// A key of IPv6.
    V6([u64; V6_WORDS]),
}

/// Zone, protocol and ports of a tuple: its last word, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// Source port, or ICMP identifier.
    pub src: u16,
    /// Destination port, or ICMP type and code.
    pub dst: u16,
    /// Zone.
    pub zone: u16,
    /// IP protocol.
    pub proto: u8,
}

impl Rest {
    #[inline(always)]
    pub(crate) const fn pack(self) -> u64 {
        (self.src as u64) << 48 | (self.dst as u64) << 32 | (self.zone as u64) << 16 | self.proto as u64
    }

    #[inline(always)]
    pub(crate) const fn unpack(word: u64) -> Rest {
        Rest {
            src: (word >> 48) as u16,
            dst: (word >> 32) as u16,
            zone: (word >> 16) as u16,
            proto: word as u8,
        }
    }
}

/// The reply type of an ICMP request, or the request of a reply; `None` for other types.
pub(crate) fn answer_of(icmp_type: u8, is_v6: bool) -> Option<u8> {
    Some(match (is_v6, icmp_type) {
        (false, 8) => 0,
        (false, 0) => 8,
        (false, 13) => 14,
        (false, 14) => 13,
        (false, 15) => 16,
        (false, 16) => 15,
        (true, 128) => 129,
        (true, 129) => 128,
        _ => return None,
    })
}

/// Whether the protocol is ICMP of that address family.
pub(crate) const fn is_icmp(proto: u8, is_v6: bool) -> bool {
    proto == if is_v6 { h::IPPROTO_ICMPV6 } else { h::IPPROTO_ICMP }
}

fn halves(addr: Ipv6Addr) -> [u64; 2] {
    let all = u128::from(addr);
    [(all >> 64) as u64, all as u64]
}

/// The words of a key of one family.
pub(crate) trait Words: Copy + Eq + AsRef<[u64]> {
    const IS_V6: bool;

    /// Swaps source and destination addresses.
    fn swap_addresses(&mut self);

    fn addresses(&self) -> [IpAddr; 2];

    #[inline(always)]
    fn rest(&self) -> Rest {
        Rest::unpack(self.as_ref()[self.as_ref().len() - 1])
    }

    fn set_rest(&mut self, rest: Rest);

    fn set_src(&mut self, addr: IpAddr);

    fn set_dst(&mut self, addr: IpAddr);

    fn key(self) -> Key;

    /// The words of a key of this family.
    fn of(key: Key) -> Option<Self>;

    /// Writes the addresses into the words of the block of connections of a flow key ([`flow::CtBlock`]).
    fn write_addresses(&self, block: &mut [u64; 8]);

    /// The tuple of the opposite direction.
    #[inline(always)]
    fn reversed(&self) -> Self {
        let mut words = *self;
        words.swap_addresses();
        let rest = self.rest();
        words.set_rest(if is_icmp(rest.proto, Self::IS_V6) {
            let kind = answer_of((rest.dst >> 8) as u8, Self::IS_V6).unwrap_or((rest.dst >> 8) as u8);
            Rest { dst: u16::from(kind) << 8 | rest.dst & 0xff, ..rest }
        } else {
            Rest { src: rest.dst, dst: rest.src, ..rest }
        });
        words
    }
}

impl Words for [u64; V4_WORDS] {
    const IS_V6: bool = false;

    #[inline]
    fn swap_addresses(&mut self) {
        self[0] = self[0].rotate_left(32);
    }

    fn addresses(&self) -> [IpAddr; 2] {
        [(self[0] >> 32) as u32, self[0] as u32].map(|a| Ipv4Addr::from(a).into())
    }

    #[inline]
    fn set_rest(&mut self, rest: Rest) {
        self[1] = rest.pack();
    }

    fn set_src(&mut self, addr: IpAddr) {
        if let IpAddr::V4(addr) = addr {
            self[0] = u64::from(u32::from(addr)) << 32 | self[0] & 0xffff_ffff;
        }
    }

    fn set_dst(&mut self, addr: IpAddr) {
        if let IpAddr::V4(addr) = addr {
            self[0] = self[0] & !0xffff_ffff | u64::from(u32::from(addr));
        }
    }

    #[inline]
    fn key(self) -> Key {
        Key::V4(self)
    }

    fn of(key: Key) -> Option<Self> {
        if let Key::V4(words) = key { Some(words) } else { None }
    }

    #[inline(always)]
    fn write_addresses(&self, block: &mut [u64; 8]) {
        let [a, b, c, d] = ((self[0] >> 32) as u32).to_ne_bytes();
        let [e, f, g, h] = (self[0] as u32).to_ne_bytes();
        block[6] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    }
}

impl Words for [u64; V6_WORDS] {
    const IS_V6: bool = true;

    #[inline]
    fn swap_addresses(&mut self) {
        *self = [self[2], self[3], self[0], self[1], self[4]];
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let addr = |at: usize| u128::from(self[at]) << 64 | u128::from(self[at + 1]);
        [addr(0), addr(2)].map(|a| Ipv6Addr::from(a).into())
    }

    #[inline]
    fn set_rest(&mut self, rest: Rest) {
        self[4] = rest.pack();
    }

    fn set_src(&mut self, addr: IpAddr) {
        if let IpAddr::V6(addr) = addr {
            [self[0], self[1]] = halves(addr);
        }
    }

    fn set_dst(&mut self, addr: IpAddr) {
        if let IpAddr::V6(addr) = addr {
            [self[2], self[3]] = halves(addr);
        }
    }

    #[inline]
    fn key(self) -> Key {
        Key::V6(self)
    }

    fn of(key: Key) -> Option<Self> {
        if let Key::V6(words) = key { Some(words) } else { None }
    }

    #[inline(always)]
    fn write_addresses(&self, block: &mut [u64; 8]) {
        for n in 0..4 {
            block[2 + n] = self[n].to_be();
        }
    }
}

impl Key {
    /// The lowest key.
    pub(crate) const MIN: Key = Key::V4([0; V4_WORDS]);

    pub(crate) fn is_v6(&self) -> bool {
        matches!(self, Key::V6(_))
    }

    pub(crate) fn with_rest(mut self, rest: Rest) -> Key {
        match &mut self {
            Key::V4(words) => words.set_rest(rest),
            Key::V6(words) => words.set_rest(rest),
        }
        self
    }

    /// The key of a tuple; `None` for an ICMP type that begins and answers no connection.
    pub fn of(tuple: &CtTuple, zone: u16) -> Option<Key> {
        let is_v6 = matches!(tuple.addresses, CtAddresses::V6 { .. });
        let (src, dst) = match tuple.transport {
            CtTransport::Ports { src, dst } => (src, dst),
            CtTransport::Icmp { id, kind, code } => {
                answer_of(kind, is_v6)?;
                (id, u16::from_be_bytes([kind, code]))
            }
        };
        let rest = Rest { src, dst, zone, proto: tuple.proto }.pack();
        Some(match tuple.addresses {
            CtAddresses::V4 { src, dst } => {
                Key::V4([u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst)), rest])
            }
            CtAddresses::V6 { src, dst } => {
                let ([a, b], [c, d]) = (halves(src), halves(dst));
                Key::V6([a, b, c, d, rest])
            }
        })
    }

    /// Its tuple.
    pub fn tuple(&self) -> CtTuple {
        let rest = self.rest();
        let addresses = match self.addresses() {
            [IpAddr::V4(src), IpAddr::V4(dst)] => CtAddresses::V4 { src, dst },
            [IpAddr::V6(src), IpAddr::V6(dst)] => CtAddresses::V6 { src, dst },
            _ => unreachable!("both addresses of a key have one family"),
        };
        let transport = if rest.proto == addresses.icmp() {
            let [kind, code] = rest.dst.to_be_bytes();
            CtTransport::Icmp { id: rest.src, kind, code }
        } else {
            CtTransport::Ports { src: rest.src, dst: rest.dst }
        };
        CtTuple { addresses, proto: rest.proto, transport }
    }

    /// Zone, protocol and ports.
    #[inline(always)]
    pub fn rest(&self) -> Rest {
        match self {
            Key::V4(words) => words.rest(),
            Key::V6(words) => words.rest(),
        }
    }

    /// Source and destination address.
    #[inline]
    pub fn addresses(&self) -> [IpAddr; 2] {
        match self {
            Key::V4(words) => words.addresses(),
            Key::V6(words) => words.addresses(),
        }
    }

    /// The key of the opposite direction.
    pub fn reversed(&self) -> Key {
        match self {
            Key::V4(words) => words.reversed().key(),
            Key::V6(words) => words.reversed().key(),
        }
    }
}

/// A keyed hash of keys. Its seed is secret, so that senders cannot choose keys of one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash {
    seed: [u64; 2],
}

/// Odd, without pattern: the fraction of the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide >> 64) as u64 ^ wide as u64
}

impl KeyHash {
    pub(crate) fn new(seed: u64) -> KeyHash {
        KeyHash { seed: [fold(seed ^ MIX, MIX), fold(seed.rotate_left(32) ^ !MIX, MIX) | 1] }
    }

    #[inline(always)]
    pub(crate) fn of(&self, words: &[u64]) -> u64 {
        let mut hash = self.seed[0];
        for pair in words.chunks(2) {
            let second = pair.get(1).copied().unwrap_or(0);
            hash = fold(pair[0] ^ hash, second ^ self.seed[1]) ^ hash.rotate_left(17);
        }
        fold(hash ^ self.seed[1], MIX)
    }
}

#[cfg(test)]
mod tests;
