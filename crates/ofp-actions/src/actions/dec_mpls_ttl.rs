//! `dec_mpls_ttl`: decrements the time to live of the outermost MPLS label.

use super::prelude::*;
use super::{ControllerAction, PacketInReason};
use packet::headers::is_mpls;

/// Decrements the time to live of the outermost label; if it is 1 or less, the packet goes to the controllers
/// instead (`OFPAT_DEC_MPLS_TTL`; in OpenFlow 1.0 `NXAST_DEC_MPLS_TTL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DecMplsTtl;

/// `OFPAT_DEC_MPLS_TTL`.
const OFPAT: u16 = 16;
/// `NXAST_DEC_MPLS_TTL`.
const NXAST: u16 = 26;
/// The time to live in a label stack entry (RFC 3032).
const TTL: u32 = 0xff;

impl OfAction for DecMplsTtl {
    const NAMES: &'static [&'static str] = &["dec_mpls_ttl"];
    const ROWS: &'static [Row] = &[
        of11(OFPAT, Len::Is(8), |_| Ok(DecMplsTtl.into())),
        nx(NXAST, Len::Is(16), |_| Ok(DecMplsTtl.into())),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            nicira_plain(w, NXAST);
        } else {
            standard(w, OFPAT, |w| w.zeros(4));
        }
    }

    /// As in OVS, an argument has no effect.
    fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(DecMplsTtl.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        "dec_mpls_ttl".into()
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(is_mpls(checker.flow.effective_type()))
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(71)
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let (flow, wc) = x.state();
        if is_mpls(flow.dl_type) {
            wc.0.mpls_lse[0] |= TTL;
            if flow.mpls_lse[0] & TTL > 1 {
                flow.mpls_lse[0] -= 1;
                return;
            }
            x.output_controller(&ControllerAction {
                reason: PacketInReason::InvalidTtl,
                ..ControllerAction::plain(u16::MAX)
            });
        }
        x.warning(|| "MPLS decrement TTL exception".to_string());
        x.leave_list();
    }
}
