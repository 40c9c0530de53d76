//! `conjunction`: makes its rule one of several that satisfy a clause of a conjunctive match (ovs-fields(7),
//! "Conjunctive Match Fields").

use super::prelude::*;
use flow::text::number::{u8_named, u32_argument};

/// Its rule satisfies a clause (`NXAST_CONJUNCTION`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// Id, the value of `conj_id` for packets that satisfy all clauses.
    pub id: u32,
    /// Index of the clause, from 0.
    pub clause: u8,
    /// Number of clauses, 2 to [`Conjunction::CLAUSES_MAX`].
    pub n_clauses: u8,
}

/// `NXAST_CONJUNCTION`.
const NXAST: u16 = 34;

impl Conjunction {
    /// Maximum number of clauses.
    pub const CLAUSES_MAX: u8 = 64;

    /// Whether a list of actions makes its rule a clause.
    pub fn is_in(actions: &[Action]) -> bool {
        actions
            .iter()
            .find(|a| !matches!(a, Action::Note(_)))
            .is_some_and(|a| matches!(a, Action::Conjunction(_)))
    }

    /// The first action that may not stand beside a conjunction, if there is one.
    pub(crate) fn intruder(actions: &[Action]) -> Option<&Action> {
        let fits = |a: &&Action| !matches!(a, Action::Conjunction(_) | Action::Note(_));
        let has_one = actions.iter().any(|a| matches!(a, Action::Conjunction(_)));
        actions.iter().find(fits).filter(|_| has_one)
    }
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (clause, n_clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
    if !(2..=Conjunction::CLAUSES_MAX).contains(&n_clauses) || clause >= n_clauses {
        return Err(ErrorKind::NxbacBadConjunction);
    }
    Ok(Conjunction { id, clause, n_clauses }.into())
}

impl OfAction for Conjunction {
    const NAMES: &'static [&'static str] = &["conjunction"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(16), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u8(self.clause);
            w.u8(self.n_clauses);
            w.u32(self.id);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        let parts = arg.split_once(',').and_then(|(id, of)| Some((id, of.trim().split_once('/')?)));
        let Some((id, (clause, n_clauses))) = parts else {
            return fail(arg, "\"conjunction\" syntax is \"conjunction(id,i/n)\"");
        };
        let n = u8_named(n_clauses, "number of clauses")?;
        let why = match u8_named(clause, "clause index")? {
            _ if n < 2 => "conjunction must have at least 2 clauses",
            _ if n > Conjunction::CLAUSES_MAX => "conjunction must have at most 64 clauses",
            0 => "clause index must be positive",
            k if k > n => "clause index must be less than or equal to number of clauses",
            k => {
                out.push(Conjunction { id: u32_argument(id)?, clause: k - 1, n_clauses: n }.into());
                return Ok(());
            }
        };
        fail(arg, why)
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("conjunction({},{}/{})", self.id, self.clause + 1, self.n_clauses)
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

    /// Only a packet-out or a group's bucket executes it.
    fn translate<X: Translator>(&self, x: &mut X) {
        x.error(|| "executing no-op conjunction action".to_string());
    }
}
