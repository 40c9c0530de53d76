//! `push`, `pop`: the stack of a translation.

use super::prelude::*;
use crate::action::refer_to;
use crate::put::wire_bits;
use crate::rows::valid;
use crate::text::arguments::writable;
use crate::translate::{assign_wide, look_at, trace_value};
use flow::SubField;
use flow::text::{format_subfield, sub_field};
use ofp_wire::nxm;

/// Pushes bits on the stack (`NXAST_STACK_PUSH`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StackPush(pub SubField);

/// Pops bits off the stack (`NXAST_STACK_POP`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StackPop(pub SubField);

fn read(r: &mut Reader<'_>) -> Res<SubField> {
    let offset_bits = r.u16()?;
    let field = nxm::read_field(r)?;
    let len_bits = r.u16()?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    valid(SubField { field, offset_bits, len_bits }, r.options.tlv())
}

fn put(w: &mut Writer, subtype: u16, s: SubField) {
    nicira(w, subtype, |w| {
        w.u16(s.offset_bits);
        nxm::put_nx_header(w, s.field);
        w.u16(wire_bits(s.field, s.len_bits));
    });
}

fn parse(arg: &str, ports: &dyn PortNames) -> Parsed<SubField> {
    match sub_field(arg, ports) {
        Err(f) if f.message().starts_with("unexpected input") => {
            fail(arg, format!("{arg}: trailing garbage following push or pop"))
        }
        sub => sub,
    }
}

impl OfAction for StackPush {
    const NAMES: &'static [&'static str] = &["push"];
    const ROWS: &'static [Row] = &[nx(27, Len::Is(24), |r| Ok(StackPush(read(r)?).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 27, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(StackPush(parse(text.value(), text.ports)?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("push:{}", format_subfield(self.0, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.source(self.0)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("push", self.0.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.0, visit);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let value = self.0.get_wide(&x.tlv(), x.flow());
        look_at(x, &self.0);
        x.stack_push(value, self.0.len_bits);
    }
}

impl OfAction for StackPop {
    const NAMES: &'static [&'static str] = &["pop"];
    const ROWS: &'static [Row] = &[nx(28, Len::Is(24), |r| Ok(StackPop(read(r)?).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        put(w, 28, self.0);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let dest = parse(text.value(), text.ports)?;
        writable(dest.field, text.value())?;
        out.push(StackPop(dest).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("pop:{}", format_subfield(self.0, ports))
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.dest(self.0)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("pop", self.0.field)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        refer_to(self.0, visit);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let Some(value) = x.stack_pop() else {
            return x.error(|| "stack underflow".to_string());
        };
        assign_wide(x, &self.0, value);
        trace_value(x, &self.0);
    }
}
