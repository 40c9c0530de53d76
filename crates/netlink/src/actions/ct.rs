//! The action `ct`: `OVS_CT_ATTR_*`, and `OVS_NAT_ATTR_*` within it.
//!
//! The kernel tells zone 0, and both ends of a range, also where they were left out.

use super::ActionError;
use dpif::{CtAction, CtCommit, CtName, CtNat, Masked, NatAddresses, NatRange};
use flow::nlattr::{Attr, AttrWriter, Attrs};
use std::net::{Ipv4Addr, Ipv6Addr};

/// `OVS_CT_ATTR_*`.
mod attr {
    pub(super) const COMMIT: u16 = 1;
    pub(super) const ZONE: u16 = 2;
    pub(super) const MARK: u16 = 3;
    pub(super) const LABELS: u16 = 4;
    pub(super) const HELPER: u16 = 5;
    pub(super) const NAT: u16 = 6;
    pub(super) const FORCE_COMMIT: u16 = 7;
    pub(super) const EVENTMASK: u16 = 8;
    pub(super) const TIMEOUT: u16 = 9;
}

/// `OVS_NAT_ATTR_*`.
mod nat {
    pub(super) const SRC: u16 = 1;
    pub(super) const DST: u16 = 2;
    pub(super) const IP_MIN: u16 = 3;
    pub(super) const IP_MAX: u16 = 4;
    pub(super) const PROTO_MIN: u16 = 5;
    pub(super) const PROTO_MAX: u16 = 6;
    pub(super) const PERSISTENT: u16 = 7;
    pub(super) const PROTO_HASH: u16 = 8;
    pub(super) const PROTO_RANDOM: u16 = 9;
}

/// The attributes within `CT`.
pub(super) fn write(out: &mut AttrWriter, ct: &CtAction) {
    match ct.commit {
        CtCommit::No => {}
        CtCommit::Yes => out.flag(attr::COMMIT),
        CtCommit::Force => out.flag(attr::FORCE_COMMIT),
    }
    if ct.zone != 0 {
        out.u16(attr::ZONE, ct.zone);
    }
    if let Some(m) = &ct.mark {
        out.put(attr::MARK, &[m.value.to_ne_bytes(), m.mask.to_ne_bytes()].concat());
    }
    if let Some(m) = &ct.labels {
        out.put(attr::LABELS, &[m.value.to_ne_bytes(), m.mask.to_ne_bytes()].concat());
    }
    if let Some(name) = &ct.helper {
        out.text(attr::HELPER, name.as_str());
    }
    match &ct.nat {
        CtNat::No => {}
        CtNat::Known => out.nested(attr::NAT, |_| ()),
        CtNat::New(range) => out.nested(attr::NAT, |out| write_range(out, range)),
    }
    if let Some(mask) = ct.event_mask {
        out.u32(attr::EVENTMASK, mask);
    }
    if let Some(name) = &ct.timeout {
        out.text(attr::TIMEOUT, name.as_str());
    }
}

fn write_range(out: &mut AttrWriter, range: &NatRange) {
    out.flag(if range.is_dst { nat::DST } else { nat::SRC });
    match &range.addresses {
        None => {}
        Some(NatAddresses::V4(first, last)) => {
            out.put(nat::IP_MIN, &first.octets());
            out.put(nat::IP_MAX, &last.octets());
        }
        Some(NatAddresses::V6(first, last)) => {
            out.put(nat::IP_MIN, &first.octets());
            out.put(nat::IP_MAX, &last.octets());
        }
    }
    if let Some((first, last)) = range.ports {
        out.u16(nat::PROTO_MIN, first);
        out.u16(nat::PROTO_MAX, last);
    }
    for (set, kind) in [
        (range.persistent, nat::PERSISTENT),
        (range.hash, nat::PROTO_HASH),
        (range.random, nat::PROTO_RANDOM),
    ] {
        if set {
            out.flag(kind);
        }
    }
}

