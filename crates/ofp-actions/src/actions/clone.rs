//! `clone`: executes actions on a copy of the packet.

use super::Conjunction;
use super::prelude::*;
use crate::list::protocols_of;
use crate::nesting::Scope;
use crate::rows::read_nested;
use crate::text::{format_actions, nested};

/// Executes actions, and then the action set, on a copy of the packet (`NXAST_CLONE`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CloneList(pub Vec<Action>);

/// `NXAST_CLONE`.
const NXAST: u16 = 42;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(6)?;
    let actions = read_nested(r, Scope::Clone)?;
    if actions.iter().any(|a| a.stage() > Stage::Apply) {
        return Err(ErrorKind::BicUnsupInst);
    }
    if Conjunction::intruder(&actions).is_some() {
        return Err(ErrorKind::NxbacBadConjunction);
    }
    Ok(CloneList(actions).into())
}

impl OfAction for CloneList {
    const NAMES: &'static [&'static str] = &["clone"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Min(16), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.zeros(6);
            cx.on_copy(|cx| self.0.iter().for_each(|a| a.put(w, cx)));
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(CloneList(nested(text, Scope::Clone)?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("clone({})", format_actions(&self.0, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.nested(&self.0)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        let TextChecker { flow, mask, table } = *checker;
        let mut inner = TextChecker { flow, mask, table };
        self.0.iter().try_for_each(|a| a.check_text(&mut inner))
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
        x.clone_packet(&self.0);
    }
}
