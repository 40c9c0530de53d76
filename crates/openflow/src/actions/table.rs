//! The rows of the actions that can be decoded.

use flow::action::{Action, ControllerAction, PacketInReason, SetStyle, SubField};
use flow::fields::FieldId;
use flow::{MacAddr, OfPort, TableId};
use ofp_wire::Version;
use ofp_wire::nxm;
use ofp_wire::prop;
use ofp_wire::{ErrorKind, NX_VENDOR, ONF_VENDOR};
use ofp_wire::{Reader, Res};

/// Experimenters that have rows.
pub(super) const VENDORS: [u32; 2] = [NX_VENDOR, ONF_VENDOR];

/// Lengths that an action may have, headers included.
#[derive(Clone, Copy)]
pub(super) enum Len {
    /// So many bytes.
    Is(usize),
    /// At least so many.
    Min(usize),
}

impl Len {
    pub(super) fn holds(self, len: usize) -> bool {
        match self {
            Len::Is(n) => len == n,
            Len::Min(n) => len >= n,
        }
    }
}

/// One action's wire form in a range of versions.
pub(super) struct Row {
    vendor: u32,
    ty: u16,
    first: Version,
    last: Version,
    pub(super) len: Len,
    pub(super) read: fn(&mut Reader<'_>) -> Res<Action>,
}

pub(super) fn find(vendor: u32, ty: u16, version: Version) -> Option<&'static Row> {
    let found = |r: &&Row| r.vendor == vendor && r.ty == ty && (r.first..=r.last).contains(&version);
    ROWS.iter().find(found)
}

