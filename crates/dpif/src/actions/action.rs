//! [`Action`]: all that the switch knows of one datapath action.

use super::executor::{Executor, Goes, Rewrite};
use super::list::DpAction;
use super::text::{Parser, Word};
use crate::nlactions::{ActionError, Reader, Writer};
use crate::ops::Capabilities;
use crate::text::token::Item;
use crate::text::{PortNames, TextError};
use flow::nlattr::{Attr, AttrWriter};

/// One kind of datapath action. No method has a default: each action answers each question.
pub(crate) trait Action: Sized + Into<DpAction> {
    /// Words under which text has it; none where text has no word for it.
    const WORDS: &'static [Word];

    /// `OVS_ACTION_ATTR_*` by which it is read.
    const ATTRS: &'static [u16];

    /// What it does outside of the packet, nested lists aside.
    const EFFECT: Effect;

    /// Whether nothing behind it in its list is reached.
    const ENDS_LIST: bool;

    /// The lists of actions within it.
    fn lists(&self) -> Lists<'_>;

    /// The change of headers or metadata that it is.
    fn as_rewrite(&self) -> Option<Rewrite<'_>>;

    /// Whether translations make it. Flows with other actions belong to other programs.
    fn is_translated(&self) -> bool;

    /// The word for it, if the userspace datapath lacks it.
    fn userspace_lacks(&self) -> Option<&'static str>;

    /// What a datapath with these capabilities cannot do, so that the slow path emulates it; nested lists aside.
    fn lacking(&self, can: &Capabilities) -> Option<&'static str>;

    /// Prints it as `dpctl/dump-flows` does.
    fn format(&self, names: &dyn PortNames) -> String;

    /// Parses an item of text under one of [`Action::WORDS`].
    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Self, TextError>;

    /// Appends it as an attribute.
    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError>;

    /// Reads an attribute of one of [`Action::ATTRS`]. [`ActionError::Foreign`]: it has a detail that this type cannot express.
    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<Self, ActionError>;

    /// Executes it.
    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> Goes<X>;
}

/// Lists of actions within one, at most two.
pub(crate) type Lists<'a> = [Option<&'a [DpAction]>; 2];

/// The [`Lists`] of an action that has none.
pub(crate) const NO_LISTS: Lists<'static> = [None, None];

/// What an action does outside of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// Sends the packet, or a copy, to a port, to the slow path or to another round.
    Delivers,
    /// Charges a meter.
    Meters,
    /// Changes what the connection tracker knows.
    Tracks,
}
