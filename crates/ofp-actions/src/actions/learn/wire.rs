//! The `learn` action (`NXAST_LEARN`, and `NXAST_LEARN2` with limit and result).
//!
//! Specifications follow the fixed part: a 16-bit header (kind of source and destination, number of bits), the
//! source (a field and an offset, or an immediate in units of 16 bits), and the destination (a field and an offset,
//! unless it is output).

use super::{LearnAction, LearnDest, LearnSource, LearnSpec};
use crate::list::Action;
use crate::put::nicira;
use crate::rows::valid;
use flow::{SubField, TableId};
use ofp_wire::{ErrorKind, Reader, Res, Writer, nxm};

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

/// Bits of a specification's header.
const LEN_MASK: u16 = 0x3ff;
const IMMEDIATE: u16 = 1 << 13;
const DEST_SHIFT: u16 = 11;
/// Maximum bits that are learned at once.
const MAX_BITS: u16 = 128;
const RESERVED: u16 = !(LEN_MASK | IMMEDIATE | 3 << DEST_SHIFT);

pub(super) fn read(r: &mut Reader<'_>, second: bool) -> Res<Action> {
    let (idle_timeout_s, hard_timeout_s, priority, cookie) = (r.u16()?, r.u16()?, r.u16()?, r.u64()?);
    let (flags, table, pad) = (r.u16()?, r.u8()?, r.u8()?);
    let (fin_idle_timeout_s, fin_hard_timeout_s) = (r.u16()?, r.u16()?);
    let known = SEND_FLOW_REM | DELETE_LEARNED | if second { WRITE_RESULT } else { 0 };
    if flags & !known != 0 || pad != 0 || table == 0xff {
        return Err(ErrorKind::BacBadArgument);
    }
    let mut limit = 0;
    let mut result_dst = None;
    if second {
        limit = r.u32()?;
        let offset_bits = r.u16()?;
        r.sub(2)?.zeros(ErrorKind::NxbacMustBeZero)?;
        if flags & WRITE_RESULT != 0 {
            let field = nxm::read_action_field(r)?;
            result_dst = Some(valid(SubField { field, offset_bits, len_bits: 1 }, r.options.tlv())?);
        } else if offset_bits != 0 {
            return Err(ErrorKind::BacBadArgument);
        }
    }
    let specs = read_specs(r)?;
    let learn = LearnAction {
        idle_timeout_s,
        hard_timeout_s,
        priority,
        cookie,
        table: TableId(table),
        send_flow_rem: flags & SEND_FLOW_REM != 0,
        delete_learned: flags & DELETE_LEARNED != 0,
        fin_idle_timeout_s,
        fin_hard_timeout_s,
        limit,
        result_dst,
        specs,
    };
    Ok(Box::new(learn).into())
}

fn read_specs(r: &mut Reader<'_>) -> Res<Vec<LearnSpec>> {
    let mut specs = Vec::new();
    while r.len() >= 2 {
        let header = r.u16()?;
        if header == 0 {
            break;
        }
        let len_bits = header & LEN_MASK;
        let is_immediate = header & IMMEDIATE != 0;
        if header & RESERVED != 0 || len_bits == 0 || is_immediate && len_bits > MAX_BITS {
            return Err(ErrorKind::BacBadArgument);
        }
        let source = if is_immediate {
            let value = r.uint(2 * usize::from(len_bits.div_ceil(16)))?;
            if len_bits < 128 && value >> len_bits != 0 {
                return Err(ErrorKind::BacBadArgument);
            }
            LearnSource::Immediate(value)
        } else {
            LearnSource::Field(read_range(r, len_bits)?)
        };
        // An unmapped field is an error before its length.
        if len_bits > MAX_BITS {
            return Err(ErrorKind::BacBadArgument);
        }
        let dest = match header >> DEST_SHIFT & 3 {
            0 => LearnDest::Match(read_range(r, len_bits)?),
            1 => LearnDest::Load(read_range(r, len_bits)?),
            2 => LearnDest::Output,
            _ => return Err(ErrorKind::BacBadArgument),
        };
        specs.push(cut(LearnSpec { source, dest, len_bits }));
    }
    r.zeros(ErrorKind::BacBadArgument)?;
    Ok(specs)
}

/// Reduces the lengths of both sides to the smaller one.
fn cut(mut spec: LearnSpec) -> LearnSpec {
    if let LearnDest::Match(s) | LearnDest::Load(s) = &spec.dest {
        spec.len_bits = spec.len_bits.min(s.len_bits);
    }
    if let LearnSource::Field(s) = &mut spec.source {
        spec.len_bits = spec.len_bits.min(s.len_bits);
        s.len_bits = spec.len_bits;
    }
    if let LearnDest::Match(s) | LearnDest::Load(s) = &mut spec.dest {
        s.len_bits = spec.len_bits;
    }
    if let (LearnSource::Immediate(v), true) = (&mut spec.source, spec.len_bits < 128) {
        *v &= (1 << spec.len_bits) - 1;
    }
    spec
}

fn read_range(r: &mut Reader<'_>, len_bits: u16) -> Res<SubField> {
    let field = nxm::read_action_field(r)?;
    valid(SubField { field, offset_bits: r.u16()?, len_bits }, r.options.tlv())
}

pub(super) fn put(w: &mut Writer, l: &LearnAction) {
    let second = l.limit != 0 || l.result_dst.is_some();
    nicira(w, if second { 45 } else { 16 }, |w| {
        w.u16(l.idle_timeout_s);
        w.u16(l.hard_timeout_s);
        w.u16(l.priority);
        w.u64(l.cookie);
        let flag = |yes: bool, bit: u16| if yes { bit } else { 0 };
        w.u16(
            flag(l.send_flow_rem, SEND_FLOW_REM)
                | flag(l.delete_learned, DELETE_LEARNED)
                | flag(l.result_dst.is_some(), WRITE_RESULT),
        );
        w.u8(l.table.0);
        w.u8(0);
        w.u16(l.fin_idle_timeout_s);
        w.u16(l.fin_hard_timeout_s);
        if second {
            w.u32(l.limit);
            w.u16(l.result_dst.map_or(0, |d| d.offset_bits));
            w.u16(0);
            if let Some(dst) = l.result_dst {
                nxm::put_nx_header(w, dst.field);
            }
        }
        l.specs.iter().for_each(|spec| put_spec(w, spec));
    });
}

fn put_spec(w: &mut Writer, spec: &LearnSpec) {
    let immediate = matches!(spec.source, LearnSource::Immediate(_));
    let dest = match spec.dest {
        LearnDest::Match(_) => 0,
        LearnDest::Load(_) => 1,
        LearnDest::Output => 2,
    };
    w.u16(spec.len_bits | if immediate { IMMEDIATE } else { 0 } | dest << DEST_SHIFT);
    match spec.source {
        LearnSource::Immediate(value) => {
            w.uint(value, 2 * usize::from(spec.len_bits.clamp(1, 128).div_ceil(16)))
        }
        LearnSource::Field(s) => put_range(w, s),
    }
    if let LearnDest::Match(s) | LearnDest::Load(s) = spec.dest {
        put_range(w, s);
    }
}

fn put_range(w: &mut Writer, s: SubField) {
    nxm::put_nx_header(w, s.field);
    w.u16(s.offset_bits);
}
