//! `exit`: ends the translation.

use super::prelude::*;

/// Ends the translation of this packet's actions (`NXAST_EXIT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exit;

impl OfAction for Exit {
    const NAMES: &'static [&'static str] = &["exit"];
    const ROWS: &'static [Row] = &[nx(17, Len::Is(16), |_| Ok(Exit.into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira_plain(w, 17);
    }

    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Exit.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "exit".into()
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.exit();
    }
}
