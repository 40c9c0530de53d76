//! Wire forms of the decoder: rows of vendor, type, versions, length and function. An action without a row is
//! rejected with the error of its kind, never ignored.

use crate::action::Stage;
use crate::list::{Action, KEYS, ROWS};
use crate::nesting::{Scope, check_place};
use flow::fields::FieldId;
use flow::{SubField, TlvTable};
use ofp_wire::{ErrorKind, NX_VENDOR, ONF_VENDOR, Reader, Res, Version};

/// Type of an action of an experimenter.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// Maximum number of lists around an action, on the wire and in text; OVS has this bound in text only.
pub(crate) const MAX_NESTING: u8 = 99;

/// Permitted lengths of an action, headers included.
#[derive(Clone, Copy)]
pub(crate) enum Len {
    /// Exactly this number of bytes.
    Is(usize),
    /// At least this number.
    Min(usize),
}

impl Len {
    pub(crate) fn holds(self, len: usize) -> bool {
        match self {
            Len::Is(n) => len == n,
            Len::Min(n) => len >= n,
        }
    }
}

/// The two numberings of types.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Numbering {
    Actions,
    Instructions,
}

/// Decodes an action from the bytes after its type and length (and experimenter).
pub(crate) type ReadFn = fn(&mut Reader<'_>) -> Res<Action>;

/// One wire form in a range of versions.
#[derive(Clone, Copy)]
pub struct Row {
    pub(crate) numbering: Numbering,
    pub(crate) vendor: u32,
    pub(crate) ty: u16,
    pub(crate) stage: Stage,
    pub(crate) first: Version,
    pub(crate) last: Version,
    pub(crate) len: Len,
    pub(crate) read: ReadFn,
}

impl Row {
    const fn new(vendor: u32, ty: u16, len: Len, read: ReadFn) -> Row {
        let (first, last) = (Version::V10, Version::V15);
        Row { numbering: Numbering::Actions, vendor, ty, stage: Stage::Apply, first, last, len, read }
    }

    /// The form in these versions only.
    pub(crate) const fn within(self, first: Version, last: Version) -> Row {
        Row { first, last, ..self }
    }
}

/// An action of OpenFlow 1.0.
pub(crate) const fn of10(ty: u16, len: usize, read: ReadFn) -> Row {
    Row::new(0, ty, Len::Is(len), read).within(Version::V10, Version::V10)
}

/// A setter of OpenFlow 1.1, which later versions read too but write as a set-field.
pub(crate) const fn setter11(ty: u16, len: usize, read: ReadFn) -> Row {
    of11(ty, Len::Is(len), read)
}

/// An action of OpenFlow 1.1 and later.
pub(crate) const fn of11(ty: u16, len: Len, read: ReadFn) -> Row {
    Row::new(0, ty, len, read).within(Version::V11, Version::V15)
}

/// A Nicira action.
pub(crate) const fn nx(ty: u16, len: Len, read: ReadFn) -> Row {
    Row::new(NX_VENDOR, ty, len, read)
}

/// An action of the ONF's extensions.
pub(crate) const fn onf(ty: u16, len: Len, read: ReadFn) -> Row {
    Row::new(ONF_VENDOR, ty, len, read)
}

/// An instruction.
pub(crate) const fn instruction(stage: Stage, ty: u16, len: Len, read: ReadFn) -> Row {
    Row { numbering: Numbering::Instructions, stage, ..of11(ty, len, read) }
}

/// Number of rows.
pub(crate) const fn count(lists: &[&[Row]]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < lists.len() {
        n += lists[i].len();
        i += 1;
    }
    n
}

/// Sort key: numbering, vendor, type, first version.
const fn key(r: &Row) -> u64 {
    (r.numbering as u64) << 56 | (r.vendor as u64) << 24 | (r.ty as u64) << 8 | r.first.0 as u64
}

/// The keys of sorted rows, in a row: a search reads few cache lines.
pub(crate) const fn keys<const N: usize>(rows: &[Row; N]) -> [u64; N] {
    let (mut out, mut i) = ([0; N], 0);
    while i < N {
        out[i] = key(&rows[i]);
        i += 1;
    }
    out
}

/// All rows in key order.
pub(crate) const fn sorted<const N: usize>(lists: &[&[Row]]) -> [Row; N] {
    let mut out = [lists[0][0]; N];
    let (mut n, mut i) = (0, 0);
    while i < lists.len() {
        let mut j = 0;
        while j < lists[i].len() {
            let row = lists[i][j];
            let mut at = n;
            while at > 0 && key(&out[at - 1]) > key(&row) {
                out[at] = out[at - 1];
                at -= 1;
            }
            out[at] = row;
            n += 1;
            j += 1;
        }
        i += 1;
    }
    out
}

/// Whether the sorted rows have no duplicate type in a version.
pub(crate) const fn are_distinct(rows: &[Row]) -> bool {
    let mut i = 1;
    while i < rows.len() {
        let (a, b) = (&rows[i - 1], &rows[i]);
        if key(a) >> 8 == key(b) >> 8 && a.last.0 >= b.first.0 {
            return false;
        }
        i += 1;
    }
    true
}

/// The row of a type in a version.
pub(crate) fn find(numbering: Numbering, vendor: u32, ty: u16, version: Version) -> Option<&'static Row> {
    let wanted =
        (numbering as u64) << 56 | u64::from(vendor) << 24 | u64::from(ty) << 8 | u64::from(version.0);
    let behind = KEYS.partition_point(|key| *key <= wanted);
    let row = ROWS[..behind].last()?;
    (KEYS[behind - 1] >> 8 == wanted >> 8 && version <= row.last).then_some(row)
}

