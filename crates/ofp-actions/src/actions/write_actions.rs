//! `write_actions`: merges actions into the action set.

use super::prelude::*;
use crate::instructions::put_instruction;
use crate::list::protocols_of;
use crate::nesting::Scope;
use crate::put::put_actions;
use crate::rows::read_nested;
use crate::text::{joined, nested};

/// Merges actions into the action set (`OFPIT_WRITE_ACTIONS`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WriteActions(pub Vec<Action>);

fn read(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(4)?;
    let set = read_nested(r, Scope::ActionSet)?;
    if set.iter().any(|a| a.set_place() == SetPlace::Never) {
        return Err(ErrorKind::BacBadType);
    }
    Ok(WriteActions(set).into())
}

impl OfAction for WriteActions {
    const NAMES: &'static [&'static str] = &["write_actions"];
    const ROWS: &'static [Row] = &[instruction(Stage::Write, 3, Len::Min(8), read)];
    const STAGE: Stage = Stage::Write;
    const REVERSIBLE: bool = true;

    /// Not permitted in lists of actions.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if cx.instructions {
            put_instruction(w, 3, |w| {
                w.zeros(4);
                put_actions(w, self.0.iter(), cx.matching);
            });
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let set = nested(text, Scope::ActionSet)?;
        if !set.is_empty() {
            out.push(WriteActions(set).into());
        }
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("write_actions({})", joined(&self.0, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.action_set(&self.0)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        self.0.iter().try_for_each(|a| a.check_text(checker))
    }

    fn protocols(&self) -> Protocols {
        protocols_of(&self.0)
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        self.0.iter().for_each(|a| a.references(visit));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.write_actions(&self.0);
    }
}
