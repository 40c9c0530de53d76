//! `set_field`, `load`: set bits of a field.

use super::prelude::*;
use super::{
    SetEthDst, SetEthSrc, SetIpDscp, SetIpEcn, SetIpv4Dst, SetIpv4Src, SetL4Dst, SetL4Src, SetTunMetadata,
    SetVlanPcp, SetVlanVid,
};
use crate::put::{put_load2, put_loads, put_set_masked, runs_of};
use crate::rows::subfield;
use crate::text::arguments::{arrow, fits, writable};
use crate::translate::set_masked;
use flow::fields::{FieldId, Prereq};
use flow::text::number::{hex, parse_u128};
use flow::text::{field_by_name, format_subfield, format_value, masked_value, metadata_value, sub_field};
use flow::{MacAddr, SubField, VlanTag, Wide};
use ofp_wire::nxm;

/// Sets bits of a field (`OFPAT_SET_FIELD`, `NXAST_REG_LOAD`, `NXAST_REG_LOAD2`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetField {
    /// Field.
    pub field: FieldId,
    /// New value, within `mask`.
    pub value: u128,
    /// Bits to set.
    pub mask: u128,
    /// Its notation.
    pub style: SetStyle,
}

/// Notation of a field assignment, kept for printing and encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetStyle {
    /// `set_field:VALUE/MASK->FIELD` (`OFPAT_SET_FIELD`).
    SetField,
    /// `set_field` from Nicira's form, in which it is sent before OpenFlow 1.5 (`NXAST_REG_LOAD2`).
    Load2,
    /// `load:VALUE->FIELD[BITS]` (`NXAST_REG_LOAD`).
    Load,
}

fn read_load(r: &mut Reader<'_>) -> Res<Action> {
    let range = r.u16()?;
    let dst = subfield(nxm::read_short_action_field(r)?, range, r.options.tlv())?;
    let value = r.u64()?;
    if dst.len_bits < 64 && value >> dst.len_bits != 0 {
        return Err(ErrorKind::BacBadArgument);
    }
    if dst.field.metadata_index().is_some() {
        return Ok(load_metadata(dst, u128::from(value).into()));
    }
    let value = u128::from(value) << dst.offset_bits;
    Ok(SetField { field: dst.field, value, mask: dst.field_mask(), style: SetStyle::Load }.into())
}

/// A `load` of tunnel metadata.
fn load_metadata(dst: SubField, value: Wide) -> Action {
    let bits = Box::new((value << dst.offset_bits.into(), dst.wide_mask()));
    SetTunMetadata { field: dst.field, bits, is_load: true }.into()
}

/// The header of a set-field: tunnel metadata with value and optional mask is read as a whole.
fn read_header(r: &mut Reader<'_>, masked_ok: bool) -> Res<Result<(FieldId, nxm::Header), Action>> {
    let h = nxm::Header::read(r).map_err(|_| ErrorKind::BacBadSetLen)?;
    let field = h.field().ok_or(ErrorKind::BacBadSetType)?;
    if h.has_mask && !masked_ok {
        return Err(ErrorKind::BacBadSetMask);
    }
    if field.metadata_index().is_none() {
        return Ok(Ok((field, h)));
    }
    let bits = Box::new(nxm::read_metadata(r, &h, field, ErrorKind::BacBadSetArgument)?);
    read_padding(r)?;
    Ok(Err(SetTunMetadata { field, bits, is_load: false }.into()))
}

fn read_padding(r: &mut Reader<'_>) -> Res<()> {
    if r.len() >= 8 {
        return Err(ErrorKind::BacBadLen);
    }
    r.zeros(ErrorKind::NxbacMustBeZero)
}

/// A field with value and optional mask, in the form of set-field and `NXAST_REG_LOAD2`, and the padding after it.
fn read_value(r: &mut Reader<'_>, field: FieldId, h: &nxm::Header) -> Res<SetField> {
    let bytes = usize::from(field.def().wire_bytes);
    let value = r.uint(bytes)?;
    let mask = if h.has_mask { r.uint(bytes)? } else { nxm::valid_bits(field) };
    if value & !mask != 0 && h.has_mask {
        return Err(ErrorKind::BmcBadWildcards);
    }
    if !nxm::value_ok(field, value) || mask & !nxm::valid_bits(field) != 0 {
        return Err(ErrorKind::BacBadSetArgument);
    }
    read_padding(r)?;
    Ok(SetField { field, value, mask, style: SetStyle::SetField })
}

