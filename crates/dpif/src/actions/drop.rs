//! `drop`: drops with a reason (Linux 6.7).

use super::prelude::*;
use crate::drops::XlateDrop;

/// Drops, for this reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DropAction(pub XlateDrop);

/// `OVS_ACTION_ATTR_DROP`.
const ATTR: u16 = 24;

impl Action for DropAction {
    const WORDS: &'static [Word] = &[bare("drop")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = true;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        "drop".into()
    }

    fn parse(_item: &Item<'_>, _parser: &Parser<'_>) -> Result<DropAction, TextError> {
        Ok(DropAction(XlateDrop::Ok))
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        // Without the attribute, the end of the list drops.
        if writer.context.explicit_drop {
            out.u32(ATTR, self.0 as u32);
        }
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<DropAction, ActionError> {
        let why = attr.u32()?;
        let ours = XlateDrop::ALL.into_iter().find(|d| *d as u32 == why);
        ours.map(DropAction).ok_or(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.drop_packets(packets, self.0)
    }
}