const fn of10(ty: u16, len: usize, read: fn(&mut Reader<'_>) -> Res<Action>) -> Row {
    Row { vendor: 0, ty, first: Version::V10, last: Version::V10, len: Len::Is(len), read }
}

const fn of11(ty: u16, len: Len, read: fn(&mut Reader<'_>) -> Res<Action>) -> Row {
    Row { vendor: 0, ty, first: Version::V11, last: Version::V15, len, read }
}

const fn nx(ty: u16, len: Len, read: fn(&mut Reader<'_>) -> Res<Action>) -> Row {
    Row { vendor: NX_VENDOR, ty, first: Version::V10, last: Version::V15, len, read }
}

/// `NXAST_*` 10 (multipath) to 50 (delete_field), `OFPAT_*` 11 to 20 and 26, 27 (MPLS, PBB) that are not here are refused as
/// unknown.
static ROWS: &[Row] = &[
    of10(0, 8, |r| output(OfPort::from_of10(r.u16()?), r.u16()?)),
    of10(1, 8, |r| Ok(Action::SetVlanVid(limited(r.u16()?.into(), 0xfff)? as u16))),
    of10(2, 8, |r| Ok(Action::SetVlanPcp(limited(r.u8()?.into(), 7)? as u8))),
    of10(3, 8, |_| Ok(Action::StripVlan)),
    of10(4, 16, |r| Ok(Action::SetEthSrc(MacAddr(r.array()?)))),
    of10(5, 16, |r| Ok(Action::SetEthDst(MacAddr(r.array()?)))),
    of10(6, 8, |r| Ok(Action::SetIpv4Src(r.u32()?))),
    of10(7, 8, |r| Ok(Action::SetIpv4Dst(r.u32()?))),
    of10(8, 8, |r| Ok(Action::SetIpDscp(limited(r.u8()?.into(), 0xfc)? as u8))),
    of10(9, 8, |r| Ok(Action::SetL4Src(r.u16()?))),
    of10(10, 8, |r| Ok(Action::SetL4Dst(r.u16()?))),
    of10(11, 16, enqueue),
    of11(0, Len::Is(16), output11),
    of11(17, Len::Is(8), push_vlan),
    of11(18, Len::Is(8), |_| Ok(Action::StripVlan)),
    of11(21, Len::Is(8), |r| Ok(Action::SetQueue(r.u32()?))),
    of11(22, Len::Is(8), |_| Err(ErrorKind::BacBadOutGroup)),
    of11(23, Len::Is(8), |r| Ok(Action::SetIpTtl(r.u8()?))),
    of11(24, Len::Is(8), |_| Ok(Action::DecTtl { controllers: vec![0] })),
    of11(25, Len::Min(16), set_field),
    nx(1, Len::Is(16), |r| Ok(Action::Resubmit { in_port: OfPort::from_of10(r.u16()?), table: None })),
    nx(2, Len::Is(16), |r| {
        r.skip(2)?;
        Ok(Action::SetTunnel { id: r.u32()?.into(), wide: false })
    }),
    nx(4, Len::Is(16), |r| {
        r.skip(2)?;
        Ok(Action::SetQueue(r.u32()?))
    }),
    nx(5, Len::Is(16), |_| Ok(Action::PopQueue)),
    nx(6, Len::Min(24), reg_move),
    nx(7, Len::Is(24), reg_load),
    nx(8, Len::Min(16), |r| Ok(Action::Note(r.rest().to_vec()))),
    nx(9, Len::Is(24), |r| {
        r.skip(6)?;
        Ok(Action::SetTunnel { id: r.u64()?, wide: true })
    }),
    nx(14, Len::Is(16), resubmit_table),
    nx(15, Len::Is(24), output_reg),
    nx(16, Len::Min(32), |r| super::learn::read(r, false)),
    nx(17, Len::Is(16), |_| Ok(Action::Exit)),
    nx(18, Len::Is(16), |_| Ok(Action::DecTtl { controllers: vec![0] })),
    nx(19, Len::Is(16), fin_timeout),
    nx(20, Len::Is(16), controller),
    nx(21, Len::Min(16), dec_ttl_ids),
    nx(22, Len::Is(32), write_metadata),
    nx(27, Len::Is(24), |r| Ok(Action::StackPush(stack(r)?))),
    nx(28, Len::Is(24), |r| Ok(Action::StackPop(stack(r)?))),
    nx(32, Len::Is(24), output_reg2),
    nx(33, Len::Min(24), reg_load2),
    nx(37, Len::Min(16), controller2),
    nx(40, Len::Is(16), |_| Err(ErrorKind::BacBadOutGroup)),
    nx(45, Len::Min(40), |r| super::learn::read(r, true)),
    nx(254, Len::Is(16), |_| Ok(Action::DebugSlow)),
    nx(255, Len::Is(16), |_| Ok(Action::DebugRecirc)),
    // ONF EXT-320 for OpenFlow 1.3.
    Row {
        vendor: ONF_VENDOR,
        ty: 3200,
        first: Version::V13,
        last: Version::V14,
        len: Len::Min(24),
        read: |r| {
            r.skip(2)?;
            move_of(r, 2)
        },
    },
];

fn limited(value: u32, mask: u32) -> Res<u32> {
    if value & !mask == 0 { Ok(value) } else { Err(ErrorKind::BacBadArgument) }
}

/// An output; one to `CONTROLLER` is the controller action in its simplest form.
fn output(port: OfPort, max_len_bytes: u16) -> Res<Action> {
    if port == OfPort::CONTROLLER {
        return Ok(Action::Controller(Box::new(ControllerAction::plain(max_len_bytes))));
    }
    Ok(Action::Output { port, max_len_bytes })
}

fn output11(r: &mut Reader<'_>) -> Res<Action> {
    let (port, max_len) = (r.u32()?, r.u16()?);
    if !nxm::port_number_ok(port) {
        return Err(ErrorKind::BacBadOutPort);
    }
    output(OfPort(port), max_len)
}

fn enqueue(r: &mut Reader<'_>) -> Res<Action> {
    let port = OfPort::from_of10(r.u16()?);
    r.skip(6)?;
    if port.is_reserved() && port != OfPort::IN_PORT {
        return Err(ErrorKind::BacBadOutPort);
    }
    Ok(Action::Enqueue { port, queue: r.u32()? })
}

fn push_vlan(r: &mut Reader<'_>) -> Res<Action> {
    match r.u16()? {
        tpid @ (0x8100 | 0x88a8) => Ok(Action::PushVlan(tpid)),
        _ => Err(ErrorKind::BacBadArgument),
    }
}

fn resubmit_table(r: &mut Reader<'_>) -> Res<Action> {
    let in_port = OfPort::from_of10(r.u16()?);
    let table = r.u8()?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Action::Resubmit { in_port, table: (table != 0xff).then_some(TableId(table)) })
}

/// A range of bits from the 16-bit form `offset << 6 | (bits - 1)`.
fn subfield(field: FieldId, ofs_nbits: u16) -> Res<SubField> {
    valid(SubField { field, offset_bits: ofs_nbits >> 6, len_bits: (ofs_nbits & 63) + 1 })
}

/// Refuses a range that does not lie within its field. The ARP opcode has 16 bits on the wire, of which 8 are kept: a
/// range that goes beyond those is cut.
pub(super) fn valid(mut s: SubField) -> Res<SubField> {
    let end = u32::from(s.offset_bits) + u32::from(s.len_bits);
    if s.field == FieldId::ArpOp && end <= 16 && s.offset_bits < 8 {
        s.len_bits = s.len_bits.min(8 - s.offset_bits);
    }
    if s.is_valid() { Ok(s) } else { Err(ErrorKind::BacBadSetLen) }
}

fn reg_load(r: &mut Reader<'_>) -> Res<Action> {
    let range = r.u16()?;
    let dst = subfield(nxm::read_action_field(&mut r.sub(4)?)?, range)?;
    let value = r.u64()?;
    if dst.len_bits < 64 && value >> dst.len_bits != 0 {
        return Err(ErrorKind::BacBadArgument);
    }
    let value = u128::from(value) << dst.offset_bits;
    Ok(Action::SetField { field: dst.field, value, mask: dst.field_mask(), style: SetStyle::Load })
}

/// A field with value and perhaps mask, as set-field and `NXAST_REG_LOAD2` have it, and the padding behind it.
fn field_value(r: &mut Reader<'_>, masked_ok: bool) -> Res<Action> {
    let h = nxm::Header::read(r).map_err(|_| ErrorKind::BacBadSetLen)?;
    let field = h.field().ok_or(ErrorKind::BacBadSetType)?;
    if h.has_mask && !masked_ok {
        return Err(ErrorKind::BacBadSetMask);
    }
    let bytes = usize::from(field.def().wire_bytes);
    let value = r.uint(bytes)?;
    let mask = if h.has_mask { r.uint(bytes)? } else { nxm::valid_bits(field) };
    let bad_mask = mask & !nxm::valid_bits(field) != 0 || value & !mask != 0 && h.has_mask;
    if !nxm::value_ok(field, value) || bad_mask {
        return Err(ErrorKind::BacBadSetArgument);
    }
    if r.len() >= 8 {
        return Err(ErrorKind::BacBadLen);
    }
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Action::SetField { field, value, mask, style: SetStyle::SetField })
}

fn set_field(r: &mut Reader<'_>) -> Res<Action> {
    let action = field_value(r, r.version >= Version::V15)?;
    match action {
        // Without the bit that says that there is a tag (OpenFlow 1.3 §7.2.3.7) it is no VLAN.
        Action::SetField { field: FieldId::VlanVid, value, .. } if value & 0x1000 == 0 => {
            Err(ErrorKind::BacBadSetArgument)
        }
        action => Ok(action),
    }
}

fn reg_load2(r: &mut Reader<'_>) -> Res<Action> {
    r.sub(6)?.zeros(ErrorKind::NxbacMustBeZero)?;
    field_value(r, true)
}

fn reg_move(r: &mut Reader<'_>) -> Res<Action> {
    move_of(r, 0)
}

/// Bits to copy, the two offsets, `pad` bytes, the two headers, padding.
fn move_of(r: &mut Reader<'_>, pad: usize) -> Res<Action> {
    let (len_bits, src_ofs, dst_ofs) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(pad)?;
    let source = nxm::read_action_field(r)?;
    let dest = nxm::read_action_field(r)?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    let mut source = valid(SubField { field: source, offset_bits: src_ofs, len_bits })?;
    let mut dest = valid(SubField { field: dest, offset_bits: dst_ofs, len_bits })?;
    let len_bits = source.len_bits.min(dest.len_bits);
    (source.len_bits, dest.len_bits) = (len_bits, len_bits);
    Ok(Action::Move { source, dest })
}

fn output_reg(r: &mut Reader<'_>) -> Res<Action> {
    let range = r.u16()?;
    let source = subfield(nxm::read_action_field(&mut r.sub(4)?)?, range)?;
    let max_len_bytes = r.u16()?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Action::OutputReg { source, max_len_bytes })
}

