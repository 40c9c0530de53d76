//! `pop_mpls`: removes an MPLS label stack entry.

use super::prelude::*;
use crate::text::values::number;

/// Pops the first entry off the MPLS label stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopMpls {
    /// EtherType afterwards.
    pub ethertype: u16,
}

/// `OVS_ACTION_ATTR_POP_MPLS`.
const ATTR: u16 = 10;

impl Action for PopMpls {
    const WORDS: &'static [Word] = &[call("pop_mpls")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PopMpls(*self))
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("pop_mpls(eth_type=0x{:x})", self.ethertype)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PopMpls, TextError> {
        match item.args()? {
            [field] if field.name == "eth_type" => {
                Ok(PopMpls { ethertype: number(field.value()?, 0xffff)? as u16 })
            }
            _ => Err(TextError("pop_mpls: eth_type=TYPE expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.be16(ATTR, self.ethertype);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<PopMpls, ActionError> {
        Ok(PopMpls { ethertype: attr.be16()? })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PopMpls(*self))
    }
}
