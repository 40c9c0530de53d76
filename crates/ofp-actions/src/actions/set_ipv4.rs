//! `mod_nw_src`, `mod_nw_dst`: set an IPv4 address.

use super::prelude::*;
use crate::put::put_set;
use crate::text::arguments::ipv4;
use crate::translate::set_nw;
use flow::fields::FieldId;
use flow::text;
use packet::headers::ETH_TYPE_IP;

/// Sets the source (`OFPAT_SET_NW_SRC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetIpv4Src(pub u32);

/// Sets the destination (`OFPAT_SET_NW_DST`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetIpv4Dst(pub u32);

fn put(w: &mut Writer, ty10: u16, field: FieldId, address: u32) {
    if w.version == Version::V10 {
        standard(w, ty10, |w| w.u32(address));
    } else {
        put_set(w, field, address.into());
    }
}

impl OfAction for SetIpv4Src {
    const NAMES: &'static [&'static str] = &["mod_nw_src"];
    const ROWS: &'static [Row] = &[of10(6, 8, |r| Ok(SetIpv4Src(r.u32()?).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 6, FieldId::IpSrc, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetIpv4Src(ipv4(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_nw_src:{}", text::ipv4(self.0))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.flow.dl_type == ETH_TYPE_IP)
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_nw(x, FieldId::IpSrc, self.0.into());
    }
}

impl OfAction for SetIpv4Dst {
    const NAMES: &'static [&'static str] = &["mod_nw_dst"];
    const ROWS: &'static [Row] = &[of10(7, 8, |r| Ok(SetIpv4Dst(r.u32()?).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 7, FieldId::IpDst, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetIpv4Dst(ipv4(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_nw_dst:{}", text::ipv4(self.0))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.flow.dl_type == ETH_TYPE_IP)
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_nw(x, FieldId::IpDst, self.0.into());
    }
}
