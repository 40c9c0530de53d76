//! `push_mpls`: adds an MPLS label stack entry.

use super::prelude::*;
use crate::text::key::label;
use crate::text::sets;
use crate::text::values::number;
use packet::headers as h;

/// Pushes an entry onto the MPLS label stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PushMpls {
    /// The entry (RFC 3032).
    pub lse: u32,
    /// EtherType afterwards.
    pub ethertype: u16,
}

/// `OVS_ACTION_ATTR_PUSH_MPLS`.
const ATTR: u16 = 9;

impl Action for PushMpls {
    const WORDS: &'static [Word] = &[call("push_mpls")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PushMpls(*self))
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("push_mpls({},eth_type=0x{:x})", label(self.lse, None), self.ethertype)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PushMpls, TextError> {
        let (mut lse, mut ethertype) = (0, h::ETH_TYPE_MPLS);
        for field in item.args()? {
            let text = field.value()?;
            match sets::mpls_part(field.name) {
                Some((shift, full)) => {
                    lse = lse & !(full << shift) | (number(text, full.into())? as u32) << shift;
                }
                None if field.name == "eth_type" => ethertype = number(text, 0xffff)? as u16,
                None => return Err(field.unknown(item.name)),
            }
        }
        Ok(PushMpls { lse, ethertype })
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        // Two bytes of padding end the structure.
        out.put(ATTR, &[&self.lse.to_be_bytes()[..], &self.ethertype.to_be_bytes(), &[0; 2]].concat());
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<PushMpls, ActionError> {
        let [a, b, c, d, e, f, _, _] = attr.array()?;
        Ok(PushMpls { lse: u32::from_be_bytes([a, b, c, d]), ethertype: u16::from_be_bytes([e, f]) })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PushMpls(*self))
    }
}
