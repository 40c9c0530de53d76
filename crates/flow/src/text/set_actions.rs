//! Parses the actions that write fields: `set_field`, `load`, `move`, `push`, `pop`, `output` to a register's port.

use super::names::field_by_name;
use super::number::{hex, parse_u128};
use super::port::PortNames;
use super::subfield::sub_field;
use super::values::masked_value;
use super::{Parsed, fail};
use crate::action::{Action, SetStyle, SubField};
use crate::fields::FieldId;
use crate::flow::VlanTag;

/// Refuses fields that actions may not write.
pub(crate) fn writable(field: FieldId, part: &str) -> Parsed<()> {
    if matches!(field, FieldId::CtMark | FieldId::CtLabel) {
        return fail(part, "cannot set CT fields outside of ct action");
    }
    if !field.def().writable {
        return fail(part, format!("{part} is read-only"));
    }
    Ok(())
}

/// `VALUE[/MASK]->FIELD`; nothing when the mask is empty.
pub(crate) fn parse_set_field(arg: &str, ports: &dyn PortNames, out: &mut Vec<Action>) -> Parsed<()> {
    let (text, name) = arrow(arg, "missing `->'")?;
    if name.is_empty() {
        return fail(arg, format!("{arg}: missing field name following `->'"));
    }
    let Some(field) = field_by_name(name) else {
        return fail(name, format!("{name} is not a valid OXM field name"));
    };
    writable(field, name)?;
    let def = field.def();
    if def.nxm.is_none() && def.oxm.is_none() {
        return fail(name, format!("{name} cannot be set, because it has no NXM or OXM header"));
    }
    if text.is_empty() {
        return fail(text, format!("{text}: bad syntax for {} value", def.name));
    }
    let (value, mask) = masked_value(field, text, ports)?;
    let present = u128::from(VlanTag::PRESENT);
    if field == FieldId::VlanVid && mask & present != 0 && value & present == 0 {
        let with = value | present;
        return fail(
            text,
            format!(
                "{text}: invalid value for set field vlan_vid, the tag's presence bit is missing: {with}"
            ),
        );
    }
    // The type-of-service byte is set without its ECN bits.
    let mask = if field == FieldId::NwTos && mask != 0 { field.full_mask() } else { mask };
    if mask != 0 {
        out.push(Action::SetField { field, value, mask, style: SetStyle::SetField });
    }
    Ok(())
}

/// `VALUE->FIELD[BITS]`; more than 64 bits become one action for each 64.
pub(crate) fn parse_load(arg: &str, out: &mut Vec<Action>) -> Parsed<()> {
    let (text, name) = arrow(arg, "missing `->'")?;
    let sub = sub_field(name)?;
    let Ok(value) = parse_u128(text) else {
        return fail(text, format!("{arg}: cannot parse integer value"));
    };
    writable(sub.field, name)?;
    fits(arg, value, sub.len_bits)?;
    let mut done = 0;
    while done < sub.len_bits {
        let len_bits = (sub.len_bits - done).min(64);
        let part = SubField { field: sub.field, offset_bits: sub.offset_bits + done, len_bits };
        let mask = part.field_mask();
        let value = (value >> done) << part.offset_bits & mask;
        out.push(Action::SetField { field: sub.field, value, mask, style: SetStyle::Load });
        done += len_bits;
    }
    Ok(())
}

pub(crate) fn fits(arg: &str, value: u128, len_bits: u16) -> Parsed<()> {
    if len_bits < 128 && value >> len_bits != 0 {
        return fail(arg, format!("{arg}: value {} does not fit into {len_bits} bits", hex(value)));
    }
    Ok(())
}

/// `SOURCE->DESTINATION`, of the same width.
pub(crate) fn parse_move(arg: &str) -> Parsed<Action> {
    let (source, dest) = source_and_dest(arg)?;
    Ok(Action::Move { source, dest })
}

pub(crate) fn source_and_dest(arg: &str) -> Parsed<(SubField, SubField)> {
    let (source, dest) = arrow(arg, "missing `->' following source")?;
    let (from, name) = (sub_field(source)?, dest);
    let dest = sub_field(dest)?;
    if from.len_bits != dest.len_bits {
        let (a, b) = (from.len_bits, dest.len_bits);
        return fail(arg, format!("{arg}: source field is {a} bits wide but destination is {b} bits wide"));
    }
    writable(dest.field, name)?;
    Ok((from, dest))
}

/// The parts before and behind the arrow.
pub(crate) fn arrow<'a>(arg: &'a str, missing: &str) -> Parsed<(&'a str, &'a str)> {
    match arg.split_once("->") {
        Some(parts) => Ok(parts),
        None => fail(arg, format!("{arg}: {missing}")),
    }
}
