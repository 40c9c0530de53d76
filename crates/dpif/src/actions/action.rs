//! [`Action`]: interface of one datapath action.

use super::executor::{ExecResult, Executor, Rewrite};
use super::list::DpAction;
use super::text::{Parser, Word};
use crate::nlactions::{ActionError, Reader, Writer};
use crate::ops::Capabilities;
use crate::text::token::Item;
use crate::text::{PortNames, TextError};
use flow::nlattr::{Attr, AttrWriter};

/// One kind of datapath action. No method has a default: each action defines all of them.
pub(crate) trait Action: Sized + Into<DpAction> {
    /// Its words in text; empty without a text form.
    const WORDS: &'static [Word];

    /// `OVS_ACTION_ATTR_*` numbers that are read as it.
    const ATTRS: &'static [u16];

    /// Its effect outside of the packet, without nested lists.
    const EFFECT: Effect;

    /// Whether it ends its list.
    const ENDS_LIST: bool;

    /// Its nested lists.
    fn lists(&self) -> Lists<'_>;

    /// Its rewrite of headers or metadata.
    fn as_rewrite(&self) -> Option<Rewrite<'_>>;

    /// Whether translations use it. Flows with other actions belong to other programs.
    fn is_translated(&self) -> bool;

    /// Its word, if the userspace datapath lacks it.
    fn userspace_lacks(&self) -> Option<&'static str>;

    /// The feature missing from a datapath with these capabilities, for emulation by the slow path; without nested
    /// lists.
    fn lacking(&self, can: &Capabilities) -> Option<&'static str>;

    /// Prints it in the form of `dpctl/dump-flows`.
    fn format(&self, names: &dyn PortNames) -> String;

    /// Parses an item of text under one of [`Action::WORDS`].
    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Self, TextError>;

    /// Appends it as an attribute.
    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError>;

    /// Reads an attribute of one of [`Action::ATTRS`]. [`ActionError::Foreign`]: it has a detail that this type cannot express.
    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<Self, ActionError>;

    /// Executes it.
    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X>;
}

/// Nested lists of an action, at most two.
pub(crate) type Lists<'a> = [Option<&'a [DpAction]>; 2];

/// The [`Lists`] of an action without any.
pub(crate) const NO_LISTS: Lists<'static> = [None, None];

/// Effect of an action outside of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// Sends the packet, or a copy, to a port, to the slow path or to recirculation.
    Delivers,
    /// Copies the packet to readers of samples; the packet goes on.
    Samples,
    /// Charges a meter.
    Meters,
    /// Changes the connection tracker.
    Tracks,
}
