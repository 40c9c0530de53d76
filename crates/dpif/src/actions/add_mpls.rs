//! `add_mpls`: adds an MPLS label stack entry before the packet's first header.

use super::PushMpls;
use super::prelude::*;
use crate::text::key::label;
use packet::headers as h;

/// Pushes an entry before the Ethernet header, or before the first header of a packet without one. The packet has no
/// Ethernet header afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddMpls {
    /// The entry (RFC 3032).
    pub lse: u32,
    /// EtherType of the packet type afterwards.
    pub ethertype: u16,
    /// The packet has no Ethernet header (`OVS_MPLS_L3_TUNNEL_FLAG_MASK`). Text lacks it.
    pub is_l3: bool,
}

/// `OVS_ACTION_ATTR_ADD_MPLS`.
const ATTR: u16 = 22;
/// `OVS_MPLS_L3_TUNNEL_FLAG_MASK`.
const L3: u16 = 1;

impl Action for AddMpls {
    const WORDS: &'static [Word] = &[call("add_mpls")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::AddMpls(*self))
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (!can.add_mpls).then_some("add_mpls")
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("add_mpls({},eth_type=0x{:x})", label(self.lse, None), self.ethertype)
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<AddMpls, TextError> {
        let PushMpls { lse, ethertype } = PushMpls::parse(item, parser)?;
        Ok(AddMpls { lse, ethertype, is_l3: false })
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        let flags = if self.is_l3 { L3 } else { 0 };
        let parts = [&self.lse.to_be_bytes()[..], &self.ethertype.to_be_bytes(), &flags.to_ne_bytes()];
        out.put(ATTR, &parts.concat());
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<AddMpls, ActionError> {
        let [a, b, c, d, e, f, flags @ ..] = attr.array::<8>()?;
        let (ethertype, flags) = (u16::from_be_bytes([e, f]), u16::from_ne_bytes(flags));
        if !h::is_mpls(ethertype) || flags & !L3 != 0 {
            return Err(ActionError::Foreign);
        }
        Ok(AddMpls { lse: u32::from_be_bytes([a, b, c, d]), ethertype, is_l3: flags & L3 != 0 })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::AddMpls(*self))
    }
}