fn read_set_field(r: &mut Reader<'_>) -> Res<Action> {
    let (field, h) = match read_header(r, r.version >= Version::V15)? {
        Ok(header) => header,
        Err(action) => return Ok(action),
    };
    let set = read_value(r, field, &h)?;
    // OpenFlow forbids it (1.3 §7.2.5); `NXAST_REG_LOAD` sets it.
    if set.field == FieldId::InPortOxm {
        return Err(ErrorKind::BacBadSetArgument);
    }
    // Without the presence bit (OpenFlow 1.3 §7.2.3.7) it is no VLAN; the mask of OpenFlow 1.5 has it too.
    if set.field == FieldId::VlanVid && set.value & set.mask & 0x1000 == 0 {
        return Err(ErrorKind::BacBadSetArgument);
    }
    Ok(set.into())
}

fn read_load2(r: &mut Reader<'_>) -> Res<Action> {
    match read_header(r, true)? {
        Ok((field, h)) => Ok(SetField { style: SetStyle::Load2, ..read_value(r, field, &h)? }.into()),
        Err(action) => Ok(action),
    }
}

impl SetField {
    /// A set-field in OpenFlow 1.0 and 1.1: by the standard's own action if there is one, else by loads.
    fn put10(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        let value = self.value;
        let mac = MacAddr::from_u64(value as u64);
        if self.mask & nxm::valid_bits(self.field) != nxm::valid_bits(self.field) {
            return put_loads(w, self.field, value, self.mask);
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "fields without an action of their own are loaded"
        )]
        match self.field {
            FieldId::EthSrc => SetEthSrc(mac).put(w, cx),
            FieldId::EthDst => SetEthDst(mac).put(w, cx),
            FieldId::VlanVid | FieldId::DlVlan => {
                SetVlanVid { vid: value as u16 & 0xfff, push: false }.put(w, cx);
            }
            FieldId::VlanPcp | FieldId::DlVlanPcp => SetVlanPcp { pcp: value as u8, push: false }.put(w, cx),
            FieldId::IpSrc => SetIpv4Src(value as u32).put(w, cx),
            FieldId::IpDst => SetIpv4Dst(value as u32).put(w, cx),
            FieldId::IpDscp => SetIpDscp((value as u8) << 2).put(w, cx),
            FieldId::NwTos => SetIpDscp(value as u8).put(w, cx),
            FieldId::TcpSrc | FieldId::UdpSrc => SetL4Src(value as u16).put(w, cx),
            FieldId::TcpDst | FieldId::UdpDst => SetL4Dst(value as u16).put(w, cx),
            FieldId::NwEcn if w.version == Version::V11 => SetIpEcn(value as u8).put(w, cx),
            field => put_loads(w, field, value, self.mask),
        }
    }

    /// A set-field of OpenFlow 1.2; before 1.5 loads stand for one with a mask.
    fn put12(&self, w: &mut Writer) {
        // In their own notation DlVlan values lack OXM's presence bit.
        let (field, value, mask) = if self.field == FieldId::DlVlan {
            (FieldId::VlanVid, self.value | 0x1000, self.mask | 0x1000)
        } else if self.field == FieldId::DlVlanPcp {
            (FieldId::VlanPcp, self.value, self.mask)
        } else {
            (self.field, self.value, self.mask)
        };
        if !nxm::has_header(field) {
            return;
        }
        let mask = mask & nxm::valid_bits(field);
        if mask == nxm::valid_bits(field) || w.version >= Version::V15 {
            put_set_masked(w, field, value, mask);
        } else {
            put_loads(w, field, value, mask);
        }
    }

    /// One `load` for each run of at most 64 bits, in wire order.
    fn format_load(&self, ports: &dyn PortNames) -> String {
        let field = self.field;
        if self.mask == 0 {
            return format!("set_field:{}/0->{}", hex(0), field.def().name);
        }
        let loads: Vec<String> = runs_of(self.mask)
            .map(|(offset_bits, len_bits)| {
                let bits = self.value >> offset_bits & u128::MAX >> (128 - u32::from(len_bits));
                format!(
                    "load:{}->{}",
                    hex(bits),
                    format_subfield(SubField { field, offset_bits, len_bits }, ports)
                )
            })
            .collect();
        loads.join(",")
    }
}

