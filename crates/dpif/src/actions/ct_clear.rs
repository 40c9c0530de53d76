//! `ct_clear`: clears the connection tracking state.

use super::prelude::*;

/// Clears the connection tracking state of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CtClear;

/// `OVS_ACTION_ATTR_CT_CLEAR`.
const ATTR: u16 = 16;

impl Action for CtClear {
    const WORDS: &'static [Word] = &[bare("ct_clear")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.clear_tracking(packets)
    }

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        "ct_clear".into()
    }

    fn parse(_item: &Item<'_>, _parser: &Parser<'_>) -> Result<CtClear, TextError> {
        Ok(CtClear)
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.flag(ATTR);
        Ok(())
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<CtClear, ActionError> {
        Ok(CtClear)
    }
}
