//! `ct_clear`: forgets the connection of the packet.

use super::prelude::*;

/// Clears the packet's connection tracking state (`NXAST_CT_CLEAR`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CtClear;

/// `NXAST_CT_CLEAR`.
const NXAST: u16 = 43;

impl OfAction for CtClear {
    const NAMES: &'static [&'static str] = &["ct_clear"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(16), |_| Ok(CtClear.into()))];
    const STAGE: Stage = Stage::Apply;
    /// As in OVS: later actions see the fields again.
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira_plain(w, NXAST);
    }

    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(CtClear.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "ct_clear".into()
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    /// The standard permits none in a set; OVS accepts it.
    fn set_place(&self) -> SetPlace {
        SetPlace::WayOut(130)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.clear_tracking();
    }
}
