//! Instructions of OpenFlow 1.1 and later (1.3 §7.2.4): a frame around lists of actions.
//!
//! On the wire they may have any order, each at most once; decoded they are in execution order.

use crate::action::Stage;
use crate::list::Action;
use crate::put::{PutContext, put_actions};
use crate::rows::{EXPERIMENTER, Len, Numbering, ReadFn, find, read_actions};
use flow::Match;
use ofp_wire::{ErrorKind, Reader, Res, Version, Writer};

const APPLY_ACTIONS: u16 = 4;

/// Number of stages.
const STAGES: usize = Stage::Goto as usize + 1;

/// Part of an instruction that is read after all are framed.
#[derive(Clone, Copy)]
enum Body {
    /// The applied actions.
    Apply,
    /// Anything else.
    Other(ReadFn),
}

/// Reads instructions up to the end of `r`.
///
/// # Errors
/// The error to reply with.
pub fn read_instructions(r: &mut Reader<'_>) -> Res<Vec<Action>> {
    let mut r = r.sub(r.len())?.or(ErrorKind::BicBadLen);
    let mut bodies: [Option<(Body, Reader<'_>)>; STAGES] = Default::default();
    while !r.is_empty() {
        let mut head = r.clone();
        let (ty, len) = (head.u16()?, usize::from(head.u16()?));
        if len < 8 || !len.is_multiple_of(8) {
            return Err(ErrorKind::BicBadLen);
        }
        let mut reader = r.sub(len)?;
        reader.skip(4)?;
        if ty == EXPERIMENTER {
            return Err(ErrorKind::BicBadExperimenter);
        }
        let (stage, lengths, body) = kind(ty, r.version)?;
        if !lengths.holds(len) {
            return Err(ErrorKind::BicBadLen);
        }
        if bodies[stage as usize].replace((body, reader)).is_some() {
            return Err(ErrorKind::BicDupInst);
        }
    }
    let mut out = Vec::new();
    for (body, mut reader) in bodies.into_iter().flatten() {
        match body {
            Body::Apply => {
                reader.skip(4)?;
                let list = read_actions(&mut reader)?;
                match out.is_empty() {
                    true => out = list,
                    false => out.extend(list),
                }
            }
            Body::Other(read) => out.push(read(&mut reader)?),
        }
    }
    Ok(out)
}

/// Stage, lengths and content of an instruction's type.
fn kind(ty: u16, version: Version) -> Res<(Stage, Len, Body)> {
    if ty == APPLY_ACTIONS {
        return Ok((Stage::Apply, Len::Min(8), Body::Apply));
    }
    let row = find(Numbering::Instructions, 0, ty, version).ok_or(ErrorKind::BicUnknownInst)?;
    Ok((row.stage, row.len, Body::Other(row.read)))
}

/// Writes a list of actions and instructions as instructions; `m` is its match.
pub fn put_instructions(w: &mut Writer, actions: &[Action], m: &Match) {
    let of = |wanted: fn(Stage) -> bool| actions.iter().filter(move |a| wanted(a.stage()));
    let mut cx = PutContext::new(m, true);
    // In OpenFlow 1.5 the meter is the first action.
    let applied: fn(Stage) -> bool =
        if w.version >= Version::V15 { |s| s <= Stage::Apply } else { |s| s == Stage::Apply };
    of(|s| s < Stage::Apply).filter(|a| !applied(a.stage())).for_each(|a| a.put(w, &mut cx));
    if of(applied).next().is_some() {
        put_instruction(w, APPLY_ACTIONS, |w| {
            w.zeros(4);
            put_actions(w, of(applied), m);
        });
    }
    of(|s| s > Stage::Apply).for_each(|a| a.put(w, &mut cx));
}

/// Writes one instruction: type, length, `body`.
pub(crate) fn put_instruction(w: &mut Writer, ty: u16, body: impl FnOnce(&mut Writer)) {
    let mark = w.mark();
    w.u16(ty);
    w.u16(0);
    body(w);
    w.set_len(mark, 2);
}
