//! Argument parsers shared by several actions.

use flow::fields::FieldId;
use flow::text::number::{hex, u8_named, u16_named};
use flow::text::{Parsed, PortNames, fail, parse_ipv4, parse_table, sub_field};
use flow::{MacAddr, SubField, TableId};

/// Rejects read-only fields.
pub(crate) fn writable(field: FieldId, part: &str) -> Parsed<()> {
    if !field.def().writable {
        return fail(part, format!("{part} is read-only"));
    }
    Ok(())
}

/// The parts before and after the arrow.
pub(crate) fn arrow<'a>(arg: &'a str, missing: &str) -> Parsed<(&'a str, &'a str)> {
    match arg.split_once("->") {
        Some(parts) => Ok(parts),
        None => fail(arg, format!("{arg}: {missing}")),
    }
}

/// `SOURCE->DESTINATION`, of the same width.
pub(crate) fn source_and_dest(arg: &str, ports: &dyn PortNames) -> Parsed<(SubField, SubField)> {
    let (source, name) = arrow(arg, "missing `->' following source")?;
    let source = sub_field(source, ports)?;
    let dest = sub_field(name, ports)?;
    if source.len_bits != dest.len_bits {
        let (a, b) = (source.len_bits, dest.len_bits);
        return fail(arg, format!("{arg}: source field is {a} bits wide but destination is {b} bits wide"));
    }
    writable(dest.field, name)?;
    Ok((source, dest))
}

/// Rejects a value with more bits.
pub(crate) fn fits(arg: &str, value: u128, len_bits: u16) -> Parsed<()> {
    if len_bits < 128 && value >> len_bits != 0 {
        return fail(arg, format!("{arg}: value {} does not fit into {len_bits} bits", hex(value)));
    }
    Ok(())
}

/// A table by number or name.
pub(crate) fn table(text: &str, names: &dyn PortNames, unknown: impl FnOnce() -> String) -> Parsed<TableId> {
    match parse_table(text, names) {
        Some(table) => Ok(table),
        None => fail(text, unknown()),
    }
}

/// A number of at most `max`.
pub(crate) fn bounded_u16(arg: &str, what: &str, max: u16) -> Parsed<u16> {
    let n = u16_named(arg, what)?;
    if n <= max { Ok(n) } else { fail(arg, format!("{arg}: not a valid {what}")) }
}

/// A number of at most `max`.
pub(crate) fn bounded_u8(arg: &str, what: &str, max: u8) -> Parsed<u8> {
    let n = u8_named(arg, what)?;
    if n <= max { Ok(n) } else { fail(arg, format!("{arg}: not a valid {what}")) }
}

/// An Ethernet address.
pub(crate) fn mac(arg: &str) -> Parsed<MacAddr> {
    match MacAddr::parse(arg) {
        Some(mac) => Ok(mac),
        None => fail(arg, format!("invalid mac address {arg}")),
    }
}

/// An IPv4 address.
pub(crate) fn ipv4(arg: &str) -> Parsed<u32> {
    match parse_ipv4(arg) {
        Some(address) => Ok(address),
        None => fail(arg, format!("{arg}: could not convert to IP address")),
    }
}

/// Pairs of hexadecimal digits, optionally separated by dots.
pub(crate) fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut rest = text.trim_start_matches('.').as_bytes();
    while let [high, low, after @ ..] = rest {
        let digit = |b: u8| char::from(b).to_digit(16);
        bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
        rest = after;
        while let [b'.', after @ ..] = rest {
            rest = after;
        }
    }
    rest.is_empty().then_some(bytes)
}

/// Bytes as pairs of hexadecimal digits separated by dots.
pub(crate) fn dotted_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

/// The nonzero timeouts.
pub(crate) fn timeouts(given: &[(&str, u16)]) -> Vec<String> {
    given.iter().filter(|(_, s)| *s != 0).map(|(name, s)| format!("{name}={s}")).collect()
}
