//! Headers as both keys and set actions have them: printing and parsing their fields.

use super::TextError;
use super::token::Item;
use super::values::{ipv4, ipv6, mac, masked};
use super::write::{Base, Fields};
use crate::actions::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdSet, PortsSet};

pub(super) fn put_eth(f: &mut Fields, m: &Masked<EthSet>) {
    f.mac("src", m.value.src, m.mask.src);
    f.mac("dst", m.value.dst, m.mask.dst);
}

/// Fields of an IPv4 header; `proto` and `frag` only keys have.
pub(super) fn put_ipv4(f: &mut Fields, m: &Masked<Ipv4Set>, proto: Option<(u8, u8)>) {
    f.ipv4("src", m.value.src, m.mask.src);
    f.ipv4("dst", m.value.dst, m.mask.dst);
    if let Some((value, mask)) = proto {
        f.number("proto", value.into(), mask.into(), 0xff, Base::Dec);
    }
    f.number("tos", m.value.tos.into(), m.mask.tos.into(), 0xff, Base::Hex);
    f.number("ttl", m.value.ttl.into(), m.mask.ttl.into(), 0xff, Base::Dec);
}

pub(super) fn put_ipv6(f: &mut Fields, m: &Masked<Ipv6Set>, proto: Option<(u8, u8)>) {
    f.ipv6("src", m.value.src, m.mask.src);
    f.ipv6("dst", m.value.dst, m.mask.dst);
    let label = m.mask.label & 0xf_ffff;
    f.number("label", (m.value.label & 0xf_ffff).into(), label.into(), 0xf_ffff, Base::Hex);
    if let Some((value, mask)) = proto {
        f.number("proto", value.into(), mask.into(), 0xff, Base::Dec);
    }
    f.number("tclass", m.value.tclass.into(), m.mask.tclass.into(), 0xff, Base::Hex);
    f.number("hlimit", m.value.hlimit.into(), m.mask.hlimit.into(), 0xff, Base::Dec);
}

pub(super) fn put_arp(f: &mut Fields, m: &Masked<ArpSet>, op_full: u16) {
    f.ipv4("sip", m.value.spa, m.mask.spa);
    f.ipv4("tip", m.value.tpa, m.mask.tpa);
    f.number("op", m.value.op.into(), m.mask.op.into(), op_full.into(), Base::Dec);
    f.mac("sha", m.value.sha, m.mask.sha);
    f.mac("tha", m.value.tha, m.mask.tha);
}

pub(super) fn put_nd(f: &mut Fields, m: &Masked<NdSet>) {
    f.ipv6("target", m.value.target, m.mask.target);
    f.mac("sll", m.value.sll, m.mask.sll);
    f.mac("tll", m.value.tll, m.mask.tll);
}

/// Two numbers, named `src` and `dst` or `type` and `code`.
pub(super) fn put_ports(f: &mut Fields, m: &Masked<PortsSet>, names: [&str; 2], full: u16) {
    f.number(names[0], m.value.src.into(), (m.mask.src & full).into(), full.into(), Base::Dec);
    f.number(names[1], m.value.dst.into(), (m.mask.dst & full).into(), full.into(), Base::Dec);
}

pub(super) fn eth(item: &Item<'_>) -> Result<Masked<EthSet>, TextError> {
    let mut m = Masked::<EthSet>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = mac(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

fn byte(field: &Item<'_>) -> Result<(u8, u8), TextError> {
    masked(field.value()?, 0xff).map(|(v, m)| (v as u8, m as u8))
}

fn word(field: &Item<'_>, full: u16) -> Result<(u16, u16), TextError> {
    masked(field.value()?, full.into()).map(|(v, m)| (v as u16, m as u16))
}

/// What `field` says of a field that only keys have; whether it was one.
pub(super) type More<'m> = &'m mut dyn FnMut(&Item<'_>) -> Result<bool, TextError>;

/// The [`More`] of set actions.
pub(super) fn nothing_more(_: &Item<'_>) -> Result<bool, TextError> {
    Ok(false)
}

pub(super) fn ipv4_header(item: &Item<'_>, more: More<'_>) -> Result<Masked<Ipv4Set>, TextError> {
    let mut m = Masked::<Ipv4Set>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = ipv4(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = ipv4(field.value()?)?,
            "tos" => (m.value.tos, m.mask.tos) = byte(field)?,
            "ttl" => (m.value.ttl, m.mask.ttl) = byte(field)?,
            _ if more(field)? => {}
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(super) fn ipv6_header(item: &Item<'_>, more: More<'_>) -> Result<Masked<Ipv6Set>, TextError> {
    let mut m = Masked::<Ipv6Set>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = ipv6(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = ipv6(field.value()?)?,
            "label" => {
                let (value, mask) = masked(field.value()?, 0xf_ffff)?;
                (m.value.label, m.mask.label) = (value as u32, mask as u32);
            }
            "tclass" => (m.value.tclass, m.mask.tclass) = byte(field)?,
            "hlimit" => (m.value.hlimit, m.mask.hlimit) = byte(field)?,
            _ if more(field)? => {}
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(super) fn arp(item: &Item<'_>) -> Result<Masked<ArpSet>, TextError> {
    let mut m = Masked::<ArpSet>::default();
    for field in item.args()? {
        match field.name {
            "sip" => (m.value.spa, m.mask.spa) = ipv4(field.value()?)?,
            "tip" => (m.value.tpa, m.mask.tpa) = ipv4(field.value()?)?,
            "op" => (m.value.op, m.mask.op) = word(field, 0xffff)?,
            "sha" => (m.value.sha, m.mask.sha) = mac(field.value()?)?,
            "tha" => (m.value.tha, m.mask.tha) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(super) fn nd(item: &Item<'_>) -> Result<Masked<NdSet>, TextError> {
    let mut m = Masked::<NdSet>::default();
    for field in item.args()? {
        match field.name {
            "target" => (m.value.target, m.mask.target) = ipv6(field.value()?)?,
            "sll" => (m.value.sll, m.mask.sll) = mac(field.value()?)?,
            "tll" => (m.value.tll, m.mask.tll) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(super) fn ports(item: &Item<'_>, names: [&str; 2], full: u16) -> Result<Masked<PortsSet>, TextError> {
    let mut m = Masked::<PortsSet>::default();
    for field in item.args()? {
        if field.name == names[0] {
            (m.value.src, m.mask.src) = word(field, full)?;
        } else if field.name == names[1] {
            (m.value.dst, m.mask.dst) = word(field, full)?;
        } else {
            return Err(field.unknown(item.name));
        }
    }
    Ok(m)
}
