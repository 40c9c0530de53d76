//! `goto_table`: continues in a later table.

use super::Resubmit;
use super::prelude::*;
use crate::instructions::put_instruction;
use crate::text::arguments::table;
use flow::text::format_table;
use flow::{OfPort, TableId};

/// Continues in a later table (`OFPIT_GOTO_TABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GotoTable(pub TableId);

impl OfAction for GotoTable {
    const NAMES: &'static [&'static str] = &["goto_table"];
    const ROWS: &'static [Row] =
        &[instruction(Stage::Goto, 1, Len::Is(8), |r| Ok(GotoTable(TableId(r.u8()?)).into()))];
    const STAGE: Stage = Stage::Goto;
    const REVERSIBLE: bool = true;

    /// Not permitted in lists of actions; OpenFlow 1.0 uses a resubmit.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if cx.instructions {
            put_instruction(w, 1, |w| {
                w.u8(self.0.0);
                w.zeros(3);
            });
        } else if w.version == Version::V10 {
            Resubmit { in_port: OfPort::IN_PORT, table: Some(self.0), ct: false }.put(w, cx);
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        out.push(GotoTable(table(arg, text.ports, || format!("unknown table \"{arg}\""))?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("goto_table:{}", format_table(self.0, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        let ahead = checker.cx.table.is_none_or(|from| from == TableId::ALL || self.0 > from);
        if ahead && self.0.0 < checker.cx.n_tables { Ok(()) } else { Err(ErrorKind::BicBadTableId) }
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        if checker.table.is_some_and(|from| self.0 <= from) {
            return Err(format!(
                "goto_table:{} does not go to a later table (OFPBIC_BAD_TABLE_ID)",
                self.0.0
            ));
        }
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
        x.resubmit(Some(self.0), None, false, true);
    }
}
