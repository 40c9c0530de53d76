//! Ranges of bits of a field: `NAME[]`, `NAME[BIT]`, `NAME[FIRST..LAST]`.

use super::names::{field_by_subfield_name, subfield_name};
use super::{Fail, ParseError, Parsed, PortNames, fail};
use crate::fields::FieldId;
use crate::{SubField, TlvTable};

/// Number of bits of `NAME[]`: excludes the presence bit of a VLAN number.
pub(crate) fn whole_bits(field: FieldId, tlv: &TlvTable) -> u16 {
    if field == FieldId::VlanVid { 12 } else { tlv.bits_of(field) }
}

/// All bits of `NAME[]`.
pub(crate) fn whole(field: FieldId, tlv: &TlvTable) -> SubField {
    SubField { field, offset_bits: 0, len_bits: whole_bits(field, tlv) }
}

/// Formats the range for actions.
pub fn format_subfield(sub: SubField, ports: &dyn PortNames) -> String {
    let name = subfield_name(sub.field);
    let last = u32::from(sub.offset_bits) + u32::from(sub.len_bits).saturating_sub(1);
    if sub == whole(sub.field, ports.tlv()) {
        format!("{name}[]")
    } else if sub.len_bits <= 1 {
        format!("{name}[{}]", sub.offset_bits)
    } else {
        format!("{name}[{}..{last}]", sub.offset_bits)
    }
}

/// Parses a range; the field by its NXM, OXM or match name. Without brackets it is the whole field.
///
/// # Errors
/// The field is unknown or the bits are not within it.
pub fn parse_subfield(text: &str, ports: &dyn PortNames) -> Result<SubField, ParseError> {
    sub_field(text, ports).map_err(|f: Fail| f.locate(text))
}

/// [`parse_subfield`] within a larger text.
///
/// # Errors
/// As [`parse_subfield`].
pub fn sub_field(text: &str, ports: &dyn PortNames) -> Parsed<SubField> {
    let (name, range) = match text.find('[') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let Some(field) = field_by_subfield_name(name) else {
        return fail(text, format!("{text}: unknown field `{name}'"));
    };
    if whole_bits(field, ports.tlv()) == 0 {
        return unmapped(name);
    }
    bits(text, field, range, ports.tlv())
}

/// Rejects tunnel metadata without a mapping.
///
/// # Errors
/// Always.
pub(crate) fn unmapped<T>(name: &str) -> Parsed<T> {
    fail(name, format!("{name}: no tunnel option is mapped to this field (NXFMFC_INVALID_TLV_FIELD)"))
}

/// Parses the bracketed part of `text`.
fn bits(text: &str, field: FieldId, range: &str, tlv: &TlvTable) -> Parsed<SubField> {
    let syntax = || fail(range, format!("{text}: syntax error expecting [] or [<bit>] or [<start>..<end>]"));
    if range.is_empty() {
        return Ok(whole(field, tlv));
    }
    let Some((inner, behind)) = range[1..].split_once(']') else { return syntax() };
    if !behind.is_empty() {
        return fail(behind, "unexpected input following field syntax");
    }
    if inner.is_empty() {
        return Ok(whole(field, tlv));
    }
    let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u16>().ok()).flatten();
    let (first, last) = match inner.split_once("..") {
        Some((first, last)) => (number(first), number(last)),
        None => (number(inner), number(inner)),
    };
    let Some((first, last)) = first.zip(last) else { return syntax() };
    let width = tlv.bits_of(field);
    if first > last {
        return fail(range, format!("{text}: starting bit {first} is after ending bit {last}"));
    }
    for (what, bit) in [("starting", first), ("ending", last)] {
        if bit >= width {
            let why =
                format!("{text}: {what} bit {bit} is not valid because field is only {width} bits wide");
            return fail(range, why);
        }
    }
    Ok(SubField { field, offset_bits: first, len_bits: last - first + 1 })
}
