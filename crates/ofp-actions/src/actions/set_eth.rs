//! `mod_dl_src`, `mod_dl_dst`: set an Ethernet address.

use super::prelude::*;
use crate::put::put_set;
use crate::text::arguments::mac;
use crate::translate::set_whole;
use flow::MacAddr;
use flow::fields::FieldId;

/// Sets the source (`OFPAT_SET_DL_SRC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetEthSrc(pub MacAddr);

/// Sets the destination (`OFPAT_SET_DL_DST`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetEthDst(pub MacAddr);

fn put(w: &mut Writer, ty10: u16, field: FieldId, mac: MacAddr) {
    if w.version == Version::V10 {
        standard(w, ty10, |w| {
            w.bytes(&mac.0);
            w.zeros(6);
        });
    } else {
        put_set(w, field, mac.to_u64().into());
    }
}

impl OfAction for SetEthSrc {
    const NAMES: &'static [&'static str] = &["mod_dl_src"];
    const ROWS: &'static [Row] = &[of10(4, 16, |r| Ok(SetEthSrc(MacAddr(r.array()?)).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 4, FieldId::EthSrc, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetEthSrc(mac(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_dl_src:{}", self.0)
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_whole(x, FieldId::EthSrc, self.0.to_u64().into());
    }
}

impl OfAction for SetEthDst {
    const NAMES: &'static [&'static str] = &["mod_dl_dst"];
    const ROWS: &'static [Row] = &[of10(5, 16, |r| Ok(SetEthDst(MacAddr(r.array()?)).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 5, FieldId::EthDst, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetEthDst(mac(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("mod_dl_dst:{}", self.0)
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_whole(x, FieldId::EthDst, self.0.to_u64().into());
    }
}
