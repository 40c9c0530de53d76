//! `group`: executes a group.

use super::prelude::*;
use flow::text::number::u32_argument;

/// Executes a group (`OFPAT_GROUP`; in OpenFlow 1.0 `NXAST_GROUP`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group(pub u32);

/// `OFPAT_GROUP`.
const OFPAT: u16 = 22;
/// `NXAST_GROUP`.
const NXAST: u16 = 40;

impl OfAction for Group {
    const NAMES: &'static [&'static str] = &["group"];
    const ROWS: &'static [Row] = &[
        of11(OFPAT, Len::Is(8), |r| Ok(Group(r.u32()?).into())),
        nx(NXAST, Len::Is(16), |r| {
            r.skip(2)?;
            Ok(Group(r.u32()?).into())
        }),
    ];
    const STAGE: Stage = Stage::Apply;
    /// A select group recirculates, and the rest of the list continues afterwards.
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            nicira(w, NXAST, |w| {
                w.zeros(2);
                w.u32(self.0);
            });
        } else {
            standard(w, OFPAT, |w| w.u32(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Group(u32_argument(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("group:{}", self.0)
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
        SetPlace::WayOut(100)
    }

    /// The group may output anywhere; the switch looks at its buckets.
    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::Group(self.0));
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.group(self.0);
    }
}
