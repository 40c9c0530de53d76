//! `check_pkt_larger`: writes to a bit whether the packet is longer than a number of bytes.
//!
//! Only the datapath knows the length, so the rest of the list is translated for both cases.

use super::prelude::*;
use crate::action::refer_to;
use crate::rows::valid;
use crate::text::arguments::writable;
use flow::SubField;
use flow::text::number::u16_named;
use flow::text::token::Attached;
use flow::text::{format_subfield, sub_field};
use ofp_wire::nxm;

/// Compares the packet's length (`NXAST_CHECK_PKT_LARGER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CheckPktLarger {
    /// Threshold in bytes, from the Ethernet header on.
    pub len_bytes: u16,
    /// The bit: 1 for longer packets, 0 for others.
    pub dest: SubField,
}

/// `NXAST_CHECK_PKT_LARGER`.
const NXAST: u16 = 49;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (len_bytes, offset_bits) = (r.u16()?, r.u16()?);
    let field = nxm::read_field(r)?;
    r.zeros(ErrorKind::NxbrcMustBeZero)?;
    let dest = valid(SubField { field, offset_bits, len_bits: 1 }, r.options.tlv())?;
    Ok(CheckPktLarger { len_bytes, dest }.into())
}

/// Length and bit: `LENGTH)->BIT`, or `LENGTH->BIT` behind a colon.
fn split<'a>(text: &Argument<'a>) -> Option<(&'a str, &'a str)> {
    match text.token.attached {
        Attached::ParensArrow(bit) => Some((text.value(), bit)),
        Attached::Nothing | Attached::Colon | Attached::Equals | Attached::Parens => {
            text.value().split_once("->")
        }
    }
}

impl OfAction for CheckPktLarger {
    const NAMES: &'static [&'static str] = &["check_pkt_larger"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Min(24), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u16(self.len_bytes);
            w.u16(self.dest.offset_bits);
            nxm::put_nx_header(w, self.dest.field);
            w.zeros(if nxm::has_long_nx_header(self.dest.field) { 2 } else { 6 });
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        let Some((len, bit)) = split(text) else { return fail(arg, format!("{arg}: missing `->'")) };
        let dest = sub_field(bit, text.ports)?;
        if dest.len_bits != 1 {
            return fail(bit, "Only 1-bit destination field is allowed");
        }
        writable(dest.field, bit)?;
        out.push(CheckPktLarger { len_bytes: u16_named(len, "packet length")?, dest }.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("check_pkt_larger({})->{}", self.len_bytes, format_subfield(self.dest, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.dest(self.dest)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("check_pkt_larger", self.dest.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.dest, visit);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.split_by_length(self);
    }
}
