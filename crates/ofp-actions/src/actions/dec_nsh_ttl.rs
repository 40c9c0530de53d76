//! `dec_nsh_ttl`: decrements the time to live of the network service header.

use super::prelude::*;
use super::{ControllerAction, PacketInReason};
use flow::fields::FieldId;

/// Decrements the time to live of the network service header; if it is 1 or less, the packet goes to the controllers
/// instead (`NXAST_DEC_NSH_TTL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DecNshTtl;

/// `NXAST_DEC_NSH_TTL`.
const NXAST: u16 = 48;

impl OfAction for DecNshTtl {
    const NAMES: &'static [&'static str] = &["dec_nsh_ttl"];
    const ROWS: &'static [Row] =
        &[nx(NXAST, Len::Is(16), |_| Ok(DecNshTtl.into())).within(Version::V13, Version::V15)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira_plain(w, NXAST);
    }

    /// As in OVS, an argument has no effect.
    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(DecNshTtl.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "dec_nsh_ttl".into()
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(FieldId::NshTtl.prereq_holds(&checker.flow, None))
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(72)
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let (flow, wc) = x.state();
        if flow.is_nsh() {
            wc.0.nsh_ttl = u8::MAX;
            if flow.nsh_ttl > 1 {
                flow.nsh_ttl -= 1;
                return;
            }
            x.output_controller(&ControllerAction {
                reason: PacketInReason::InvalidTtl,
                ..ControllerAction::plain(u16::MAX)
            });
            x.warning(|| "NSH decrement TTL exception".to_string());
            x.leave_list();
        }
    }
}
