//! `trunc`: truncates the packet of the next output.

use super::prelude::*;
use crate::text::values::number;

/// Truncates the packet of the next output to this number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Trunc(pub u32);

/// `OVS_ACTION_ATTR_TRUNC`.
const ATTR: u16 = 13;

impl Action for Trunc {
    const WORDS: &'static [Word] = &[call("trunc")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (!can.truncate).then_some("trunc")
    }

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("trunc({})", self.0)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Trunc, TextError> {
        number(item.word()?, u32::MAX.into()).map(|n| Trunc(n as u32))
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.u32(ATTR, self.0);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Trunc, ActionError> {
        Ok(Trunc(attr.u32()?))
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.truncate(packets, self.0)
    }
}
