//! `push_mpls`: pushes an MPLS label stack entry.

use super::prelude::*;
use flow::text::number::u16_named;
use packet::headers::is_mpls;

/// Pushes an MPLS label stack entry, with this EtherType (`OFPAT_PUSH_MPLS`; in OpenFlow 1.0 `NXAST_PUSH_MPLS`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PushMpls(pub u16);

/// `OFPAT_PUSH_MPLS`.
const OFPAT: u16 = 19;
/// `NXAST_PUSH_MPLS`.
const NXAST: u16 = 23;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let ethertype = r.u16()?;
    if is_mpls(ethertype) { Ok(PushMpls(ethertype).into()) } else { Err(ErrorKind::BacBadArgument) }
}

impl OfAction for PushMpls {
    const NAMES: &'static [&'static str] = &["push_mpls"];
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
        let arg = text.value();
        let ethertype = u16_named(arg, "push_mpls")?;
        if !is_mpls(ethertype) {
            return fail(arg, format!("{arg}: not a valid MPLS ethertype"));
        }
        out.push(PushMpls(ethertype).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("push_mpls:0x{:04x}", self.0)
    }

    /// The inner packet is opaque afterwards.
    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.flow.set_ethertype(self.0);
        checker.flow.nw_proto = 0;
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.flow.set_ethertype(self.0);
        checker.mask.dl_type = u16::MAX;
        (checker.flow.nw_proto, checker.mask.nw_proto) = (0, 0);
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(30)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.push_mpls(self.0);
    }
}
