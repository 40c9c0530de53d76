//! `set_mpls_label`, `set_mpls_tc`, `set_mpls_ttl`: set a field of the outermost MPLS label stack entry.

use super::prelude::*;
use crate::put::put_set;
use crate::rows::limited;
use crate::text::arguments::bounded_u8;
use crate::translate::set_whole;
use flow::fields::FieldId;
use flow::text::number::{u8_named, u32_argument};
use packet::headers::is_mpls;

/// Sets the label (`OFPAT_SET_MPLS_LABEL` of OpenFlow 1.1; in OpenFlow 1.0 `NXAST_SET_MPLS_LABEL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetMplsLabel(pub u32);

/// Sets the traffic class (`OFPAT_SET_MPLS_TC` of OpenFlow 1.1; in OpenFlow 1.0 `NXAST_SET_MPLS_TC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetMplsTc(pub u8);

/// Sets the time to live (`OFPAT_SET_MPLS_TTL`; in OpenFlow 1.0 `NXAST_SET_MPLS_TTL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetMplsTtl(pub u8);

/// Highest label.
const LABEL_MAX: u32 = 0xf_ffff;

fn label(r: &mut Reader<'_>) -> Res<Action> {
    let label = r.u32()?;
    if label <= LABEL_MAX { Ok(SetMplsLabel(label).into()) } else { Err(ErrorKind::BacBadArgument) }
}

fn label_of_nicira(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(2)?;
    label(r)
}

fn tc(r: &mut Reader<'_>) -> Res<Action> {
    Ok(SetMplsTc(limited(r.u8()?.into(), 7)? as u8).into())
}

fn ttl(r: &mut Reader<'_>) -> Res<Action> {
    Ok(SetMplsTtl(r.u8()?).into())
}

/// The argument; without one, the error names it.
fn argument<'a>(text: &Argument<'a>, what: &str) -> Parsed<&'a str> {
    let value = text.value();
    if value.is_empty() { fail(value, format!("{}: expected {what}.", text.name)) } else { Ok(value) }
}

impl OfAction for SetMplsLabel {
    const NAMES: &'static [&'static str] = &["set_mpls_label"];
    const ROWS: &'static [Row] = &[
        of11(13, Len::Is(8), label).within(Version::V11, Version::V11),
        nx(30, Len::Is(16), label_of_nicira),
    ];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        match w.version {
            Version::V10 => nicira(w, 30, |w| {
                w.zeros(2);
                w.u32(self.0);
            }),
            Version::V11 => standard(w, 13, |w| w.u32(self.0)),
            _ => put_set(w, FieldId::MplsLabel, self.0.into()),
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = argument(text, "label")?;
        let label = u32_argument(arg)?;
        if label > LABEL_MAX {
            return fail(arg, format!("{arg}: not a valid MPLS label"));
        }
        out.push(SetMplsLabel(label).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("set_mpls_label({})", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(is_mpls(checker.flow.effective_type()))
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_whole(x, FieldId::MplsLabel, self.0.into());
    }
}

impl OfAction for SetMplsTc {
    const NAMES: &'static [&'static str] = &["set_mpls_tc"];
    const ROWS: &'static [Row] =
        &[of11(14, Len::Is(8), tc).within(Version::V11, Version::V11), nx(31, Len::Is(16), tc)];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        match w.version {
            Version::V10 => nicira(w, 31, |w| w.u8(self.0)),
            Version::V11 => standard(w, 14, |w| w.u8(self.0)),
            _ => put_set(w, FieldId::MplsTc, self.0.into()),
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetMplsTc(bounded_u8(argument(text, "tc")?, "MPLS TC", 7)?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("set_mpls_tc({})", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(is_mpls(checker.flow.effective_type()))
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_whole(x, FieldId::MplsTc, self.0.into());
    }
}

impl OfAction for SetMplsTtl {
    const NAMES: &'static [&'static str] = &["set_mpls_ttl"];
    const ROWS: &'static [Row] = &[of11(15, Len::Is(8), ttl), nx(25, Len::Is(16), ttl)];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            nicira(w, 25, |w| w.u8(self.0));
        } else {
            standard(w, 15, |w| w.u8(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetMplsTtl(u8_named(argument(text, "ttl")?, "MPLS TTL")?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("set_mpls_ttl({})", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(is_mpls(checker.flow.effective_type()))
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_whole(x, FieldId::MplsTtl, self.0.into());
    }
}
