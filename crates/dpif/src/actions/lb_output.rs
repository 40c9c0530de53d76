//! `lb_output`: an output to the member of a bond that the packet's hash chooses.

use super::prelude::*;
use crate::text::values::number;

/// Sends the packet to a member of the bond of this number, by its hash over addresses, protocol and ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LbOutput(pub u32);

impl Action for LbOutput {
    const WORDS: &'static [Word] = &[call("lb_output")];
    const ATTRS: &'static [u16] = &[];
    const EFFECT: Effect = Effect::Delivers;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (!can.lb_output).then_some("lb_output")
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("lb_output({})", self.0)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<LbOutput, TextError> {
        Ok(LbOutput(number(item.word()?, u32::MAX.into())? as u32))
    }

    fn write(&self, _out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation("balance bonds (lb_output)"))
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<LbOutput, ActionError> {
        Err(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.balance(packets, self.0)
    }
}
