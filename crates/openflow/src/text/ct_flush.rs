//! Selections of tracked connections, in the syntax of `ovs-ofctl ct-flush` and `dpctl/flush-conntrack`.
//!
//! `[zone=N] [mark=X[/M]] [labels=X[/M]] [ORIG-TUPLE [REPLY-TUPLE]]`, a word each. Both tuples have the same IP version
//! and protocol; the stock tool accepts a reply tuple of another protocol, or whose ports or ICMP fields contradict it.

use crate::msg::ct_flush::{CtFlush, CtFlushTuple};
use flow::text::number::parse_u128;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IP protocols with ICMP fields instead of ports.
const ICMP: [u8; 2] = [1, 58];

/// Parses the words of a selection; none selects all connections. An empty tuple matches all.
///
/// # Errors
/// An unknown field, an invalid value, or mutually exclusive fields, in the words of the stock tool.
pub fn parse_ct_flush<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<CtFlush, String> {
    let mut words = words.into_iter().peekable();
    let mut flush = CtFlush::default();
    while let Some(word) = words.next_if(|word| setting(word).is_some()) {
        let (name, text) = setting(word).unwrap_or_default();
        let bad = || format!("failed to parse {name}");
        let twice = match name {
            "zone" => flush.zone.replace(decimal(text).ok_or_else(bad)?).is_some(),
            "mark" => {
                let (value, mask) = masked(text, u32::MAX.into()).ok_or_else(bad)?;
                flush.mark.replace((value as u32, mask as u32)).is_some()
            }
            _ => flush.labels.replace(masked(text, u128::MAX).ok_or_else(bad)?).is_some(),
        };
        if twice {
            return Err(format!("{word}: {name} is given already"));
        }
    }
    let mut ip = None;
    let mut tuples = [CtFlushTuple::default(); 2];
    let mut first_proto = 0;
    for (tuple, word) in tuples.iter_mut().zip(words.by_ref()) {
        let fields = word.split(',').filter(|field| !field.is_empty());
        for field in fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            if value.is_empty() {
                return Err(format!("field {name} missing value"));
            }
            let known = take_field(tuple, &mut flush.proto, &mut ip, name, value)?;
            known.ok_or_else(|| format!("failed to parse field {name}"))?;
        }
        check(tuple, flush.proto)?;
        first_proto = if first_proto == 0 { flush.proto } else { first_proto };
    }
    if let Some(word) = words.next() {
        return Err(format!("invalid argument {word}"));
    }
    [flush.orig, flush.reply] = tuples;
    // The second tuple may have named another protocol.
    check(&flush.orig, flush.proto)?;
    if first_proto != flush.proto {
        return Err("the tuples have different protocols".to_string());
    }
    Ok(flush)
}

/// The name and value of a word that is no tuple.
fn setting(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| ["zone", "mark", "labels"].contains(name))
}

/// A number of digits only.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `X[/M]`, each at most `max`.
fn masked(text: &str, max: u128) -> Option<(u128, u128)> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    let number = |text: &str| parse_u128(text).ok().filter(|n| *n <= max);
    Some((number(value)?, mask.map_or(Some(max), number)?))
}

/// Whether addresses are of IPv6; `None`: there are none yet.
type Version = Option<bool>;

/// Parses a field; `None`: its value is invalid.
fn take_field(
    tuple: &mut CtFlushTuple,
    proto: &mut u8,
    ip: &mut Version,
    name: &str,
    value: &str,
) -> Result<Option<()>, String> {
    fn set<T: FromStr>(place: &mut Option<T>, value: &str) -> Option<()> {
        *place = Some(value.parse().ok()?);
        Some(())
    }
    let taken = match name {
        "ct_nw_src" | "ct_ipv6_src" | "ct_nw_dst" | "ct_ipv6_dst" => {
            let wants_v6 = name.starts_with("ct_ipv6");
            let address = match wants_v6 {
                true => value.parse::<Ipv6Addr>().map(IpAddr::from),
                false => value.parse::<Ipv4Addr>().map(IpAddr::from),
            };
            let Ok(address) = address else { return Ok(None) };
            if *ip.get_or_insert(wants_v6) != wants_v6 {
                return Err(format!("the L3 protocol does not match {value}"));
            }
            let place = if name.ends_with("src") { &mut tuple.src } else { &mut tuple.dst };
            *place = Some(match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            });
            Some(())
        }
        "ct_nw_proto" => value.parse().ok().map(|number| *proto = number),
        "ct_tp_src" => set(&mut tuple.src_port, value),
        "ct_tp_dst" => set(&mut tuple.dst_port, value),
        "icmp_id" => set(&mut tuple.icmp_id, value),
        "icmp_type" => set(&mut tuple.icmp_type, value),
        "icmp_code" => set(&mut tuple.icmp_code, value),
        _ => return Err(format!("invalid conntrack tuple field: {name}")),
    };
    Ok(taken)
}

/// Rejects impossible tuples.
fn check(tuple: &CtFlushTuple, proto: u8) -> Result<(), String> {
    let has_ports = tuple.src_port.is_some() || tuple.dst_port.is_some();
    let has_icmp = tuple.icmp_id.is_some() || tuple.icmp_type.is_some() || tuple.icmp_code.is_some();
    if has_ports && proto == 0 {
        return Err("port is set without protocol".to_string());
    }
    let is_icmp = ICMP.contains(&proto);
    if has_icmp && !is_icmp || has_ports && is_icmp {
        return Err("invalid L4 fields".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
