//! `meter`: applies a meter.

use super::prelude::*;
use crate::instructions::put_instruction;
use flow::text::number::u32_argument;

/// Applies a meter (`OFPIT_METER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meter(pub u32);

impl OfAction for Meter {
    const NAMES: &'static [&'static str] = &["meter"];
    const ROWS: &'static [Row] = &[instruction(Stage::Meter, 6, Len::Is(8), |r| Ok(Meter(r.u32()?).into()))];
    const STAGE: Stage = Stage::Meter;
    /// It may have dropped the packet.
    const REVERSIBLE: bool = false;

    /// Not permitted in lists of actions.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if cx.instructions {
            put_instruction(w, 6, |w| w.u32(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Meter(u32_argument(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("meter:{}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if (checker.cx.has_meter)(self.0) { Ok(()) } else { Err(ErrorKind::MmfcInvalidMeter) }
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::Meter(self.0));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.meter(self.0);
    }
}
