//! Actions and instructions on the wire (OpenFlow 1.0 §5.2.4, 1.3 §7.2.4 and §7.2.5, Nicira's `NXAST_*`).
//!
//! Decoding goes by the rows of [`table`]: vendor, type, versions, length, function. An action without a row is refused with
//! the error that its kind asks for, never ignored. Encoding ([`encode`]) chooses for each action the form that the version
//! has. [`check`] holds a list against the match it stands with.

mod check;
mod encode;
mod instructions;
mod learn;
mod table;

pub use check::{CheckContext, check_actions};
pub(crate) use encode::put_actions;
pub(crate) use instructions::{put_instructions, read_instructions};

use flow::action::Action;
use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res};

/// Type of an action of an experimenter.
const EXPERIMENTER: u16 = 0xffff;

/// Reads a list of actions up to the end of `r`.
pub(crate) fn read_actions(r: &mut Reader<'_>) -> Res<Vec<Action>> {
    let mut r = r.sub(r.len())?.or(ErrorKind::BacBadLen);
    let mut out = Vec::new();
    while !r.is_empty() {
        out.push(read_action(&mut r)?);
    }
    Ok(out)
}

fn read_action(r: &mut Reader<'_>) -> Res<Action> {
    let mut head = r.clone();
    let (ty, len) = (head.u16()?, usize::from(head.u16()?));
    if len < 8 || !len.is_multiple_of(8) {
        return Err(ErrorKind::BacBadLen);
    }
    let mut body = r.sub(len)?;
    body.skip(4)?;
    let (vendor, subtype) = if ty == EXPERIMENTER {
        let vendor = body.u32()?;
        if !table::VENDORS.contains(&vendor) {
            return Err(ErrorKind::BacBadExperimenter);
        }
        (vendor, body.u16()?)
    } else {
        (0, ty)
    };
    let unknown = if vendor == 0 { ErrorKind::BacBadType } else { ErrorKind::BacBadExpType };
    let row = table::find(vendor, subtype, r.version).ok_or(unknown)?;
    if !row.len.holds(len) {
        return Err(ErrorKind::BacBadLen);
    }
    (row.read)(&mut body)
}
