//! `mod_nw_tos`, `mod_nw_ecn`, `mod_nw_ttl`: set fields common to IPv4 and IPv6.

use super::prelude::*;
use crate::put::{put_loads, put_set};
use crate::rows::limited;
use crate::text::arguments::bounded_u8;
use crate::translate::set_nw;
use flow::fields::FieldId;
use flow::text::number::u8_named;

/// Sets the DSCP, given in place, with the low two bits zero (`OFPAT_SET_NW_TOS`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetIpDscp(pub u8);

/// Sets the ECN (`OFPAT_SET_NW_ECN` of OpenFlow 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetIpEcn(pub u8);

/// Sets the time to live (`OFPAT_SET_NW_TTL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetIpTtl(pub u8);

fn read_dscp(r: &mut Reader<'_>) -> Res<Action> {
    Ok(SetIpDscp(limited(r.u8()?.into(), 0xfc)? as u8).into())
}

fn read_ecn(r: &mut Reader<'_>) -> Res<Action> {
    Ok(SetIpEcn(limited(r.u8()?.into(), 3)? as u8).into())
}

impl OfAction for SetIpDscp {
    const NAMES: &'static [&'static str] = &["mod_nw_tos"];
    const ROWS: &'static [Row] = &[of10(8, 8, read_dscp), setter11(7, 8, read_dscp)];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version < Version::V12 {
            standard(w, if w.version == Version::V10 { 8 } else { 7 }, |w| w.u8(self.0));
        } else {
            put_set(w, FieldId::IpDscp, (self.0 >> 2).into());
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let tos = u8_named(text.value(), "TOS")?;
        if tos & 3 != 0 {
            return fail(text.value(), format!("{}: not a valid TOS", text.value()));
        }
        out.push(SetIpDscp(tos).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_nw_tos:{}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip())
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_nw(x, FieldId::IpDscp, (self.0 >> 2).into());
    }
}

impl OfAction for SetIpEcn {
    const NAMES: &'static [&'static str] = &["mod_nw_ecn"];
    const ROWS: &'static [Row] = &[setter11(8, 8, read_ecn)];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            put_loads(w, FieldId::NwEcn, self.0.into(), 3);
        } else if w.version == Version::V11 {
            standard(w, 8, |w| w.u8(self.0));
        } else {
            put_set(w, FieldId::NwEcn, self.0.into());
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetIpEcn(bounded_u8(text.value(), "ECN", 3)?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_nw_ecn:{}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip())
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_nw(x, FieldId::NwEcn, self.0.into());
    }
}

impl OfAction for SetIpTtl {
    const NAMES: &'static [&'static str] = &["mod_nw_ttl", "set_nw_ttl"];
    const ROWS: &'static [Row] = &[of11(23, Len::Is(8), |r| Ok(SetIpTtl(r.u8()?).into()))];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            put_loads(w, FieldId::NwTtl, self.0.into(), 0xff);
        } else {
            standard(w, 23, |w| w.u8(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetIpTtl(u8_named(text.value(), "TTL")?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_nw_ttl:{}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip())
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        set_nw(x, FieldId::NwTtl, self.0.into());
    }
}
