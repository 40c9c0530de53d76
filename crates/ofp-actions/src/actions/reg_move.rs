//! `move`: copies bits from one field to another.

use super::prelude::*;
use crate::action::refer_to;
use crate::put::experimenter;
use crate::rows::{onf, valid};
use crate::text::arguments::source_and_dest;
use crate::translate::{assign_wide, look_at_wide, trace_value};
use flow::SubField;
use flow::text::format_subfield;
use ofp_wire::{ONF_VENDOR, nxm};

/// Copies bits (`NXAST_REG_MOVE`, `OFPAT_COPY_FIELD`, the ONF's `ACT_COPY_FIELD` for OpenFlow 1.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Move {
    /// Source.
    pub source: SubField,
    /// Destination, of the same length.
    pub dest: SubField,
    /// It came as `ACT_COPY_FIELD`: OpenFlow 1.3 shows it so.
    pub is_onf: bool,
}

/// Number of the ONF's `ACT_COPY_FIELD`.
const ONFACT_COPY_FIELD: u16 = 3200;

/// Number of bits, the two offsets, `pad` bytes, the two headers, padding.
fn read(r: &mut Reader<'_>, pad: usize) -> Res<Move> {
    let (len_bits, src_ofs, dst_ofs) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(pad)?;
    let source = nxm::read_field(r)?;
    let dest = nxm::read_field(r)?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    let mut source = valid(SubField { field: source, offset_bits: src_ofs, len_bits }, r.options.tlv())?;
    let mut dest = valid(SubField { field: dest, offset_bits: dst_ofs, len_bits }, r.options.tlv())?;
    let len_bits = source.len_bits.min(dest.len_bits);
    (source.len_bits, dest.len_bits) = (len_bits, len_bits);
    Ok(Move { source, dest, is_onf: false })
}

/// ONF EXT-320.
fn read_onf_copy_field(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(2)?;
    Ok(Move { is_onf: true, ..read(r, 2)? }.into())
}

impl OfAction for Move {
    const NAMES: &'static [&'static str] = &["move", "reg_move"];
    const ROWS: &'static [Row] = &[
        nx(6, Len::Min(24), |r| Ok(read(r, 0)?.into())),
        onf(ONFACT_COPY_FIELD, Len::Min(24), read_onf_copy_field).within(Version::V13, Version::V14),
        of11(28, Len::Min(16), |r| Ok(read(r, 2)?.into())).within(Version::V15, Version::V15),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        let put_copy_field = |w: &mut Writer| {
            w.u16(self.source.len_bits);
            w.u16(self.source.offset_bits);
            w.u16(self.dest.offset_bits);
            w.zeros(2);
            nxm::put_header(w, self.source.field, false);
            nxm::put_header(w, self.dest.field, false);
        };
        if w.version >= Version::V15 {
            return standard(w, 28, put_copy_field);
        }
        if w.version == Version::V13 && self.is_onf {
            return experimenter(w, ONF_VENDOR, ONFACT_COPY_FIELD, |w| {
                w.zeros(2);
                put_copy_field(w);
            });
        }
        nicira(w, 6, |w| {
            w.u16(self.source.len_bits);
            w.u16(self.source.offset_bits);
            w.u16(self.dest.offset_bits);
            nxm::put_nx_header(w, self.source.field);
            nxm::put_nx_header(w, self.dest.field);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let (source, dest) = source_and_dest(text.value(), text.ports)?;
        out.push(Move { source, dest, is_onf: false }.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("move:{}->{}", format_subfield(self.source, ports), format_subfield(self.dest, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.source(self.source)?;
        checker.dest(self.dest)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("move", self.source.field)?;
        checker.need("move", self.dest.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.source, visit);
        refer_to(self.dest, visit);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let value = look_at_wide(x, &self.source);
        assign_wide(x, &self.dest, value);
        trace_value(x, &self.dest);
    }
}
