//! `pop_vlan`: removes a VLAN tag.

use super::prelude::*;

/// Removes the outermost VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopVlan;

/// `OVS_ACTION_ATTR_POP_VLAN`.
const ATTR: u16 = 5;

impl Action for PopVlan {
    const WORDS: &'static [Word] = &[bare("pop_vlan")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PopVlan)
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        "pop_vlan".into()
    }

    fn parse(_item: &Item<'_>, _parser: &Parser<'_>) -> Result<PopVlan, TextError> {
        Ok(PopVlan)
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.flag(ATTR);
        Ok(())
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<PopVlan, ActionError> {
        Ok(PopVlan)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PopVlan)
    }
}
