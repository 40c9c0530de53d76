//! IPv4, IPv6 and Ethernet addresses with masks.

use super::number::hex;
use super::{ParseError, Parsed, fail};
use crate::MacAddr;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Four decimal octets.
pub fn parse_ipv4(text: &str) -> Option<u32> {
    let mut octets = text.split('.');
    let mut address = 0u32;
    for _ in 0..4 {
        let octet = octets.next()?;
        if octet.is_empty() || octet.len() > 3 || !octet.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        address = address << 8 | u32::from(octet.parse::<u8>().ok()?);
    }
    octets.next().is_none().then_some(address)
}

/// Eight groups, `::` and a dotted tail allowed.
pub(crate) fn parse_ipv6(text: &str) -> Option<u128> {
    text.parse::<Ipv6Addr>().ok().map(u128::from)
}

/// Dotted quad.
pub fn ipv4(address: u32) -> String {
    Ipv4Addr::from(address).to_string()
}

/// RFC 5952, and the dotted tail of IPv4-compatible addresses as in C libraries.
pub fn ipv6(address: u128) -> String {
    let compatible = address >> 32 == 0 && address >> 16 != 0;
    if compatible { format!("::{}", ipv4(address as u32)) } else { Ipv6Addr::from(address).to_string() }
}

/// Number of leading ones, if no other bit is set.
fn prefix_bits(mask: u128, width: u32) -> Option<u32> {
    let top = mask << (128 - width);
    let ones = top.leading_ones();
    (ones == width || top << ones == 0).then_some(ones)
}

fn ones(prefix: u32, width: u32) -> u128 {
    if prefix == 0 {
        return 0;
    }
    let all = u128::MAX >> (128 - width);
    all & !(all.checked_shr(prefix).unwrap_or(0))
}

/// Address with prefix length or mask; without one if the mask is full.
pub(crate) fn format_masked_ip(address: u128, mask: u128, width: u32) -> String {
    let show = |a: u128| if width == 32 { ipv4(a as u32) } else { ipv6(a) };
    match prefix_bits(mask, width) {
        Some(bits) if bits == width => show(address),
        Some(bits) => format!("{}/{bits}", show(address)),
        None => format!("{}/{}", show(address), show(mask)),
    }
}

/// `ADDRESS`, `ADDRESS/PREFIX` or `ADDRESS/MASK` of IPv4 (`width` 32) or IPv6 (128).
pub(crate) fn parse_masked_ip(text: &str, width: u32) -> Parsed<(u128, u128)> {
    let name = if width == 32 { "IP" } else { "IPv6" };
    let parse = |s: &str| if width == 32 { parse_ipv4(s).map(u128::from) } else { parse_ipv6(s) };
    let bad = || fail(text, format!("{text}: invalid {name} address"));
    let (address, mask) = match text.split_once('/') {
        Some((a, m)) => (a, Some(m)),
        None => (text, None),
    };
    let Some(address) = parse(address) else { return bad() };
    let Some(mask) = mask else { return Ok((address, ones(width, width))) };
    if let Some(mask) = parse(mask) {
        return Ok((address, mask));
    }
    if mask.is_empty() || !mask.bytes().all(|b| b.is_ascii_digit()) {
        return bad();
    }
    match mask.parse::<u32>() {
        Ok(bits) if bits <= width => Ok((address, ones(bits, width))),
        _ => {
            let version = if width == 32 { "IPv4" } else { "IPv6" };
            fail(text, format!("{text}: {version} network prefix bits not between 0 and {width}, inclusive"))
        }
    }
}

/// `ADDRESS`, `ADDRESS/PREFIX` or `ADDRESS/MASK` of IPv4 (`width` 32) or IPv6 (128): address and mask.
///
/// # Errors
/// It is none.
pub fn parse_masked_address(text: &str, width: u32) -> Result<(u128, u128), ParseError> {
    parse_masked_ip(text, width).map_err(|fail| fail.locate(text))
}

/// `MAC` or `MAC/MASK`.
pub(crate) fn parse_masked_mac(text: &str) -> Parsed<(u128, u128)> {
    let parse = |s: &str| MacAddr::parse(s).map(|m| u128::from(m.to_u64()));
    let full = u128::from(MacAddr::BROADCAST.to_u64());
    let parsed = match text.split_once('/') {
        Some((a, m)) => parse(a).zip(parse(m)),
        None => parse(text).map(|a| (a, full)),
    };
    match parsed {
        Some(both) => Ok(both),
        None => fail(text, format!("{text}: invalid Ethernet address")),
    }
}

/// `MAC` or `MAC/MASK`.
pub(crate) fn format_masked_mac(address: u64, mask: u64) -> String {
    let address = MacAddr::from_u64(address);
    if mask == MacAddr::BROADCAST.to_u64() {
        address.to_string()
    } else {
        format!("{address}/{}", MacAddr::from_u64(mask))
    }
}

/// `(NAMESPACE,TYPE)`; an EtherType is hexadecimal.
pub(crate) fn format_packet_type(packet_type: u32) -> String {
    let (namespace, kind) = (packet_type >> 16, packet_type & 0xffff);
    if namespace > 1 {
        format!("({namespace},{kind})")
    } else {
        format!("({namespace},{})", hex(kind.into()))
    }
}
