//! `push_eth`: adds an Ethernet header.

use super::prelude::*;
use super::{EthSet, Masked};
use crate::text::sets;
use flow::MacAddr;

/// Pushes an Ethernet header onto a packet without one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PushEth {
    /// Source.
    pub src: [u8; 6],
    /// Destination.
    pub dst: [u8; 6],
}

/// `OVS_ACTION_ATTR_PUSH_ETH`.
const ATTR: u16 = 14;

impl Action for PushEth {
    const WORDS: &'static [Word] = &[call("push_eth")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PushEth(*self))
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("push_eth(src={},dst={})", MacAddr(self.src), MacAddr(self.dst))
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PushEth, TextError> {
        match sets::eth(item)? {
            Masked { value, mask } if mask == (EthSet { src: [0xff; 6], dst: [0xff; 6] }) => {
                Ok(PushEth { src: value.src, dst: value.dst })
            }
            Masked { .. } => Err(TextError("push_eth: src=ADDRESS and dst=ADDRESS expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.put(ATTR, &[self.src, self.dst].concat());
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<PushEth, ActionError> {
        let [a, b, c, d, e, f, dst @ ..] = attr.array::<12>()?;
        Ok(PushEth { src: [a, b, c, d, e, f], dst })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PushEth(*self))
    }
}