/// `VALUE[/MASK]->FIELD`; nothing if the mask is empty.
fn parse_set_field(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
    let arg = text.value();
    let (value_text, name) = arrow(arg, "missing `->'")?;
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
    if value_text.is_empty() {
        return fail(value_text, format!("{value_text}: bad syntax for {} value", def.name));
    }
    if field.metadata_index().is_some() {
        let bits = metadata_value(field, value_text, text.ports.tlv())?;
        if !bits.1.is_zero() {
            out.push(SetTunMetadata { field, bits: Box::new(bits), is_load: false }.into());
        }
        return Ok(());
    }
    let (value, mask) = masked_value(field, value_text, text.ports)?;
    let present = u128::from(VlanTag::PRESENT);
    if field == FieldId::VlanVid && mask & present != 0 && value & present == 0 {
        let why = "invalid value for set field vlan_vid, the tag's presence bit is missing";
        return fail(value_text, format!("{value_text}: {why}: {}", value | present));
    }
    // Sets the type-of-service byte without its ECN bits.
    let mask = if field == FieldId::NwTos && mask != 0 { field.full_mask() } else { mask };
    if mask != 0 {
        out.push(SetField { field, value, mask, style: SetStyle::SetField }.into());
    }
    Ok(())
}

/// `VALUE->FIELD[BITS]`; more than 64 bits become several actions of 64 bits each.
fn parse_load(arg: &str, ports: &dyn PortNames, out: &mut Vec<Action>) -> Parsed<()> {
    let (text, name) = arrow(arg, "missing `->'")?;
    let sub = sub_field(name, ports)?;
    if sub.field.metadata_index().is_some() {
        let value = match Wide::parse(text) {
            Ok(value) if value.bits() <= sub.len_bits.into() => value,
            Ok(value) => {
                let bits = sub.len_bits;
                return fail(arg, format!("{arg}: value {} does not fit into {bits} bits", value.hex()));
            }
            Err(_) => return fail(text, format!("{arg}: cannot parse integer value")),
        };
        out.push(load_metadata(sub, value));
        return Ok(());
    }
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
        out.push(SetField { field: sub.field, value, mask, style: SetStyle::Load }.into());
        done += len_bits;
    }
    Ok(())
}

/// Whether writing the field examines the protocol: packets without one are not rewritten.
fn is_behind_protocol(field: FieldId) -> bool {
    let of_header = matches!(field.def().prereq, Prereq::Arp | Prereq::Ipv4 | Prereq::Ipv6 | Prereq::Ip);
    of_header && field != FieldId::IpDscp
}

impl OfAction for SetField {
    const NAMES: &'static [&'static str] = &["set_field", "load", "reg_load"];
    const ROWS: &'static [Row] = &[
        of11(25, Len::Min(16), read_set_field).within(Version::V12, Version::V15),
        nx(7, Len::Is(24), read_load),
        nx(33, Len::Min(16), read_load2),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        match self.style {
            // Loads are set-fields since masks are permitted there.
            _ if w.version >= Version::V15 => self.put12(w),
            SetStyle::Load => put_loads(w, self.field, self.value, self.mask),
            SetStyle::Load2 => put_load2(w, self.field, self.value, self.mask),
            SetStyle::SetField if w.version < Version::V12 => self.put10(w, cx),
            SetStyle::SetField => self.put12(w),
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        match text.name {
            "set_field" => parse_set_field(text, out),
            _ => parse_load(text.value(), text.ports, out),
        }
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        match self.style {
            SetStyle::SetField | SetStyle::Load2 => {
                let value = format_value(self.field, self.value, self.mask, ports);
                format!("set_field:{value}->{}", self.field.def().name)
            }
            SetStyle::Load => self.format_load(ports),
        }
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.dest(SubField::whole(self.field))?;
        // As in OVS, the number of a VLAN needs a tag; `vlan_tci` makes one.
        if self.field == FieldId::VlanVid && !checker.flow.vlans[0].is_present() {
            return Err(ErrorKind::BacMatchInconsistent);
        }
        if matches!(self.field, FieldId::VlanTci | FieldId::VlanVid) {
            let flow = &mut checker.flow;
            self.field.set(flow, self.field.get(flow) & !self.mask | self.value & self.mask);
        }
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("set_field", self.field)?;
        if self.field == FieldId::VlanVid && !checker.has(FieldId::VlanPcp) {
            let why = "vlan_vid lacks correct prerequisites: match on dl_vlan or vlan_tci";
            return Err(format!("set_field {why} (OFPBAC_MATCH_INCONSISTENT)"));
        }
        if self.field == FieldId::VlanTci {
            self.field.set(&mut checker.flow, self.value);
            self.field.add_mask(&mut checker.mask, self.mask);
        }
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        match self.style {
            SetStyle::SetField | SetStyle::Load2 => self.field.protocols(),
            SetStyle::Load => Protocols::ANY,
        }
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        if !self.field.prereq_holds(x.flow(), None) {
            let name = self.field.def().name;
            x.warning(|| format!("unmet prerequisites for {name}, set_field ignored"));
        } else if is_behind_protocol(self.field) {
            x.state().1.0.nw_proto = u8::MAX;
        }
        set_masked(x, self.field, self.value, self.mask);
    }
}
