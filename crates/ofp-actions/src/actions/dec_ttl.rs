//! `dec_ttl`: decrements the time to live.

use super::prelude::*;
use super::{ControllerAction, PacketInReason};
use flow::text::number::u16_named;
use flow::text::token::Tokens;
use packet::headers::ETH_TYPE_IP;

/// Decrements the time to live; if it is 1 or less, the packet goes to the controllers with these ids instead
/// (`OFPAT_DEC_NW_TTL`, `NXAST_DEC_TTL`, `NXAST_DEC_TTL_CNT_IDS`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DecTtl {
    /// Controller ids; `[0]` if written without any.
    pub controllers: Vec<u16>,
}

fn read_plain(_r: &mut Reader<'_>) -> Res<Action> {
    Ok(DecTtl { controllers: vec![0] }.into())
}

fn read_ids(r: &mut Reader<'_>) -> Res<Action> {
    let n = usize::from(r.u16()?);
    r.skip(4)?;
    if n * 2 > r.len() {
        return Err(ErrorKind::BacBadLen);
    }
    let controllers = (0..n).map(|_| r.u16()).collect::<Res<Vec<u16>>>()?;
    Ok(DecTtl { controllers }.into())
}

impl OfAction for DecTtl {
    const NAMES: &'static [&'static str] = &["dec_ttl"];
    const ROWS: &'static [Row] =
        &[of11(24, Len::Is(8), read_plain), nx(18, Len::Is(16), read_plain), nx(21, Len::Min(16), read_ids)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if self.controllers != [0] {
            nicira(w, 21, |w| {
                w.u16(self.controllers.len() as u16);
                w.zeros(4);
                self.controllers.iter().for_each(|id| w.u16(*id));
            });
        } else if w.version == Version::V10 {
            nicira_plain(w, 18);
        } else {
            standard(w, 24, |w| w.zeros(4));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let mut controllers = Vec::new();
        let mut tokens = Tokens::new(text.value());
        while let Some(token) = tokens.next_token()? {
            controllers.push(u16_named(token.key, "controller id")?);
        }
        if controllers.is_empty() {
            controllers.push(0);
        }
        out.push(DecTtl { controllers }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        match self.controllers.as_slice() {
            [] | [0] => "dec_ttl".into(),
            ids => format!("dec_ttl({})", ids.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
        }
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(70)
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        if !x.flow().is_ip() {
            return;
        }
        let (flow, wc) = x.state();
        (wc.0.nw_ttl, wc.0.nw_proto) = (u8::MAX, u8::MAX);
        if flow.nw_ttl > 1 {
            flow.nw_ttl -= 1;
            return;
        }
        let version = if flow.dl_type == ETH_TYPE_IP { 4 } else { 6 };
        x.warning(|| format!("IPv{version} decrement TTL exception"));
        for id in &self.controllers {
            x.output_controller(&ControllerAction {
                controller_id: *id,
                reason: PacketInReason::InvalidTtl,
                ..ControllerAction::plain(u16::MAX)
            });
        }
        x.leave_list();
    }
}
