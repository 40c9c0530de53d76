//! `tnl_pop`: removes the outer headers of a tunnel.

use super::prelude::*;
use crate::text::key_parse::port;
use flow::DpPort;

/// Removes outer headers, and recirculates the packet as received from this tunnel port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TnlPop(pub DpPort);

impl Action for TnlPop {
    const WORDS: &'static [Word] = &[call("tnl_pop")];
    const ATTRS: &'static [u16] = &[];
    const EFFECT: Effect = Effect::Delivers;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, _can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(&self, names: &dyn PortNames) -> String {
        format!("tnl_pop({})", names.name(self.0).unwrap_or_else(|| self.0.to_string()))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<TnlPop, TextError> {
        port(item.word()?, parser.names).map(|n| TnlPop(DpPort(n)))
    }

    fn write(&self, _out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation("pop headers of tunnels (tnl_pop)"))
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<TnlPop, ActionError> {
        Err(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.pop_tunnel(packets, self.0)
    }
}
