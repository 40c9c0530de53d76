//! An output to a port.

use super::prelude::*;
use crate::text::key_parse::port;
use flow::DpPort;

/// Sends the packet to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Output(pub DpPort);

/// `OVS_ACTION_ATTR_OUTPUT`.
const ATTR: u16 = 1;

impl Action for Output {
    const WORDS: &'static [Word] = &[];
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

    fn format(&self, names: &dyn PortNames) -> String {
        names.name(self.0).unwrap_or_else(|| self.0.to_string())
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Output, TextError> {
        port(item.name, parser.names).map(|n| Output(DpPort(n)))
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.u32(ATTR, self.0.0);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Output, ActionError> {
        Ok(Output(DpPort(attr.u32()?)))
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.output(packets, self.0)
    }
}