/// Whether any action belongs to that experimenter.
fn is_vendor(vendor: u32) -> bool {
    let before = (Numbering::Actions as u64) << 56 | u64::from(vendor) << 24;
    let at = ROWS.partition_point(|r| key(r) < before);
    ROWS.get(at).is_some_and(|r| r.numbering == Numbering::Actions && r.vendor == vendor)
}

/// Reads a list of actions up to the end of `r`. Actions that are instructions elsewhere follow the others;
/// actions with lists within nest to [`MAX_NESTING`].
///
/// # Errors
/// The error to reply with.
pub fn read_actions(r: &mut Reader<'_>) -> Res<Vec<Action>> {
    read_nested(r, Scope::Whole)
}

/// Reads the list of actions of another action up to the end of `r`.
pub(crate) fn read_nested(r: &mut Reader<'_>, scope: Scope) -> Res<Vec<Action>> {
    if r.nesting > MAX_NESTING {
        return Err(ErrorKind::BacTooMany);
    }
    let mut r = r.sub(r.len())?.or(ErrorKind::BacBadLen);
    r.nesting += 1;
    let mut out = Vec::with_capacity(count_actions(r.peek()));
    while !r.is_empty() {
        out.push(read_action(&mut r)?);
    }
    out.iter().try_for_each(|action| check_place(action, scope)).map_err(|(error, _)| error)?;
    let stages = out.iter().map(Action::stage).map(|stage| in_list(stage, r.version));
    if stages.is_sorted() { Ok(out) } else { Err(ErrorKind::BacUnsupportedOrder) }
}

/// Number of actions by their lengths, up to a bad one. A list of exact size matters: groups have millions of them.
fn count_actions(mut bytes: &[u8]) -> usize {
    let mut n = 0;
    while let Some([_, _, high, low]) = bytes.first_chunk() {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(rest) = bytes.get(len..).filter(|_| len >= 8) else { break };
        (n, bytes) = (n + 1, rest);
    }
    n
}

/// Stage of an action in a list: in OpenFlow 1.5 a meter is an action as any other.
fn in_list(stage: Stage, version: Version) -> Stage {
    if stage == Stage::Meter && version >= Version::V15 { Stage::Apply } else { stage }
}

fn read_action(r: &mut Reader<'_>) -> Res<Action> {
    let mut head = r.clone();
    let (ty, len) = (head.u16()?, usize::from(head.u16()?));
    if len < 8 || !len.is_multiple_of(8) {
        return Err(ErrorKind::BacBadLen);
    }
    let mut body = r.sub(len)?;
    body.skip(4)?;
    let (vendor, subtype) = match ty {
        EXPERIMENTER => (body.u32()?, body.u16()),
        ty => (0, Ok(ty)),
    };
    let row = subtype.ok().and_then(|subtype| find(Numbering::Actions, vendor, subtype, r.version));
    let row = row.ok_or_else(|| unknown(vendor, subtype.err()))?;
    if !row.len.holds(len) {
        return Err(ErrorKind::BacBadLen);
    }
    (row.read)(&mut body)
}

/// The error of an action without a row; `short`: that of its type.
fn unknown(vendor: u32, short: Option<ErrorKind>) -> ErrorKind {
    match vendor {
        0 => ErrorKind::BacBadType,
        vendor if !is_vendor(vendor) => ErrorKind::BacBadExperimenter,
        _ => short.unwrap_or(ErrorKind::BacBadExpType),
    }
}

/// Rejects a number with bits outside the mask.
pub(crate) fn limited(value: u16, mask: u16) -> Res<u16> {
    if value & !mask == 0 { Ok(value) } else { Err(ErrorKind::BacBadArgument) }
}

/// A range of bits from the 16-bit form `offset << 6 | (bits - 1)`.
pub(crate) fn subfield(field: FieldId, ofs_nbits: u16, tlv: &TlvTable) -> Res<SubField> {
    valid(SubField { field, offset_bits: ofs_nbits >> 6, len_bits: (ofs_nbits & 63) + 1 }, tlv)
}

/// Rejects a range beyond its field. The ARP opcode has 16 bits on the wire, of which 8 are stored: truncates a
/// range beyond those.
pub(crate) fn valid(mut s: SubField, tlv: &TlvTable) -> Res<SubField> {
    let end = u32::from(s.offset_bits) + u32::from(s.len_bits);
    if s.field == FieldId::ArpOp && end <= 16 && s.offset_bits < 8 {
        s.len_bits = s.len_bits.min(8 - s.offset_bits);
    }
    let end = u32::from(s.offset_bits) + u32::from(s.len_bits);
    if s.is_valid() && end <= u32::from(tlv.bits_of(s.field)) { Ok(s) } else { Err(ErrorKind::BacBadSetLen) }
}
