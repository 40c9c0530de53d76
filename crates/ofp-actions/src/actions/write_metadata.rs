//! `write_metadata`: sets bits of the metadata.

use super::prelude::*;
use crate::instructions::put_instruction;
use flow::text::number::{hex, u64_argument};

/// Sets bits of the metadata (`OFPIT_WRITE_METADATA`, `NXAST_WRITE_METADATA`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteMetadata {
    /// Value.
    pub value: u64,
    /// Mask.
    pub mask: u64,
}

fn read_action(r: &mut Reader<'_>) -> Res<Action> {
    r.sub(6)?.zeros(ErrorKind::NxbacMustBeZero)?;
    read(r)
}

fn read_instruction(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(4)?;
    read(r)
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (value, mask) = (r.u64()?, r.u64()?);
    Ok(WriteMetadata { value: value & mask, mask }.into())
}

impl OfAction for WriteMetadata {
    const NAMES: &'static [&'static str] = &["write_metadata"];
    const ROWS: &'static [Row] =
        &[instruction(Stage::Metadata, 2, Len::Is(24), read_instruction), nx(22, Len::Is(32), read_action)];
    const STAGE: Stage = Stage::Metadata;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        let value_and_mask = |w: &mut Writer| {
            w.u64(self.value);
            w.u64(self.mask);
        };
        if cx.instructions {
            put_instruction(w, 2, |w| {
                w.zeros(4);
                value_and_mask(w);
            });
        } else if w.version == Version::V10 {
            nicira(w, 22, |w| {
                w.zeros(6);
                value_and_mask(w);
            });
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let (value, mask) = match text.value().split_once('/') {
            Some((value, mask)) => (u64_argument(value)?, u64_argument(mask)?),
            None => (u64_argument(text.value())?, u64::MAX),
        };
        out.push(WriteMetadata { value, mask }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        let value = hex(self.value.into());
        match self.mask {
            u64::MAX => format!("write_metadata:{value}"),
            mask => format!("write_metadata:{value}/{}", hex(mask.into())),
        }
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::NXM_OF11_UP
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        let metadata = &mut x.state().0.metadata;
        *metadata = *metadata & !self.mask | self.value & self.mask;
    }
}
