//! The action `ct`: passes a packet through the connection tracker (`enum ovs_ct_attr`, `enum ovs_nat_attr` of
//! `linux/openvswitch.h`).

use super::Masked;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What the connection tracker is to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtAction {
    /// Whether the connection is kept.
    pub commit: CtCommit,
    /// Zone; 0 by default.
    pub zone: u16,
    /// Mark that the connection gets.
    pub mark: Option<Masked<u32>>,
    /// Labels that the connection gets.
    pub labels: Option<Masked<u128>>,
    /// Application protocol that opens related connections.
    pub helper: Option<HelperName>,
    /// Translation of addresses.
    pub nat: CtNat,
    /// Events that listeners are told, bits of `IPCT_*`. Text does not tell them, as with the stock tools.
    pub event_mask: Option<u32>,
    /// Policy of timeouts.
    pub timeout: Option<TimeoutName>,
}

/// Whether a connection is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CtCommit {
    /// Only looked up.
    #[default]
    No,
    /// Kept.
    Yes,
    /// Kept; one of the other direction ends.
    Force,
}

/// Translation of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CtNat {
    /// None.
    #[default]
    No,
    /// As the connection has it already.
    Known,
    /// For a new connection.
    New(NatRange),
}

/// What a new connection's addresses and ports are translated to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRange {
    /// Of the destination, not of the source.
    pub is_dst: bool,
    /// First and last address; `None`: the tracker chooses.
    pub addresses: Option<NatAddresses>,
    /// First and last port; `None`: the tracker chooses. Stock tools show them only behind addresses.
    pub ports: Option<(u16, u16)>,
    /// The same address over reboots.
    pub persistent: bool,
    /// Ports by a hash.
    pub hash: bool,
    /// Ports at random.
    pub random: bool,
}

/// First and last address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatAddresses {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

/// A name that the tracker knows: 1 to `MAX` visible ASCII characters that text needs for nothing else.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CtName<const MAX: usize>(Box<str>);

/// Name of a helper (`NF_CT_HELPER_NAME_LEN` without the zero).
pub type HelperName = CtName<15>;
/// Name of a policy of timeouts (`CTNL_TIMEOUT_NAME_MAX` without the zero).
pub type TimeoutName = CtName<31>;

impl<const MAX: usize> CtName<MAX> {
    /// `None`: it is no such name.
    pub fn new(text: &str) -> Option<CtName<MAX>> {
        let fits = (1..=MAX).contains(&text.len());
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && !b",()".contains(&b));
        (fits && plain).then(|| CtName(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
