//! `clone`: actions on a copy.

use super::prelude::*;
use super::text::format_actions;

/// Executes actions on a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CloneAction(pub Vec<DpAction>);

/// `OVS_ACTION_ATTR_CLONE`.
const ATTR: u16 = 20;

impl Action for CloneAction {
    const WORDS: &'static [Word] = &[call("clone")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        [Some(&self.0), None]
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, names: &dyn PortNames) -> String {
        format!("clone({})", format_actions(&self.0, names))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<CloneAction, TextError> {
        parser.list(item.args()?).map(CloneAction)
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| writer.list(out, &self.0))
    }

    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<CloneAction, ActionError> {
        reader.list(attr.nested()?).map(CloneAction)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.on_copies(packets, &self.0)
    }
}
