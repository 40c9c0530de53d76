//! `output(port=…,max_len=…)`: to a port, truncated.

use super::prelude::*;
use flow::OfPort;
use flow::text::number::u32_argument;
use flow::text::token::Tokens;
use flow::text::{format_port, parse_port};

/// Outputs the first bytes of the packet to a port (`NXAST_OUTPUT_TRUNC`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutputTrunc {
    /// Port; of the reserved ones only `LOCAL` and `IN_PORT`.
    pub port: OfPort,
    /// Maximum length of the packet, at least [`OutputTrunc::MAX_LEN_MIN`].
    pub max_len_bytes: u32,
}

/// `NXAST_OUTPUT_TRUNC`.
const NXAST: u16 = 39;

impl OutputTrunc {
    /// Least maximum: an Ethernet header.
    pub const MAX_LEN_MIN: u32 = 14;

    /// Parses the arguments `port` and `max_len`.
    pub(super) fn parse_arguments(text: &Argument<'_>) -> Parsed<OutputTrunc> {
        let (mut port, mut max_len_bytes) = (None, None);
        let mut tokens = Tokens::new(text.value());
        while let Some(token) = tokens.next_token()? {
            let value = token.value;
            match token.key {
                "port" => port = Some(truncated_port(value, text.ports)?),
                "max_len" => max_len_bytes = Some(u32_argument(value)?),
                key => return fail(key, format!("invalid key '{key}' in output_trunc argument")),
            }
        }
        let (Some(port), Some(max_len_bytes)) = (port, max_len_bytes) else {
            let arg = text.value();
            return fail(arg, format!("{arg}: output needs port and max_len"));
        };
        if max_len_bytes < OutputTrunc::MAX_LEN_MIN {
            let least = OutputTrunc::MAX_LEN_MIN;
            let why = format!("max_len {max_len_bytes} is less than the minimum value {least}");
            return fail(text.value(), why);
        }
        Ok(OutputTrunc { port, max_len_bytes })
    }
}

/// A port that may receive truncated packets.
fn truncated_port(name: &str, ports: &dyn PortNames) -> Parsed<OfPort> {
    match parse_port(name, ports) {
        None => fail(name, format!("output to unknown truncate port: {name}")),
        Some(port) if port.is_reserved() && !matches!(port, OfPort::LOCAL | OfPort::IN_PORT) => {
            fail(name, format!("output to unsupported truncate port: {name}"))
        }
        Some(port) => Ok(port),
    }
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (port, max_len_bytes) = (OfPort::from_of10(r.u16()?), r.u32()?);
    if max_len_bytes < OutputTrunc::MAX_LEN_MIN {
        return Err(ErrorKind::BacBadArgument);
    }
    Ok(OutputTrunc { port, max_len_bytes }.into())
}

impl OfAction for OutputTrunc {
    /// Written as an `output` with arguments.
    const NAMES: &'static [&'static str] = &[];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(16), read)];
    const STAGE: Stage = Stage::Apply;
    /// Truncation stays with the packet until its output.
    const REVERSIBLE: bool = false;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u16(self.port.to_of10().unwrap_or(0xffff));
            w.u32(self.max_len_bytes);
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(OutputTrunc::parse_arguments(text)?.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("output(port={},max_len={})", format_port(self.port, ports), self.max_len_bytes)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.out_port(self.port)
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

    /// As in OVS, `out_port` does not select it.
    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.output_truncated(self.port, self.max_len_bytes);
    }
}
