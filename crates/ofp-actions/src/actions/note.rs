//! `note`: carries bytes.

use super::prelude::*;
use crate::text::arguments::{dotted_hex, hex_bytes};

/// Carries bytes without effect (`NXAST_NOTE`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Note(pub Vec<u8>);

/// Length of a note modulo 8, because the wire pads it.
const BYTES_MODULO_8: usize = 6;

impl OfAction for Note {
    const NAMES: &'static [&'static str] = &["note"];
    const ROWS: &'static [Row] = &[nx(8, Len::Min(16), |r| Ok(Note(r.rest().to_vec()).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, 8, |w| w.bytes(&self.0));
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let Some(mut bytes) = hex_bytes(text.value()) else {
            return fail(text.value(), "bad hex digit in `note' argument");
        };
        while bytes.len() % 8 != BYTES_MODULO_8 {
            bytes.push(0);
        }
        out.push(Note(bytes).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("note:{}", dotted_hex(&self.0))
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

    fn translate<X: Translator>(&self, _x: &mut X) {}
}
