//! Rewriting headers: `SET_MASKED` with an attribute within (`OVS_KEY_ATTR_*`, a value, then its mask), and `SET`, of which a
//! mask is not told.
//!
//! The structures are those of keys, also with fields that cannot be set (protocol and fragment bits of IP); their masks are
//! zero. Values are zero outside their masks: the kernel refuses others.

use super::{ActionError, attr};
use dpif::{EthSet, Ipv4Set, Ipv6Set, Masked, PortsSet, SetAction};
use flow::Tunnel;
use flow::nlattr::{Attr, AttrError, AttrWriter};
use flow::nlkey::{Fitness, parse_tunnel, write_tunnel};

/// `OVS_KEY_ATTR_*`.
mod key {
    pub(super) const PRIORITY: u16 = 2;
    pub(super) const ETHERNET: u16 = 4;
    pub(super) const IPV4: u16 = 7;
    pub(super) const IPV6: u16 = 8;
    pub(super) const TCP: u16 = 9;
    pub(super) const UDP: u16 = 10;
    pub(super) const SKB_MARK: u16 = 15;
    pub(super) const TUNNEL: u16 = 16;
    pub(super) const SCTP: u16 = 17;
    pub(super) const MPLS: u16 = 21;
}

/// What it would rewrite that the kernel cannot.
pub(super) fn unsettable(set: &SetAction) -> Option<&'static str> {
    match set {
        SetAction::Icmp(_) => Some("rewrite ICMP"),
        SetAction::Icmpv6(_) => Some("rewrite ICMPv6"),
        SetAction::Arp(_) => Some("rewrite ARP"),
        SetAction::Nd(_) => Some("rewrite neighbour discovery"),
        _ => None,
    }
}

/// Appends the action; nothing of what cannot be set.
pub(super) fn write(out: &mut AttrWriter, set: &SetAction) {
    let (kind, value, mask) = match set {
        // Outer headers are set whole.
        SetAction::Tunnel(t) => {
            return out.nested(attr::SET, |out| out.nested(key::TUNNEL, |out| write_tunnel(out, t)));
        }
        SetAction::Eth(m) => (key::ETHERNET, eth(&m.value), eth(&m.mask)),
        SetAction::Ipv4(m) => (key::IPV4, ipv4(&m.value), ipv4(&m.mask)),
        SetAction::Ipv6(m) => (key::IPV6, ipv6(&m.value), ipv6(&m.mask)),
        SetAction::Tcp(m) => (key::TCP, ports(&m.value), ports(&m.mask)),
        SetAction::Udp(m) => (key::UDP, ports(&m.value), ports(&m.mask)),
        SetAction::Sctp(m) => (key::SCTP, ports(&m.value), ports(&m.mask)),
        SetAction::SkbMark(m) => {
            (key::SKB_MARK, m.value.to_ne_bytes().to_vec(), m.mask.to_ne_bytes().to_vec())
        }
        SetAction::SkbPriority(n) => (key::PRIORITY, n.to_ne_bytes().to_vec(), vec![0xff; 4]),
        SetAction::Mpls(m) => (key::MPLS, m.value.to_be_bytes().to_vec(), m.mask.to_be_bytes().to_vec()),
        SetAction::Icmp(_) | SetAction::Icmpv6(_) | SetAction::Arp(_) | SetAction::Nd(_) => return,
    };
    let within = value.iter().zip(&mask).map(|(v, m)| v & m);
    let both: Vec<u8> = within.chain(mask.iter().copied()).collect();
    out.nested(attr::SET_MASKED, |out| out.put(kind, &both));
}

fn eth(e: &EthSet) -> Vec<u8> {
    [e.src, e.dst].concat()
}

fn ipv4(ip: &Ipv4Set) -> Vec<u8> {
    let addresses = [ip.src.to_be_bytes(), ip.dst.to_be_bytes()].concat();
    // Protocol and fragment bits.
    [addresses, vec![0, ip.tos, ip.ttl, 0]].concat()
}

fn ipv6(ip: &Ipv6Set) -> Vec<u8> {
    let label = (ip.label & 0xf_ffff).to_be_bytes().to_vec();
    [[ip.src, ip.dst].concat(), label, vec![0, ip.tclass, ip.hlimit, 0]].concat()
}

fn ports(p: &PortsSet) -> Vec<u8> {
    [p.src.to_be_bytes(), p.dst.to_be_bytes()].concat()
}

/// What a `SET_MASKED` rewrites.
pub(super) fn parse_masked(a: &Attr<'_>) -> Result<SetAction, ActionError> {
    let inner = only(a)?;
    let content = inner.content;
    let (value, mask) = content.split_at(content.len() / 2);
    if value.len() != mask.len() {
        return Err(AttrError::Size { kind: inner.kind, has_bytes: content.len() }.into());
    }
    parse(inner.kind, value, mask)
}

