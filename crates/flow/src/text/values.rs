//! Values of single fields, with masks, in the field's own format.

use super::address::{
    format_masked_ip, format_masked_mac, format_packet_type, parse_masked_ip, parse_masked_mac,
};
use super::flags::{CT_STATE, FlagSet, TCP, TUNNEL};
use super::number::{NumberError, field_integer, hex};
use super::port::{format_port, parse_field_port};
use super::subfield::unmapped;
use super::{Fail, ParseError, Parsed, PortNames, fail};
use crate::fields::{FieldDef, FieldFormat, FieldId};
use crate::flow::nw_frag::{ANY, LATER};
use crate::{OfPort, TlvTable, Wide};

/// Names of fragment states with mask and value; parsing uses the first entry of a name.
pub(crate) const FRAG_NAMES: [(&str, u8, u8); 7] = [
    ("no", ANY | LATER, 0),
    ("first", ANY | LATER, ANY),
    ("later", ANY | LATER, ANY | LATER),
    ("yes", ANY, ANY),
    ("not_later", LATER, 0),
    ("no", ANY, 0),
    ("later", LATER, LATER),
];

/// Parses `VALUE`, `VALUE/MASK` or `*` in the field's format; the value has no bit outside the mask.
///
/// # Errors
/// The text does not have that format, a number does not fit, or the field does not allow the mask.
pub fn parse_value(field: FieldId, text: &str, ports: &dyn PortNames) -> Result<(u128, u128), ParseError> {
    masked_value(field, text, ports).map_err(|f: Fail| f.locate(text))
}

/// [`parse_value`] within a larger text.
///
/// # Errors
/// As [`parse_value`].
pub fn masked_value(field: FieldId, text: &str, ports: &dyn PortNames) -> Parsed<(u128, u128)> {
    let def = field.def();
    if text.is_empty() {
        return fail(text, format!("field {} missing value", def.name));
    }
    if text == "*" {
        return Ok((0, 0));
    }
    let flags = |set: &FlagSet| set.parse(text).map(|(v, m)| (u128::from(v), u128::from(m)));
    let (value, mask) = match def.format {
        FieldFormat::Decimal | FieldFormat::Hex => integer(field, text)?,
        FieldFormat::Ethernet => parse_masked_mac(text)?,
        FieldFormat::Ipv4 => parse_masked_ip(text, 32)?,
        FieldFormat::Ipv6 => parse_masked_ip(text, 128)?,
        FieldFormat::OfPort16 => {
            let port = parse_field_port(text, def.name, ports)?;
            match port.to_of10() {
                Some(n) => (n.into(), 0xffff),
                None => return fail(text, format!("{text}: port has no 16-bit form for {}", def.name)),
            }
        }
        FieldFormat::OfPort32 => (parse_field_port(text, def.name, ports)?.0.into(), field.full_mask()),
        FieldFormat::Frag => frag(text)?,
        FieldFormat::TunnelFlags => flags(&TUNNEL)?,
        FieldFormat::TcpFlags => flags(&TCP)?,
        FieldFormat::CtState => {
            let (value, mask) = flags(&CT_STATE)?;
            (value, if mask == u128::from(CT_STATE.all) { field.full_mask() } else { mask })
        }
        FieldFormat::PacketType => (packet_type(text)?, field.full_mask()),
    };
    if !def.maskable && mask != 0 && mask != field.full_mask() {
        return fail(text, format!("{text}: invalid mask for field {}", def.name));
    }
    Ok((value & mask, mask))
}

/// Parses `VALUE`, `VALUE/MASK` or `*` of tunnel metadata.
///
/// # Errors
/// No number, more bits than the mapping's, or no mapping.
pub fn metadata_value(field: FieldId, text: &str, tlv: &TlvTable) -> Parsed<(Wide, Wide)> {
    let (name, bits) = (field.def().name, tlv.bits_of(field));
    if bits == 0 {
        return unmapped(name);
    }
    if text == "*" {
        return Ok((Wide::default(), Wide::default()));
    }
    let number = |text: &str, what: &str| match Wide::parse(text) {
        Ok(n) if n.bits() <= bits.into() => Ok(n),
        Err(NumberError::Syntax) => fail(text, format!("{text}: bad syntax for {name} {what}")),
        Ok(_) | Err(NumberError::TooLarge) => {
            fail(text, format!("{text}: {what} too large for {}-byte field {name}", bits / 8))
        }
    };
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (number(value, "value")?, number(mask, "mask")?),
        None => (number(text, "value")?, Wide::ones(bits.into())),
    };
    Ok((value & mask, mask))
}

/// A value of tunnel metadata, and its mask unless that is full.
pub fn format_metadata(field: FieldId, value: Wide, mask: Wide, tlv: &TlvTable) -> String {
    if mask == Wide::ones(tlv.bits_of(field).into()) {
        value.hex()
    } else {
        format!("{}/{}", value.hex(), mask.hex())
    }
}

