//! `check_pkt_len`: one of two lists, by the length of the packet.

use super::prelude::*;
use super::text::format_actions;
use crate::text::values::number;

/// Executes actions selected by the packet's length.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CheckPktLen {
    /// Threshold in bytes.
    pub len: u16,
    /// For longer packets.
    pub greater: Vec<DpAction>,
    /// For others.
    pub less: Vec<DpAction>,
}

/// `OVS_CHECK_PKT_LEN_ATTR_*`.
mod attr {
    pub(super) const LEN: u16 = 1;
    pub(super) const IF_GREATER: u16 = 2;
    pub(super) const IF_LESS_EQUAL: u16 = 3;
}

/// `OVS_ACTION_ATTR_CHECK_PKT_LEN`.
const ATTR: u16 = 21;

impl Action for CheckPktLen {
    const WORDS: &'static [Word] = &[call("check_pkt_len")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (!can.check_pkt_len).then_some("check_pkt_len")
    }

    fn lists(&self) -> Lists<'_> {
        [Some(&self.greater), Some(&self.less)]
    }

    fn format(&self, names: &dyn PortNames) -> String {
        let (greater, less) = (format_actions(&self.greater, names), format_actions(&self.less, names));
        format!("check_pkt_len(size={},gt({greater}),le({less}))", self.len)
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<CheckPktLen, TextError> {
        let (mut len, mut greater, mut less) = (None, None, None);
        for field in item.args()? {
            match field.name {
                "size" => len = Some(number(field.value()?, 0xffff)? as u16),
                "gt" => greater = Some(parser.list(field.args()?)?),
                "le" => less = Some(parser.list(field.args()?)?),
                _ => return Err(field.unknown(item.name)),
            }
        }
        match (len, greater, less) {
            (Some(len), Some(greater), Some(less)) => Ok(CheckPktLen { len, greater, less }),
            _ => Err(TextError("check_pkt_len: size=BYTES, gt(…) and le(…) expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| {
            out.u16(attr::LEN, self.len);
            out.nested(attr::IF_GREATER, |out| writer.list(out, &self.greater))?;
            out.nested(attr::IF_LESS_EQUAL, |out| writer.list(out, &self.less))
        })
    }

    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<CheckPktLen, ActionError> {
        let inner = attr.nested()?;
        let list = |kind| reader.list(inner.require(kind)?.nested()?);
        Ok(CheckPktLen {
            len: inner.require(attr::LEN)?.u16()?,
            greater: list(attr::IF_GREATER)?,
            less: list(attr::IF_LESS_EQUAL)?,
        })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.by_length(packets, self.len, &self.greater, &self.less)
    }
}
