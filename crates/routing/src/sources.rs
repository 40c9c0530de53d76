//! Choice of a source address, as Linux makes it for a route of its own.
//!
//! IPv4: the first primary address of the device whose network contains the gateway, else the device's first, else the
//! machine's first. IPv6: RFC 6724 §5 without home and temporary addresses.

use crate::prefix::{Prefix, bits};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Reach of an address or a route (`rt_scope_t`): everywhere.
pub const SCOPE_UNIVERSE: u8 = 0;
/// Reach of an address or a route: the link.
pub const SCOPE_LINK: u8 = 253;
/// Reach of an address or a route: this machine.
pub const SCOPE_HOST: u8 = 254;

/// An address of a device with the length of its network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub len: u8,
    /// Its reach.
    pub scope: u8,
    /// IPv4: another one of this network is primary. IPv6: not to be used yet, or no more.
    pub is_unused: bool,
    /// Others are preferred.
    pub is_deprecated: bool,
}

impl InterfaceAddress {
    /// An address in use that reaches everywhere.
    pub fn new(address: IpAddr, len: u8) -> InterfaceAddress {
        InterfaceAddress { address, len, scope: SCOPE_UNIVERSE, is_unused: false, is_deprecated: false }
    }

    pub(crate) fn network_contains(&self, other: IpAddr) -> bool {
        Prefix::new(self.address, self.len).is_some_and(|network| network.contains(other))
    }
}

/// Addresses that other devices' routes may have as their source, by index and name of the device.
#[derive(Clone, Default)]
pub(crate) struct Borrowable {
    ipv4: imbl::OrdMap<(u32, Arc<str>), IpAddr>,
    ipv6: imbl::OrdMap<(u32, Arc<str>), Arc<[InterfaceAddress]>>,
}

impl Borrowable {
    /// Sets the addresses of a device.
    pub(crate) fn set(&mut self, key: (u32, Arc<str>), addresses: &[InterfaceAddress]) {
        let ipv4 = addresses.iter().find(|a| a.address.is_ipv4() && !a.is_unused && a.scope < SCOPE_LINK);
        let is_far = |a: &&InterfaceAddress| match a.address {
            IpAddr::V4(_) => false,
            IpAddr::V6(ip) => !a.is_unused && reach(ip) > REACH_LINK,
        };
        let ipv6: Arc<[InterfaceAddress]> = addresses.iter().filter(is_far).copied().collect();
        match ipv4 {
            Some(a) => self.ipv4.insert(key.clone(), a.address),
            None => self.ipv4.remove(&key),
        };
        match ipv6.is_empty() {
            false => self.ipv6.insert(key, ipv6),
            true => self.ipv6.remove(&key),
        };
    }
}

/// Source address of packets of IPv4 by a device with these addresses, on a route of this scope.
pub(crate) fn of_ipv4(
    own: &[InterfaceAddress],
    others: &Borrowable,
    gateway: Option<IpAddr>,
    scope: u8,
) -> Option<IpAddr> {
    let usable = || own.iter().filter(|a| a.address.is_ipv4() && !a.is_unused && a.scope <= scope);
    let near = gateway.filter(IpAddr::is_ipv4);
    let best =
        usable().find(|a| near.is_none_or(|near| a.network_contains(near))).or_else(|| usable().next());
    best.map(|a| a.address).or_else(|| others.ipv4.values().next().copied())
}

/// Source address of packets of IPv6 by a device with these addresses, on a route of this scope.
pub(crate) fn of_ipv6(own: &[InterfaceAddress], others: &Borrowable, dst: Ipv6Addr) -> Option<IpAddr> {
    let best = |all: &mut dyn Iterator<Item = &InterfaceAddress>| {
        let usable = all.filter_map(|a| match a.address {
            IpAddr::V6(ip) if !a.is_unused => Some((ip, *a)),
            _ => None,
        });
        // Reversed: the first of the best.
        let all: Vec<_> = usable.collect();
        all.into_iter().rev().max_by_key(|(ip, a)| rank(*ip, a, dst))
    };
    let mine = best(&mut own.iter());
    let reaches = |(ip, a): &(Ipv6Addr, InterfaceAddress)| reach(*ip) >= reach(dst) && !a.is_deprecated;
    if reach(dst) <= REACH_LINK || mine.as_ref().is_some_and(reaches) {
        return mine.map(|(ip, _)| ip.into());
    }
    let theirs = best(&mut others.ipv6.values().flat_map(|all| all.iter()));
    let both = [mine, theirs];
    let without_ties = both.into_iter().flatten().rev().max_by_key(|(ip, a)| {
        let (same, reach, ..) = rank(*ip, a, dst);
        (same, reach, !a.is_deprecated)
    });
    // The device's own one wins among equals.
    without_ties.map(|(ip, _)| ip.into())
}

const REACH_LINK: u8 = 2;

/// Scope of an address of IPv6 (RFC 4007 §4).
fn reach(ip: Ipv6Addr) -> u8 {
    match ip.segments()[0] {
        first if ip.is_multicast() => (first & 0xf) as u8,
        first if first & 0xffc0 == 0xfe80 || ip.is_loopback() => REACH_LINK,
        first if first & 0xffc0 == 0xfec0 => 5,
        _ => 14,
    }
}

/// Rules 1, 2, 3, 6 and 8; the greatest is best.
fn rank(ip: Ipv6Addr, a: &InterfaceAddress, dst: Ipv6Addr) -> (bool, (bool, Reverse<u8>), bool, bool, u8) {
    let (own, wanted) = (reach(ip), reach(dst));
    // The smallest that suffices, else the greatest.
    let reaches = own >= wanted;
    let distance = if reaches { own } else { u8::MAX - own };
    let common = (bits(ip.into()) ^ bits(dst.into())).leading_zeros() as u8;
    (ip == dst, (reaches, Reverse(distance)), !a.is_deprecated, label(ip) == label(dst), common.min(a.len))
}

/// Label of the default policy table of Linux.
fn label(ip: Ipv6Addr) -> u8 {
    const TABLE: [(Ipv6Addr, u8, u8); 9] = [
        (Ipv6Addr::LOCALHOST, 128, 0),
        (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
        (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, 3),
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 6),
        (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, 7),
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
        (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
        (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 11),
        (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 5),
    ];
    let within = |(network, len, _): &&(Ipv6Addr, u8, u8)| {
        (bits((*network).into()) ^ bits(ip.into())) & crate::prefix::ones(*len) == 0
    };
    TABLE.iter().find(within).map_or(1, |(_, _, label)| *label)
}
