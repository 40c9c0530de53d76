//! `fin_timeout`: shortens the timeouts of its own rule when a TCP connection ends.

use super::prelude::*;
use crate::text::arguments::timeouts;
use flow::text::number::u16_named;
use flow::text::token::Tokens;
use packet::headers::IPPROTO_TCP;

/// Shortens the timeouts of its own rule when a TCP connection ends (`NXAST_FIN_TIMEOUT`); 0 leaves a timeout
/// unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FinTimeout {
    /// Idle timeout after a FIN or RST.
    pub idle_timeout_s: u16,
    /// Hard timeout after a FIN or RST.
    pub hard_timeout_s: u16,
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (idle_timeout_s, hard_timeout_s) = (r.u16()?, r.u16()?);
    Ok(FinTimeout { idle_timeout_s, hard_timeout_s }.into())
}

impl OfAction for FinTimeout {
    const NAMES: &'static [&'static str] = &["fin_timeout"];
    const ROWS: &'static [Row] = &[nx(19, Len::Is(16), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, 19, |w| {
            w.u16(self.idle_timeout_s);
            w.u16(self.hard_timeout_s);
            w.zeros(2);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let (mut idle_timeout_s, mut hard_timeout_s) = (0, 0);
        let mut tokens = Tokens::new(text.value());
        while let Some(token) = tokens.next_token()? {
            match token.key {
                "idle_timeout" => idle_timeout_s = u16_named(token.value, "idle_timeout")?,
                "hard_timeout" => hard_timeout_s = u16_named(token.value, "hard_timeout")?,
                key => return fail(token.key, format!("invalid key '{key}' in 'fin_timeout' argument")),
            }
        }
        out.push(FinTimeout { idle_timeout_s, hard_timeout_s }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        let set = timeouts(&[("idle_timeout", self.idle_timeout_s), ("hard_timeout", self.hard_timeout_s)]);
        format!("fin_timeout({})", set.join(","))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip() && checker.flow.nw_proto == IPPROTO_TCP)
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

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::OwnTimeouts);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.state().1.0.nw_proto = u8::MAX;
        x.shorten_timeouts(self.idle_timeout_s, self.hard_timeout_s);
    }
}
