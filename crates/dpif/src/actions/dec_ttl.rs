//! `dec_ttl`: decrements the time to live.

use super::prelude::*;
use super::text::format_actions;

/// Decrements the time to live; executes these actions if it was 1 or less.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DecTtl(pub Vec<DpAction>);

/// `OVS_DEC_TTL_ATTR_ACTION`.
const ACTION: u16 = 1;

/// `OVS_ACTION_ATTR_DEC_TTL`.
const ATTR: u16 = 23;

impl Action for DecTtl {
    const WORDS: &'static [Word] = &[call("dec_ttl")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    kernel_only!("dec_ttl");

    fn lists(&self) -> Lists<'_> {
        [Some(&self.0), None]
    }

    fn format(&self, names: &dyn PortNames) -> String {
        format!("dec_ttl(le_1({}))", format_actions(&self.0, names))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<DecTtl, TextError> {
        match item.args()? {
            [field] if field.name == "le_1" => parser.list(field.args()?).map(DecTtl),
            _ => Err(TextError("dec_ttl: le_1(…) expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| out.nested(ACTION, |out| writer.list(out, &self.0)))
    }

    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<DecTtl, ActionError> {
        reader.list(attr.nested()?.require(ACTION)?.nested()?).map(DecTtl)
    }
}
