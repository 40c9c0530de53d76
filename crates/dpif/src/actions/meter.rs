//! `meter`: a meter of the datapath.

use super::prelude::*;
use crate::text::values::number;

/// Applies a meter, which drops packets beyond its rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meter(pub u32);

/// `OVS_ACTION_ATTR_METER`.
const ATTR: u16 = 19;

impl Action for Meter {
    const WORDS: &'static [Word] = &[call("meter")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::Meters;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("meter({})", self.0)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Meter, TextError> {
        number(item.word()?, u32::MAX.into()).map(|n| Meter(n as u32))
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.u32(ATTR, self.0);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Meter, ActionError> {
        Ok(Meter(attr.u32()?))
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.meter(packets, self.0)
    }
}
