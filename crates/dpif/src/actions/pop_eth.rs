//! `pop_eth`: removes the Ethernet header.

use super::prelude::*;

/// Removes the Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopEth;

/// `OVS_ACTION_ATTR_POP_ETH`.
const ATTR: u16 = 15;

impl Action for PopEth {
    const WORDS: &'static [Word] = &[bare("pop_eth")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PopEth)
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        "pop_eth".into()
    }

    fn parse(_item: &Item<'_>, _parser: &Parser<'_>) -> Result<PopEth, TextError> {
        Ok(PopEth)
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.flag(ATTR);
        Ok(())
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<PopEth, ActionError> {
        Ok(PopEth)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PopEth)
    }
}
