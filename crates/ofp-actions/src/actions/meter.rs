//! `meter`: applies a meter. An instruction of OpenFlow 1.3 and 1.4; in 1.5 an action, of which a list has one, first.

use super::prelude::*;
use crate::instructions::put_instruction;
use flow::text::number::u32_argument;

/// Applies a meter (`OFPIT_METER`, `OFPAT_METER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meter(pub u32);

fn read(r: &mut Reader<'_>) -> Res<Action> {
    Ok(Meter(r.u32()?).into())
}

impl OfAction for Meter {
    const NAMES: &'static [&'static str] = &["meter"];
    const ROWS: &'static [Row] = &[
        instruction(Stage::Meter, 6, Len::Is(8), read).within(Version::V13, Version::V14),
        of11(29, Len::Is(8), read).within(Version::V15, Version::V15),
    ];
    const STAGE: Stage = Stage::Meter;
    /// It may have dropped the packet.
    const REVERSIBLE: bool = false;

    /// Before OpenFlow 1.5 not permitted in lists of actions.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if w.version >= Version::V15 {
            standard(w, 29, |w| w.u32(self.0));
        } else if cx.instructions && w.version >= Version::V13 {
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

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::OF13_UP
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
