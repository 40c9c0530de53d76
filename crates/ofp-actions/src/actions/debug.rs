//! `debug_recirc`, `debug_slow`: actions for tests of a switch.

use super::prelude::*;

/// Freezes the translation and resumes it by recirculation (`NXAST_DEBUG_RECIRC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DebugRecirc;

/// Keeps the datapath flow in the slow path (`NXAST_DEBUG_SLOW`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DebugSlow;

impl OfAction for DebugRecirc {
    nicira_word!(DebugRecirc, "debug_recirc", 255);

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if checker.cx.debug_actions { Ok(()) } else { Err(ErrorKind::BacBadExpType) }
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.freeze();
    }
}

impl OfAction for DebugSlow {
    nicira_word!(DebugSlow, "debug_slow", 254);

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if checker.cx.debug_actions { Ok(()) } else { Err(ErrorKind::BacBadExpType) }
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.stay_slow();
    }
}
