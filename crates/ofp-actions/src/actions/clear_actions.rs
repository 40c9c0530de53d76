//! `clear_actions`: clears the action set.

use super::prelude::*;
use crate::instructions::put_instruction;

/// Clears the action set (`OFPIT_CLEAR_ACTIONS`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClearActions;

impl OfAction for ClearActions {
    const NAMES: &'static [&'static str] = &["clear_actions"];
    const ROWS: &'static [Row] = &[instruction(Stage::Clear, 5, Len::Is(8), |_| Ok(ClearActions.into()))];
    const STAGE: Stage = Stage::Clear;
    const REVERSIBLE: bool = true;

    /// Not permitted in lists of actions.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if cx.instructions {
            put_instruction(w, 5, |w| w.zeros(4));
        }
    }

    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(ClearActions.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "clear_actions".into()
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

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.clear_actions();
    }
}
