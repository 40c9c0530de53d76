//! `exit`: ends the translation.

use super::prelude::*;

/// Ends the translation of this packet's actions (`NXAST_EXIT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exit;

impl OfAction for Exit {
    nicira_word!(Exit, "exit", 17);

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.exit();
    }
}
