//! `recirc`: recirculates the packet.

use super::prelude::*;
use crate::text::values::number;
use crate::text::write::hex;
use flow::RecircId;

/// Recirculates the packet with this id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recirc(pub RecircId);

/// `OVS_ACTION_ATTR_RECIRC`.
const ATTR: u16 = 7;

impl Action for Recirc {
    const WORDS: &'static [Word] = &[call("recirc")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::Delivers;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("recirc({})", hex(self.0.0.into()))
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Recirc, TextError> {
        number(item.word()?, u32::MAX.into()).map(|n| Recirc(RecircId(n as u32)))
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.u32(ATTR, self.0.0);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Recirc, ActionError> {
        Ok(Recirc(RecircId(attr.u32()?)))
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.recirculate(packets, self.0)
    }
}
