//! `pop_mpls`: pops an MPLS label stack entry.

use super::prelude::*;
use flow::text::number::u16_named;
use packet::headers::is_mpls;

/// Pops an MPLS label stack entry; the packet has this EtherType afterwards (`OFPAT_POP_MPLS`; in OpenFlow 1.0
/// `NXAST_POP_MPLS`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopMpls(pub u16);

/// `OFPAT_POP_MPLS`.
const OFPAT: u16 = 20;
/// `NXAST_POP_MPLS`.
const NXAST: u16 = 24;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    Ok(PopMpls(r.u16()?).into())
}

impl OfAction for PopMpls {
    const NAMES: &'static [&'static str] = &["pop_mpls"];
    const ROWS: &'static [Row] = &[of11(OFPAT, Len::Is(8), read), nx(NXAST, Len::Is(16), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            nicira(w, NXAST, |w| w.u16(self.0));
        } else {
            standard(w, OFPAT, |w| w.u16(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(PopMpls(u16_named(text.value(), "pop_mpls")?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("pop_mpls:0x{:04x}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(is_mpls(checker.flow.effective_type()))?;
        checker.flow.set_ethertype(self.0);
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.flow.set_ethertype(self.0);
        checker.mask.dl_type = u16::MAX;
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(21)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.pop_mpls(self.0);
    }
}