/// What the attributes within `CT` say.
pub(super) fn parse(attrs: Attrs<'_>) -> Result<CtAction, ActionError> {
    let mut ct = CtAction::default();
    for a in attrs {
        match a.kind {
            attr::COMMIT if ct.commit == CtCommit::No => ct.commit = CtCommit::Yes,
            attr::COMMIT => {}
            attr::FORCE_COMMIT => ct.commit = CtCommit::Force,
            attr::ZONE => ct.zone = a.u16()?,
            attr::MARK => {
                let [value, mask] = halves::<8, 4>(&a)?;
                ct.mark = Some(Masked { value: u32::from_ne_bytes(value), mask: u32::from_ne_bytes(mask) });
            }
            attr::LABELS => {
                let [value, mask] = halves::<32, 16>(&a)?;
                ct.labels =
                    Some(Masked { value: u128::from_ne_bytes(value), mask: u128::from_ne_bytes(mask) });
            }
            attr::HELPER => ct.helper = Some(name(&a)?),
            attr::TIMEOUT => ct.timeout = Some(name(&a)?),
            attr::NAT => ct.nat = parse_range(a.nested()?)?.map_or(CtNat::Known, CtNat::New),
            attr::EVENTMASK => ct.event_mask = Some(a.u32()?),
            _ => return Err(ActionError::Foreign),
        }
    }
    Ok(ct)
}

/// A value and its mask.
fn halves<const BOTH: usize, const ONE: usize>(a: &Attr<'_>) -> Result<[[u8; ONE]; 2], ActionError> {
    let both: [u8; BOTH] = a.array()?;
    let half = |from: usize| std::array::from_fn(|i| both[from + i]);
    Ok([half(0), half(ONE)])
}

fn name<const MAX: usize>(a: &Attr<'_>) -> Result<CtName<MAX>, ActionError> {
    a.text().ok().and_then(CtName::new).ok_or(ActionError::Foreign)
}

/// What the attributes within `NAT` say; `None` where there are none.
fn parse_range(attrs: Attrs<'_>) -> Result<Option<NatRange>, ActionError> {
    if attrs.is_empty() {
        return Ok(None);
    }
    if attrs.into_iter().any(|a| !(nat::SRC..=nat::PROTO_RANDOM).contains(&a.kind)) {
        return Err(ActionError::Foreign);
    }
    let has = |kind| attrs.get(kind).is_some();
    let orphans = has(nat::IP_MAX) && !has(nat::IP_MIN) || has(nat::PROTO_MAX) && !has(nat::PROTO_MIN);
    if has(nat::SRC) == has(nat::DST) || orphans {
        return Err(ActionError::Foreign);
    }
    let addresses = attrs.get(nat::IP_MIN).map(|min| {
        let max = attrs.get(nat::IP_MAX).unwrap_or(min);
        match (min.content.len(), max.content.len()) {
            (4, 4) => {
                Ok(NatAddresses::V4(Ipv4Addr::from(min.array::<4>()?), Ipv4Addr::from(max.array::<4>()?)))
            }
            (16, 16) => {
                Ok(NatAddresses::V6(Ipv6Addr::from(min.array::<16>()?), Ipv6Addr::from(max.array::<16>()?)))
            }
            _ => Err(ActionError::Foreign),
        }
    });
    let ports = attrs.get(nat::PROTO_MIN).map(|min| {
        let max = attrs.get(nat::PROTO_MAX).unwrap_or(min);
        Ok::<_, ActionError>((min.u16()?, max.u16()?))
    });
    Ok(Some(NatRange {
        is_dst: has(nat::DST),
        addresses: addresses.transpose()?,
        ports: ports.transpose()?,
        persistent: has(nat::PERSISTENT),
        hash: has(nat::PROTO_HASH),
        random: has(nat::PROTO_RANDOM),
    }))
}
