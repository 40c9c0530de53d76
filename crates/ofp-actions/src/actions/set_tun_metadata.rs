//! `set_field`, `load` of tunnel metadata, whose values may have 992 bits.

use super::prelude::*;
use crate::translate::set_wide_masked;
use flow::fields::FieldId;
use flow::text::{format_metadata, format_subfield};
use flow::{SubField, Wide};
use ofp_wire::nxm;

/// Sets bits of a `tun_metadata` field (`OFPAT_SET_FIELD`, `NXAST_REG_LOAD2`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SetTunMetadata {
    /// Field.
    pub field: FieldId,
    /// New value and the bits to set.
    pub bits: Box<(Wide, Wide)>,
    /// Its notation is `load`.
    pub is_load: bool,
}

impl OfAction for SetTunMetadata {
    /// Written as a `set_field` or `load`.
    const NAMES: &'static [&'static str] = &[];
    const ROWS: &'static [Row] = &[];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        let (value, mask) = *self.bits;
        let is_whole = mask == Wide::ones(w.options.tlv().bits_of(self.field).into());
        if w.version >= Version::V15 || w.version >= Version::V12 && is_whole {
            return standard(w, 25, |w| nxm::put_metadata(w, self.field, value, mask));
        }
        nicira(w, 33, |w| nxm::put_metadata(w, self.field, value, mask));
    }

    fn parse(_text: &Argument<'_>, _out: &mut Vec<Action>) -> Parsed<()> {
        unreachable!("it has no name")
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        let (value, mask) = *self.bits;
        if !self.is_load {
            let value = format_metadata(self.field, value, mask, ports.tlv());
            return format!("set_field:{value}->{}", self.field.def().name);
        }
        let offset_bits = mask.trailing_zeros().min(Wide::BITS - 1);
        let len_bits = (mask >> offset_bits).trailing_ones() as u16;
        let value = (value >> offset_bits).hex();
        let range = SubField { field: self.field, offset_bits: offset_bits as u16, len_bits };
        format!("load:{value}->{}", format_subfield(range, ports))
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        if self.is_load { Protocols::ANY } else { self.field.protocols() }
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        self.field.metadata_index().into_iter().for_each(|i| visit(Reference::TunMetadata(i)));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let (value, mask) = *self.bits;
        set_wide_masked(x, self.field, value, mask);
    }
}