/// What a `SET` rewrites: all of a header.
pub(super) fn parse_plain(a: &Attr<'_>) -> Result<SetAction, ActionError> {
    let inner = only(a)?;
    if inner.kind == key::TUNNEL {
        return parse_outer(&inner).map(SetAction::Tunnel);
    }
    let mut mask = vec![0xff; inner.content.len()];
    // Protocol and fragment bits are those that the packet has anyway.
    let fixed: &[usize] = match inner.kind {
        key::IPV4 => &[8, 11],
        key::IPV6 => &[36, 39],
        _ => &[],
    };
    for at in fixed {
        if let Some(m) = mask.get_mut(*at) {
            *m = 0;
        }
    }
    if inner.kind == key::IPV6
        && let Some(label) = mask.get_mut(32..34)
    {
        label.copy_from_slice(&[0, 0x0f]);
    }
    parse(inner.kind, inner.content, &mask)
}

/// Outer headers, if they lead somewhere and there is nothing among them that they have no word for.
fn parse_outer(a: &Attr<'_>) -> Result<Tunnel, ActionError> {
    match parse_tunnel(a.nested()?)? {
        (tunnel, Fitness::Perfect) if tunnel.is_some() => Ok(tunnel),
        _ => Err(ActionError::Foreign),
    }
}

/// The single attribute within.
fn only<'a>(a: &Attr<'a>) -> Result<Attr<'a>, ActionError> {
    let mut inner = a.nested()?.into_iter();
    match (inner.next(), inner.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(AttrError::Value(a.kind).into()),
    }
}

fn parse(kind: u16, value: &[u8], mask: &[u8]) -> Result<SetAction, ActionError> {
    let bytes = Both { kind, value, mask };
    Ok(match kind {
        key::ETHERNET => {
            SetAction::Eth(bytes.read(|b: &[u8; 12]| EthSet { src: part(b, 0), dst: part(b, 6) })?)
        }
        key::IPV4 => {
            bytes.none_of(&[8, 11])?;
            SetAction::Ipv4(bytes.read(|b: &[u8; 12]| Ipv4Set {
                src: u32::from_be_bytes(part(b, 0)),
                dst: u32::from_be_bytes(part(b, 4)),
                tos: b[9],
                ttl: b[10],
            })?)
        }
        key::IPV6 => {
            bytes.none_of(&[36, 39])?;
            SetAction::Ipv6(bytes.read(|b: &[u8; 40]| Ipv6Set {
                src: part(b, 0),
                dst: part(b, 16),
                label: u32::from_be_bytes(part(b, 32)),
                tclass: b[37],
                hlimit: b[38],
            })?)
        }
        key::TCP => SetAction::Tcp(bytes.read(ports_of)?),
        key::UDP => SetAction::Udp(bytes.read(ports_of)?),
        key::SCTP => SetAction::Sctp(bytes.read(ports_of)?),
        key::SKB_MARK => SetAction::SkbMark(bytes.read(|b: &[u8; 4]| u32::from_ne_bytes(*b))?),
        key::MPLS => SetAction::Mpls(bytes.read(|b: &[u8; 4]| u32::from_be_bytes(*b))?),
        key::PRIORITY => {
            let m = bytes.read(|b: &[u8; 4]| u32::from_ne_bytes(*b))?;
            if m.mask != u32::MAX {
                return Err(ActionError::Foreign);
            }
            SetAction::SkbPriority(m.value)
        }
        _ => return Err(ActionError::Foreign),
    })
}

fn ports_of(b: &[u8; 4]) -> PortsSet {
    PortsSet { src: u16::from_be_bytes(part(b, 0)), dst: u16::from_be_bytes(part(b, 2)) }
}

/// `M` bytes from `at` on, which lie within the structure.
fn part<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| b[at + i])
}

/// A value and its mask as bytes.
struct Both<'a> {
    kind: u16,
    value: &'a [u8],
    mask: &'a [u8],
}

impl Both<'_> {
    fn read<const N: usize, T>(&self, of: impl Fn(&[u8; N]) -> T) -> Result<Masked<T>, AttrError> {
        let size = AttrError::Size { kind: self.kind, has_bytes: self.value.len() };
        let (Ok(value), Ok(mask)) = (<&[u8; N]>::try_from(self.value), <&[u8; N]>::try_from(self.mask))
        else {
            return Err(size);
        };
        let within: [u8; N] = std::array::from_fn(|i| value[i] & mask[i]);
        Ok(Masked { value: of(&within), mask: of(mask) })
    }

    /// Refuses to rewrite these bytes, which have no place in a [`SetAction`].
    fn none_of(&self, places: &[usize]) -> Result<(), ActionError> {
        if places.iter().any(|at| self.mask.get(*at).is_some_and(|m| *m != 0)) {
            return Err(ActionError::Foreign);
        }
        Ok(())
    }
}
