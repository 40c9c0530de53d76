//! `pop_nsh`: removes a network service header (RFC 8300).

use super::prelude::*;

/// Pops the network service header that the packet begins with; the next protocol becomes its packet type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopNsh;

/// `OVS_ACTION_ATTR_POP_NSH`.
const ATTR: u16 = 18;

impl Action for PopNsh {
    const WORDS: &'static [Word] = &[call("pop_nsh"), bare("pop_nsh")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PopNsh)
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        "pop_nsh()".into()
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PopNsh, TextError> {
        match item.args.as_deref() {
            None | Some([]) => Ok(PopNsh),
            Some(_) => Err(TextError("pop_nsh: no fields expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.flag(ATTR);
        Ok(())
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<PopNsh, ActionError> {
        Ok(PopNsh)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PopNsh)
    }
}
