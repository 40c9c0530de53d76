//! `debug_recirc`, `debug_slow`: actions for tests of a switch.

use super::prelude::*;

/// Freezes the translation and resumes it by recirculation (`NXAST_DEBUG_RECIRC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DebugRecirc;

/// Keeps the datapath flow in the slow path (`NXAST_DEBUG_SLOW`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DebugSlow;

impl OfAction for DebugRecirc {
    const NAMES: &'static [&'static str] = &["debug_recirc"];
    const ROWS: &'static [Row] = &[nx(255, Len::Is(16), |_| Ok(DebugRecirc.into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira_plain(w, 255);
    }

    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(DebugRecirc.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "debug_recirc".into()
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if checker.cx.debug_actions { Ok(()) } else { Err(ErrorKind::BacBadExpType) }
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.freeze();
    }
}

impl OfAction for DebugSlow {
    const NAMES: &'static [&'static str] = &["debug_slow"];
    const ROWS: &'static [Row] = &[nx(254, Len::Is(16), |_| Ok(DebugSlow.into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira_plain(w, 254);
    }

    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(DebugSlow.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "debug_slow".into()
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if checker.cx.debug_actions { Ok(()) } else { Err(ErrorKind::BacBadExpType) }
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.stay_slow();
    }
}