fn output_reg2(r: &mut Reader<'_>) -> Res<Action> {
    let (range, max_len_bytes) = (r.u16()?, r.u16()?);
    let source = subfield(nxm::read_action_field(r)?, range)?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Action::OutputReg { source, max_len_bytes })
}

fn stack(r: &mut Reader<'_>) -> Res<SubField> {
    let offset_bits = r.u16()?;
    let field = nxm::read_action_field(r)?;
    let len_bits = r.u16()?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    valid(SubField { field, offset_bits, len_bits })
}

fn dec_ttl_ids(r: &mut Reader<'_>) -> Res<Action> {
    let n = usize::from(r.u16()?);
    r.skip(4)?;
    if n * 2 > r.len() {
        return Err(ErrorKind::BacBadLen);
    }
    let mut controllers = Vec::with_capacity(n);
    for _ in 0..n {
        controllers.push(r.u16()?);
    }
    Ok(Action::DecTtl { controllers })
}

fn fin_timeout(r: &mut Reader<'_>) -> Res<Action> {
    let (idle_timeout_s, hard_timeout_s) = (r.u16()?, r.u16()?);
    Ok(Action::FinTimeout { idle_timeout_s, hard_timeout_s })
}

fn write_metadata(r: &mut Reader<'_>) -> Res<Action> {
    r.sub(6)?.zeros(ErrorKind::NxbacMustBeZero)?;
    let (value, mask) = (r.u64()?, r.u64()?);
    Ok(Action::WriteMetadata { value: value & mask, mask })
}

fn reason(n: u8) -> Res<PacketInReason> {
    crate::msg::packet::reason_from_wire(n).ok_or(ErrorKind::NxbrcBadReason)
}

fn controller(r: &mut Reader<'_>) -> Res<Action> {
    let mut c = ControllerAction::plain(r.u16()?);
    c.controller_id = r.u16()?;
    c.reason = reason(r.u8()?)?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Action::Controller(Box::new(c)))
}

fn controller2(r: &mut Reader<'_>) -> Res<Action> {
    r.sub(6)?.zeros(ErrorKind::NxbacMustBeZero)?;
    let mut c = ControllerAction::plain(u16::MAX);
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        match ty {
            0 => c.max_len_bytes = prop::small_u16(&mut p)?,
            1 => c.controller_id = prop::small_u16(&mut p)?,
            2 => c.reason = reason(prop::small_u8(&mut p)?)?,
            3 => c.userdata = p.rest().to_vec(),
            4 => c.pause = true,
            5 => c.meter_id = Some(p.u32()?).filter(|id| *id != 0),
            _ => return Err(ErrorKind::BpcBadType),
        }
        if !p.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    Ok(Action::Controller(Box::new(c)))
}
