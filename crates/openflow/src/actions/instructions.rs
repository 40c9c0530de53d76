//! Instructions of OpenFlow 1.1 and later (1.3 §7.2.4): a frame around lists of actions.
//!
//! On the wire they may stand in any order, each at most once; decoded they stand in the order in which they take effect.

use super::{put_actions, read_actions};
use flow::action::Action;
use flow::{Match, TableId};
use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res, Writer};

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;

/// Instructions by type, each with the length it must have, or at least has.
const LENGTHS: [(u16, usize, bool); 6] = [
    (GOTO_TABLE, 8, true),
    (WRITE_METADATA, 24, true),
    (WRITE_ACTIONS, 8, false),
    (APPLY_ACTIONS, 8, false),
    (CLEAR_ACTIONS, 8, true),
    (METER, 8, true),
];

/// Reads instructions up to the end of `r`.
pub(crate) fn read_instructions(r: &mut Reader<'_>) -> Res<Vec<Action>> {
    let mut r = r.sub(r.len())?.or(ErrorKind::BicBadLen);
    let mut bodies: [Option<Reader<'_>>; 7] = Default::default();
    while !r.is_empty() {
        let mut head = r.clone();
        let (ty, len) = (head.u16()?, usize::from(head.u16()?));
        if len < 8 || !len.is_multiple_of(8) {
            return Err(ErrorKind::BicBadLen);
        }
        let mut body = r.sub(len)?;
        body.skip(4)?;
        if ty == EXPERIMENTER {
            return Err(ErrorKind::BicBadExperimenter);
        }
        let row = LENGTHS.iter().find(|l| l.0 == ty).ok_or(ErrorKind::BicUnknownInst)?;
        if row.2 && len != row.1 {
            return Err(ErrorKind::BicBadLen);
        }
        if bodies[usize::from(ty)].replace(body).is_some() {
            return Err(ErrorKind::BicDupInst);
        }
    }
    compose(bodies)
}

fn compose(mut bodies: [Option<Reader<'_>>; 7]) -> Res<Vec<Action>> {
    let mut out = Vec::new();
    let mut take = |ty: u16| bodies[usize::from(ty)].take();
    if let Some(mut b) = take(METER) {
        out.push(Action::Meter(b.u32()?));
    }
    if let Some(mut b) = take(APPLY_ACTIONS) {
        b.skip(4)?;
        out.extend(read_actions(&mut b)?);
    }
    if take(CLEAR_ACTIONS).is_some() {
        out.push(Action::ClearActions);
    }
    if let Some(mut b) = take(WRITE_ACTIONS) {
        b.skip(4)?;
        let set = read_actions(&mut b)?;
        if !set.iter().all(allowed_in_set) {
            return Err(ErrorKind::BacBadType);
        }
        out.push(Action::WriteActions(set));
    }
    if let Some(mut b) = take(WRITE_METADATA) {
        b.skip(4)?;
        let (value, mask) = (b.u64()?, b.u64()?);
        out.push(Action::WriteMetadata { value: value & mask, mask });
    }
    if let Some(mut b) = take(GOTO_TABLE) {
        out.push(Action::GotoTable(TableId(b.u8()?)));
    }
    Ok(out)
}

/// Whether an action may be in an action set; the standard has no `resubmit`, OVS takes it.
pub(super) fn allowed_in_set(a: &Action) -> bool {
    match a {
        Action::Controller(c) => c.is_plain(),
        Action::Output { .. }
        | Action::SetQueue(_)
        | Action::SetField { .. }
        | Action::Move { .. }
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::StripVlan
        | Action::PushVlan(_)
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetIpDscp(_)
        | Action::SetIpEcn(_)
        | Action::SetIpTtl(_)
        | Action::SetL4Src(_)
        | Action::SetL4Dst(_)
        | Action::DecTtl { .. }
        | Action::SetTunnel { .. }
        | Action::Resubmit { .. } => true,
        _ => false,
    }
}

/// Writes a list of actions and instructions as instructions; `m` is the match that it stands with.
pub(crate) fn put_instructions(w: &mut Writer, actions: &[Action], m: &Match) {
    let of = |rank: u8| actions.iter().filter(move |a| a.instruction_rank() == rank);
    let begin = |w: &mut Writer, ty: u16| {
        let mark = w.mark();
        w.u16(ty);
        w.u16(0);
        mark
    };
    for a in actions.iter().filter(|a| a.instruction_rank() == 0) {
        if let Action::Meter(id) = a {
            let mark = begin(w, METER);
            w.u32(*id);
            w.set_len(mark, 2);
        }
    }
    if of(1).next().is_some() {
        let mark = begin(w, APPLY_ACTIONS);
        w.zeros(4);
        put_actions(w, of(1), m);
        w.set_len(mark, 2);
    }
    for a in actions.iter().filter(|a| a.instruction_rank() > 1) {
        put_other(w, a, m, begin);
    }
}

fn put_other(w: &mut Writer, a: &Action, m: &Match, begin: impl Fn(&mut Writer, u16) -> usize) {
    let mark = match a {
        Action::ClearActions => {
            let mark = begin(w, CLEAR_ACTIONS);
            w.zeros(4);
            mark
        }
        Action::WriteActions(set) => {
            let mark = begin(w, WRITE_ACTIONS);
            w.zeros(4);
            put_actions(w, set.iter(), m);
            mark
        }
        Action::WriteMetadata { value, mask } => {
            let mark = begin(w, WRITE_METADATA);
            w.zeros(4);
            w.u64(*value);
            w.u64(*mask);
            mark
        }
        Action::GotoTable(table) => {
            let mark = begin(w, GOTO_TABLE);
            w.u8(table.0);
            w.zeros(3);
            mark
        }
        _ => return,
    };
    w.set_len(mark, 2);
}
