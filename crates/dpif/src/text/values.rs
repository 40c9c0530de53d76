//! Values in datapath text: numbers, addresses and flags, each with an optional mask after `/`.

use super::TextError;
use flow::MacAddr;
use std::net::{Ipv4Addr, Ipv6Addr};

fn bad(what: &str, text: &str) -> TextError {
    TextError(format!("{text:?} is not {what}"))
}

/// A decimal or `0x` hexadecimal number (never octal) of at most `max`.
pub(crate) fn number(text: &str, max: u128) -> Result<u128, TextError> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u128::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let n = parsed.map_err(|_| bad("a number", text))?;
    if n > max { Err(TextError(format!("{text} is more than {max}"))) } else { Ok(n) }
}

/// `value` or `value/mask`; without a mask all bits of `max` are matched.
pub(crate) fn masked(text: &str, max: u64) -> Result<(u64, u64), TextError> {
    let (value, mask) = split(text);
    let mask = mask.map_or(Ok(max.into()), |m| number(m, max.into()))?;
    Ok((number(value, max.into())? as u64, mask as u64))
}

/// `value` or `value/mask` with 128 bits; without a mask all bits are matched.
pub(crate) fn masked128(text: &str) -> Result<(u128, u128), TextError> {
    let (value, mask) = split(text);
    let mask = mask.map_or(Ok(u128::MAX), |m| number(m, u128::MAX))?;
    Ok((number(value, u128::MAX)?, mask))
}

pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    }
}

/// Ethernet address and mask.
pub(crate) fn mac(text: &str) -> Result<([u8; 6], [u8; 6]), TextError> {
    let (value, mask) = split(text);
    let one = |t: &str| MacAddr::parse(t).map(|m| m.0).ok_or_else(|| bad("an Ethernet address", t));
    Ok((one(value)?, mask.map_or(Ok([0xff; 6]), one)?))
}

/// IPv4 address and mask (an address or a prefix length).
pub(crate) fn ipv4(text: &str) -> Result<(u32, u32), TextError> {
    let (value, mask) = split(text);
    let one = |t: &str| t.parse::<Ipv4Addr>().map(u32::from).map_err(|_| bad("an IPv4 address", t));
    let mask = match mask {
        None => u32::MAX,
        Some(m) if m.contains('.') => one(m)?,
        Some(m) => (u64::from(u32::MAX) << (32 - number(m, 32)? as u32)) as u32,
    };
    Ok((one(value)?, mask))
}

/// IPv6 address and mask (an address or a prefix length).
pub(crate) fn ipv6(text: &str) -> Result<([u8; 16], [u8; 16]), TextError> {
    let (value, mask) = split(text);
    let one = |t: &str| t.parse::<Ipv6Addr>().map(|a| a.octets()).map_err(|_| bad("an IPv6 address", t));
    let mask = match mask {
        None => [0xff; 16],
        Some(m) if m.contains(':') => one(m)?,
        Some(m) => match number(m, 128)? as u32 {
            0 => [0; 16],
            bits => (u128::MAX << (128 - bits)).to_be_bytes(),
        },
    };
    Ok((one(value)?, mask))
}

/// Flags by name: `a|b` matches exactly these of `all`, `+a-b` only those named, a number with mask both.
pub(crate) fn flags(text: &str, names: &[(u32, &str)], all: u32) -> Result<(u32, u32), TextError> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return masked(text, all.into()).map(|(v, m)| (v as u32, m as u32));
    }
    let bit = |name: &str| {
        let known = names.iter().find(|(_, n)| *n == name);
        known.map(|(bit, _)| *bit).ok_or_else(|| bad("a flag", name))
    };
    if !text.starts_with(['+', '-']) {
        let value = text.split('|').filter(|n| !n.is_empty()).try_fold(0, |v, n| Ok(v | bit(n)?))?;
        return Ok((value, all));
    }
    let (mut value, mut mask, mut rest) = (0, 0, text);
    while let Some(sign) = rest.chars().next() {
        let tail = &rest[1..];
        let end = tail.find(['+', '-']).unwrap_or(tail.len());
        let b = bit(&tail[..end])?;
        mask |= b;
        if sign == '+' {
            value |= b;
        }
        rest = &tail[end..];
    }
    Ok((value, mask))
}

/// Names of `ct_state` bits.
pub(crate) const CT_STATE: [(u32, &str); 8] = [
    (0x01, "new"),
    (0x02, "est"),
    (0x04, "rel"),
    (0x08, "rpl"),
    (0x10, "inv"),
    (0x20, "trk"),
    (0x40, "snat"),
    (0x80, "dnat"),
];

/// Names of TCP flags.
pub(crate) const TCP_FLAGS: [(u32, &str); 12] = [
    (0x001, "fin"),
    (0x002, "syn"),
    (0x004, "rst"),
    (0x008, "psh"),
    (0x010, "ack"),
    (0x020, "urg"),
    (0x040, "ece"),
    (0x080, "cwr"),
    (0x100, "ns"),
    (0x200, "[200]"),
    (0x400, "[400]"),
    (0x800, "[800]"),
];

/// Names of tunnel flags.
pub(crate) const TUNNEL_FLAGS: [(u32, &str); 4] = [(1, "oam"), (2, "df"), (4, "csum"), (8, "key")];
