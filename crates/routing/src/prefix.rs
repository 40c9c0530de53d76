//! [`Prefix`]: a network address and its length.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address whose bits beyond the length are zero. IPv4-mapped IPv6 networks are IPv4 networks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The network of that many leading bits around an address; `None` if the family has fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        let (address, len) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if len >= 96 => (v4, len - 96),
            _ => (address, len),
        };
        let width = width(address);
        (len <= width).then(|| Prefix { address: of_bits(bits(address) & ones(len), address.is_ipv4()), len })
    }

    /// The network of one address.
    pub fn host(address: IpAddr) -> Prefix {
        let address = address.to_canonical();
        Prefix { address, len: width(address) }
    }

    /// The network address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Leading bits that are fixed: at most 32 for IPv4, 128 for IPv6.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether it covers all addresses of its family.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an address, of the same family, is within.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && bits(address) & ones(self.len) == bits(self.address)
    }

    /// Its bits, left-aligned.
    pub(crate) fn bits(&self) -> u128 {
        bits(self.address)
    }

    /// From left-aligned bits.
    pub(crate) fn of_bits(bits: u128, len: u8, is_ipv4: bool) -> Prefix {
        Prefix { address: of_bits(bits, is_ipv4), len }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", crate::text::address(self.address), self.len)
    }
}

/// Bits of an address of this family.
pub(crate) fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits of an address, left-aligned.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
        IpAddr::V6(a) => u128::from(a),
    }
}

fn of_bits(bits: u128, is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => IpAddr::V4(Ipv4Addr::from((bits >> 96) as u32)),
        false => IpAddr::V6(Ipv6Addr::from(bits)),
    }
}

/// A mask of leading ones.
pub(crate) fn ones(len: u8) -> u128 {
    !u128::MAX.checked_shr(len.into()).unwrap_or(0)
}
