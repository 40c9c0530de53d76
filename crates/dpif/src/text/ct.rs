//! Prints and parses the action `ct`.
//!
//! As with the stock tools, text does not tell the mask of events. Ports without addresses (`src=:1-99`) and port 0 are told, which
//! they print as an error or leave out.

use super::TextError;
use super::token::Item;
use super::values::{masked, masked128, number};
use super::write::{Fields, hex};
use crate::actions::{CtAction, CtCommit, CtName, CtNat, Masked, NatAddresses, NatRange};
use std::net::{Ipv4Addr, Ipv6Addr};

/// `ct`, or `ct(…)`.
pub(super) fn format(ct: &CtAction) -> String {
    let mut f = Fields::new(false);
    match ct.commit {
        CtCommit::No => {}
        CtCommit::Yes => f.raw("commit"),
        CtCommit::Force => f.raw("force_commit"),
    }
    if ct.zone != 0 {
        f.word("zone", &ct.zone.to_string());
    }
    if let Some(m) = &ct.mark {
        f.word("mark", &format!("{}/{}", hex(m.value.into()), hex(m.mask.into())));
    }
    if let Some(m) = &ct.labels {
        let mask = if m.mask == u128::MAX { String::new() } else { format!("/{}", hex(m.mask)) };
        f.word("label", &(hex(m.value) + &mask));
    }
    if let Some(name) = &ct.helper {
        f.word("helper", name.as_str());
    }
    if let Some(name) = &ct.timeout {
        f.word("timeout", name.as_str());
    }
    match &ct.nat {
        CtNat::No => {}
        CtNat::Known => f.raw("nat"),
        CtNat::New(range) => f.raw(&format_range(range)),
    }
    if f.any { f.finish("ct") } else { "ct".into() }
}

fn format_range(range: &NatRange) -> String {
    let mut f = Fields::new(false);
    let side = if range.is_dst { "dst" } else { "src" };
    let pair = |first: String, last: String| if first == last { first } else { format!("{first}-{last}") };
    let addresses = match &range.addresses {
        None => String::new(),
        Some(NatAddresses::V4(first, last)) => pair(first.to_string(), last.to_string()),
        Some(NatAddresses::V6(first, last)) if range.ports.is_none() => {
            pair(first.to_string(), last.to_string())
        }
        Some(NatAddresses::V6(first, last)) => pair(format!("[{first}]"), format!("[{last}]")),
    };
    let ports = range.ports.map(|(first, last)| format!(":{}", pair(first.to_string(), last.to_string())));
    match addresses + ports.as_deref().unwrap_or_default() {
        text if text.is_empty() => f.raw(side),
        text => f.word(side, &text),
    }
    for (set, name) in [(range.persistent, "persistent"), (range.hash, "hash"), (range.random, "random")] {
        if set {
            f.raw(name);
        }
    }
    f.finish("nat")
}

/// The action of `ct(…)`.
pub(super) fn parse(item: &Item<'_>) -> Result<CtAction, TextError> {
    let mut ct = CtAction::default();
    for field in item.args()? {
        match field.name {
            "commit" | "force_commit" if ct.commit != CtCommit::No => {
                return Err(TextError("ct: commit is there twice".into()));
            }
            "commit" => ct.commit = CtCommit::Yes,
            "force_commit" => ct.commit = CtCommit::Force,
            "zone" => ct.zone = number(field.value()?, 0xffff)? as u16,
            "mark" => {
                let (value, mask) = masked(field.value()?, u32::MAX.into())?;
                ct.mark = Some(Masked { value: value as u32, mask: mask as u32 });
            }
            "label" => {
                let (value, mask) = masked128(field.value()?)?;
                ct.labels = Some(Masked { value, mask });
            }
            "helper" => ct.helper = Some(name(field)?),
            "timeout" => ct.timeout = Some(name(field)?),
            "nat" => {
                ct.nat = parse_range(field.args.as_deref().unwrap_or(&[]))?.map_or(CtNat::Known, CtNat::New);
            }
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(ct)
}

fn name<const MAX: usize>(field: &Item<'_>) -> Result<CtName<MAX>, TextError> {
    let text = field.value()?;
    let bad = || TextError(format!("{}: {text:?} is not a name of 1 to {MAX} characters", field.name));
    CtName::new(text).ok_or_else(bad)
}

/// What stands in the parentheses of `nat`; `None` for nothing.
fn parse_range(fields: &[Item<'_>]) -> Result<Option<NatRange>, TextError> {
    let (mut range, mut flags) = (None, [false; 3]);
    for field in fields {
        match field.name {
            "src" | "dst" if range.is_some() => {
                return Err(TextError("nat: either src or dst expected, once".into()));
            }
            "src" | "dst" => {
                let (addresses, ports) = field.value.map_or(Ok((None, None)), bounds)?;
                range = Some((field.name == "dst", addresses, ports));
            }
            "persistent" => flags[0] = true,
            "hash" => flags[1] = true,
            "random" => flags[2] = true,
            _ => return Err(field.unknown("nat")),
        }
    }
    let [persistent, hash, random] = flags;
    if hash && random {
        return Err(TextError("nat: either hash or random expected".into()));
    }
    match range {
        // Nothing is left to say about the others.
        None => Ok(None),
        Some((is_dst, addresses, ports)) => {
            Ok(Some(NatRange { is_dst, addresses, ports, persistent, hash, random }))
        }
    }
}

type Bounds = (Option<NatAddresses>, Option<(u16, u16)>);

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`; IPv6 addresses stand in brackets before ports.
fn bounds(text: &str) -> Result<Bounds, TextError> {
    let bad = || TextError(format!("nat: {text:?} is not a range of addresses and ports"));
    let v6 = |t: &str| t.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>().ok();
    let (addresses, ports) = if text.contains('[') {
        match text.rsplit_once("]:") {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (text, None),
        }
    } else if text.contains("::") || text.matches(':').count() > 1 {
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(addresses, ports)| (addresses, Some(ports)))
    };
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let addresses = if addresses.is_empty() {
        None
    } else if let (Ok(first), Ok(last)) = (first.parse::<Ipv4Addr>(), last.parse::<Ipv4Addr>()) {
        Some(NatAddresses::V4(first, last)).filter(|_| first <= last)
    } else {
        let (first, last) = v6(first).zip(v6(last)).ok_or_else(bad)?;
        Some(NatAddresses::V6(first, last)).filter(|_| first <= last)
    };
    if addresses.is_none() && !(text.starts_with(':') && ports.is_some()) {
        return Err(bad());
    }
    let Some(ports) = ports else { return Ok((addresses, None)) };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (number(first, 0xffff)? as u16, number(last, 0xffff)? as u16);
    if first > last { Err(bad()) } else { Ok((addresses, Some((first, last)))) }
}
