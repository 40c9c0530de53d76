//! `output`: to a port, or to the port number in a field.

use super::prelude::*;
use super::{ControllerAction, OutputTrunc};
use crate::action::refer_to;
use crate::check::check_out_port;
use crate::put::ofs_nbits;
use crate::rows::subfield;
use crate::translate::look_at;
use flow::text::{format_port, format_subfield, parse_port, sub_field};
use flow::{OfPort, SubField};
use ofp_wire::nxm;

/// Outputs to a port (`OFPAT_OUTPUT`); for `CONTROLLER` see [`ControllerAction`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Output {
    /// Port.
    pub port: OfPort,
    /// Maximum bytes for a controller.
    pub max_len_bytes: u16,
}

/// Outputs to the port number in a field (`NXAST_OUTPUT_REG`, `NXAST_OUTPUT_REG2`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutputReg {
    /// The field.
    pub source: SubField,
    /// Maximum bytes for a controller.
    pub max_len_bytes: u16,
}

/// An output; for `CONTROLLER`, the controller action in its simplest form.
fn decoded(port: OfPort, max_len_bytes: u16) -> Res<Action> {
    check_out_port(port, OfPort::MAX_OF10.into())?;
    if port == OfPort::CONTROLLER {
        return Ok(Box::new(ControllerAction::plain(max_len_bytes)).into());
    }
    Ok(Output { port, max_len_bytes }.into())
}

fn read11(r: &mut Reader<'_>) -> Res<Action> {
    let (port, max_len) = (r.u32()?, r.u16()?);
    decoded(OfPort(port), max_len)
}

/// Writes an output to any port in the version's form.
pub(super) fn put_output(w: &mut Writer, port: OfPort, max_len_bytes: u16) {
    if w.version == Version::V10 {
        standard(w, 0, |w| match port.to_of10() {
            Some(port) => {
                w.u16(port);
                w.u16(max_len_bytes);
            }
            // A port beyond 16 bits: no output.
            None => w.u32(0xffff_0000),
        });
    } else {
        standard(w, 0, |w| {
            w.u32(port.0);
            w.u16(max_len_bytes);
            w.zeros(6);
        });
    }
}

/// The action for a port, as an argument of `output` or alone.
pub(crate) fn output_to(port: OfPort, part: &str) -> Parsed<Action> {
    match port {
        OfPort::CONTROLLER => Ok(Box::new(ControllerAction::plain(u16::MAX)).into()),
        OfPort::NONE | OfPort::UNSET | OfPort::MAX => {
            fail(part, format!("{part}: output to a port that is none"))
        }
        port => Ok(Output { port, max_len_bytes: 0 }.into()),
    }
}

impl OfAction for Output {
    const NAMES: &'static [&'static str] = &["output"];
    const ROWS: &'static [Row] =
        &[of10(0, 8, |r| decoded(OfPort::from_of10(r.u16()?), r.u16()?)), of11(0, Len::Is(16), read11)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put_output(w, self.port, self.max_len_bytes);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        if arg.contains("port") && arg.contains("max_len") {
            return OutputTrunc::parse(text, out);
        }
        if let Some(port) = parse_port(arg, text.ports) {
            out.push(output_to(port, arg)?);
            return Ok(());
        }
        match sub_field(arg, text.ports) {
            Ok(source) if source.len_bits <= 64 => {
                out.push(OutputReg { source, max_len_bytes: u16::MAX }.into());
            }
            Ok(_) => return fail(arg, format!("{arg}: port number from more than 64 bits")),
            Err(_) => return fail(arg, format!("{arg}: output to unknown port")),
        }
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        if self.port == OfPort::CONTROLLER {
            return format!("CONTROLLER:{}", self.max_len_bytes);
        }
        let name = format_port(self.port, ports);
        let reserved = self.port.is_reserved() || self.port == OfPort::LOCAL;
        if reserved { name } else { format!("output:{name}") }
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
        SetPlace::WayOut(110)
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::Output(self.port));
        if self.port == OfPort::CONTROLLER {
            visit(Reference::OwnCookie);
        }
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.output(self.port, self.max_len_bytes);
    }
}

fn read_reg(r: &mut Reader<'_>) -> Res<Action> {
    let range = r.u16()?;
    let source = subfield(nxm::read_short_action_field(r)?, range, r.options.tlv())?;
    let max_len_bytes = r.u16()?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(OutputReg { source, max_len_bytes }.into())
}

fn read_reg2(r: &mut Reader<'_>) -> Res<Action> {
    let (range, max_len_bytes) = (r.u16()?, r.u16()?);
    let source = subfield(nxm::read_action_field(r)?, range, r.options.tlv())?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(OutputReg { source, max_len_bytes }.into())
}

impl OfAction for OutputReg {
    /// Written as an `output` to a field.
    const NAMES: &'static [&'static str] = &[];
    const ROWS: &'static [Row] = &[nx(15, Len::Is(24), read_reg), nx(32, Len::Is(24), read_reg2)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        let (source, range) = (self.source, ofs_nbits(self.source));
        if nxm::has_long_nx_header(source.field) {
            nicira(w, 32, |w| {
                w.u16(range);
                w.u16(self.max_len_bytes);
                nxm::put_nx_header(w, source.field);
            });
        } else {
            nicira(w, 15, |w| {
                w.u16(range);
                nxm::put_nx_header(w, source.field);
                w.u16(self.max_len_bytes);
                w.zeros(6);
            });
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        Output::parse(text, out)
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("output:{}", format_subfield(self.source, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.source(self.source)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("output", self.source.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    /// The packet contains the port.
    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.source, visit);
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let port = look_at(x, &self.source);
        // For any width, the subfield holds a port number of OpenFlow 1.0.
        match u16::try_from(port) {
            Ok(port) => {
                x.detail(|| format!("output port is {port}"));
                x.output(OfPort::from_of10(port), self.max_len_bytes);
            }
            Err(_) => x.warning(|| format!("output port {port} is out of range")),
        }
    }
}