fn integer(field: FieldId, text: &str) -> Parsed<(u128, u128)> {
    let def = field.def();
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    };
    let number = |s: &str, what: &str| match field_integer(s, def.wire_bytes) {
        Ok(n) => Ok(n),
        Err(NumberError::Syntax) => fail(s, format!("{text}: bad syntax for {} {what}", def.name)),
        Err(NumberError::TooLarge) => {
            let bytes = def.wire_bytes;
            fail(s, format!("{text}: {what} too large for {bytes}-byte field {}", def.name))
        }
    };
    let value = significant(field, number(value, "value")?, text)?;
    let Some(mask) = mask else { return Ok((value, field.full_mask())) };
    let mask = number(mask, "mask")?;
    let full = field.full_mask();
    let partial_ok = def.maskable || mask == 0 || mask & full == full;
    if !partial_ok || !def.maskable && mask != 0 && mask != all_bytes(def) && mask != full {
        return fail(text, format!("{text}: invalid mask for field {}", def.name));
    }
    Ok((value, mask & full))
}

fn all_bytes(def: &FieldDef) -> u128 {
    u128::MAX >> (128 - u32::from(def.wire_bytes) * 8)
}

/// Drops the extra bits of OpenFlow 1.0 syntax and rejects others that do not fit.
fn significant(field: FieldId, value: u128, text: &str) -> Parsed<u128> {
    let value = match field {
        FieldId::DlVlan => value & !0x1000,
        FieldId::NwTos => value & !3,
        _ => value,
    };
    if value & !field.full_mask() != 0 {
        let def = field.def();
        return fail(text, format!("{text}: value does not fit into the {} bits of {}", def.bits, def.name));
    }
    Ok(value)
}

fn frag(text: &str) -> Parsed<(u128, u128)> {
    match FRAG_NAMES.iter().find(|(name, ..)| *name == text) {
        Some((_, mask, value)) => Ok((u128::from(*value), u128::from(*mask))),
        None => {
            let valid = "\"no\", \"yes\", \"first\", \"later\", \"not_later\"";
            fail(text, format!("{text}: unknown fragment type (valid types are {valid})"))
        }
    }
}

fn packet_type(text: &str) -> Parsed<u128> {
    let Some(inner) = text.strip_prefix('(') else {
        return fail(text, format!("{text}: bad syntax for packet type missing '('"));
    };
    let parts = inner.strip_suffix(')').and_then(|inner| inner.split_once(','));
    let part = |s: &str| field_integer(s.trim(), 2).ok();
    match parts.and_then(|(ns, ty)| part(ns).zip(part(ty))) {
        Some((ns, ty)) => Ok(ns << 16 | ty),
        None => fail(text, format!("{text}: bad syntax for packet type, expecting (NAMESPACE,TYPE)")),
    }
}

/// Name of a fragment state, if the mask has one.
pub(crate) fn frag_name(value: u8, mask: u8) -> Option<&'static str> {
    FRAG_NAMES.iter().find(|(_, m, v)| (*m, *v) == (mask, value & mask)).map(|(name, ..)| *name)
}

/// A value, and its mask unless that is full, in the field's format (as in `set_field` and `learn`).
pub fn format_value(field: FieldId, value: u128, mask: u128, ports: &dyn PortNames) -> String {
    let def = field.def();
    let full = mask == field.full_mask();
    let with_mask = |s: String| if full { s } else { format!("{s}/{}", hex(mask)) };
    let flags = |set: &FlagSet| {
        let (value, mask) = (value as u32, mask as u32);
        let all = mask & set.all == set.all;
        if all { set.format(value) } else { set.format_signed(value, mask) }
    };
    match def.format {
        FieldFormat::Decimal => with_mask(value.to_string()),
        FieldFormat::Hex => with_mask(hex(value)),
        FieldFormat::Ethernet => format_masked_mac(value as u64, mask as u64),
        FieldFormat::Ipv4 => format_masked_ip(value, mask, 32),
        FieldFormat::Ipv6 => format_masked_ip(value, mask, 128),
        FieldFormat::OfPort16 => with_mask(format_port(OfPort::from_of10(value as u16), ports)),
        FieldFormat::OfPort32 => with_mask(format_port(OfPort(value as u32), ports)),
        FieldFormat::Frag => match frag_name(value as u8, mask as u8) {
            Some(name) => name.into(),
            None => with_mask(hex(value)),
        },
        FieldFormat::TunnelFlags => flags(&TUNNEL),
        FieldFormat::TcpFlags => flags(&TCP),
        FieldFormat::CtState => flags(&CT_STATE),
        FieldFormat::PacketType => with_mask(format_packet_type(value as u32)),
    }
}
