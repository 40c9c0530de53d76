//! `push_vlan`: adds a VLAN tag.

use super::prelude::*;
use crate::text::values::number;
use flow::VlanTag;
use packet::headers as h;

/// Pushes a VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PushVlan {
    /// EtherType of the tag.
    pub tpid: u16,
    /// Tag, with the presence bit.
    pub tci: u16,
}

/// `OVS_ACTION_ATTR_PUSH_VLAN`.
const ATTR: u16 = 4;

impl Action for PushVlan {
    const WORDS: &'static [Word] = &[call("push_vlan")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PushVlan(*self))
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        let tpid =
            if self.tpid == h::ETH_TYPE_VLAN { String::new() } else { format!("tpid=0x{:04x},", self.tpid) };
        let tag = VlanTag { tpid: self.tpid, tci: self.tci };
        let cfi = if tag.is_present() { "" } else { ",cfi=0" };
        format!("push_vlan({tpid}vid={},pcp={}{cfi})", tag.vid(), tag.pcp())
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PushVlan, TextError> {
        let (mut tpid, mut tci) = (h::ETH_TYPE_VLAN, VlanTag::PRESENT);
        for field in item.args()? {
            let text = field.value()?;
            match field.name {
                "tpid" => tpid = number(text, 0xffff)? as u16,
                "vid" => tci = tci & !0xfff | number(text, 0xfff)? as u16,
                "pcp" => tci = tci & 0x1fff | (number(text, 7)? as u16) << 13,
                "cfi" => tci = tci & !VlanTag::PRESENT | (number(text, 1)? as u16) << 12,
                _ => return Err(field.unknown(item.name)),
            }
        }
        Ok(PushVlan { tpid, tci })
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.put(ATTR, &[self.tpid.to_be_bytes(), self.tci.to_be_bytes()].concat());
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<PushVlan, ActionError> {
        let [a, b, c, d] = attr.array()?;
        Ok(PushVlan { tpid: u16::from_be_bytes([a, b]), tci: u16::from_be_bytes([c, d]) })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PushVlan(*self))
    }
}
