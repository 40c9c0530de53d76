//! The list of all datapath actions. It generates the enum [`DpAction`], exhaustive dispatch of every method, and
//! the tables of words and attributes.
//!
//! A new action is a file in this folder and a line here.

use super::action::{Action, Effect, Lists};
use super::executor::{ExecResult, Executor, Rewrite};
use super::set::SetAction;
use super::text::{Parser, Word, are_distinct};
use super::*;
use crate::nlactions::{ActionError, Reader, Writer, by_attribute};
use crate::ops::Capabilities;
use crate::text::token::Item;
use crate::text::{PortNames, TextError};
use flow::nlattr::{Attr, AttrWriter};

/// Parses one kind of action.
pub(crate) type ParseFn = fn(&Item<'_>, &Parser<'_>) -> Result<DpAction, TextError>;
/// Reads one kind of action.
pub(crate) type ReadFn = fn(&Attr<'_>, &Reader) -> Result<DpAction, ActionError>;

macro_rules! actions {
    ($($(#[$cfg:meta])* $variant:ident($action:ty),)*) => {
        /// One datapath action. An empty list of actions drops.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum DpAction {
            $($(#[$cfg])* #[doc = concat!("`", stringify!($variant), "`; see its type.")] $variant($action),)*
        }

        $($(#[$cfg])*
        impl From<$action> for DpAction {
            fn from(action: $action) -> DpAction {
                DpAction::$variant(action)
            }
        })*

        /// Words by action.
        const WORDS_OF: &[(&[Word], ParseFn)] = &[$($(#[$cfg])* (
            <$action as Action>::WORDS,
            |item, parser| <$action as Action>::parse(item, parser).map(DpAction::from),
        ),)*];

        /// Attributes by action.
        const ATTRIBUTES_OF: &[(&[u16], ReadFn)] = &[$($(#[$cfg])* (
            <$action as Action>::ATTRS,
            |attr, reader| <$action as Action>::read(attr, reader).map(DpAction::from),
        ),)*];

        impl DpAction {
            /// Its effect outside of the packet, without nested lists.
            #[inline]
            pub fn effect(&self) -> Effect {
                match self { $($(#[$cfg])* DpAction::$variant(_) => <$action as Action>::EFFECT,)* }
            }

            /// Whether it ends its list.
            #[inline]
            pub fn ends_list(&self) -> bool {
                match self { $($(#[$cfg])* DpAction::$variant(_) => <$action as Action>::ENDS_LIST,)* }
            }

            #[inline]
            pub(super) fn nested(&self) -> Lists<'_> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.lists(),)* }
            }

            /// Its rewrite of headers or metadata.
            pub fn as_rewrite(&self) -> Option<Rewrite<'_>> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.as_rewrite(),)* }
            }

            /// Whether translations use it. Flows with other actions belong to other programs.
            pub fn is_translated(&self) -> bool {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.is_translated(),)* }
            }

            /// Its word, if the userspace datapath lacks it.
            pub fn userspace_lacks(&self) -> Option<&'static str> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.userspace_lacks(),)* }
            }

            pub(super) fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.lacking(can),)* }
            }

            pub(crate) fn format(&self, names: &dyn PortNames) -> String {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.format(names),)* }
            }

            pub(crate) fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.write(out, writer),)* }
            }

            /// Executes it.
            ///
            /// # Errors
            /// The packets do not continue with the list.
            #[inline(always)]
            pub fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
                match self { $($(#[$cfg])* DpAction::$variant(a) => a.execute(x, packets),)* }
            }
        }
    };
}

actions! {
    Output(Output),
    Userspace(Userspace),
    Set(SetAction),
    PushVlan(PushVlan),
    PopVlan(PopVlan),
    Trunc(Trunc),
    Recirc(Recirc),
    Meter(Meter),
    Sample(Sample),
    Psample(Psample),
    Clone(CloneAction),
    Drop(DropAction),
    Hash(HashAction),
    PushMpls(PushMpls),
    PopMpls(PopMpls),
    Ct(Box<CtAction>),
    CtClear(CtClear),
    PushEth(PushEth),
    PopEth(PopEth),
    PushNsh(PushNsh),
    PopNsh(PopNsh),
    AddMpls(AddMpls),
    CheckPktLen(CheckPktLen),
    DecTtl(DecTtl),
    TnlPush(TnlPush),
    TnlPop(TnlPop),
    LbOutput(LbOutput),
    Foreign(Foreign),
    // The test action: one file and this line.
    #[cfg(test)]
    Stranger(super::tests::stranger::Stranger),
}

const _: () = assert!(are_distinct(WORDS_OF), "two actions have the same word");
const _: () =
    assert!(size_of::<DpAction>() <= 88, "a list of actions takes more memory and cache than before");

/// Readers by attribute. A duplicate attribute does not compile.
static READERS: [Option<ReadFn>; 32] = by_attribute(ATTRIBUTES_OF);

/// Parses an item of text as an action.
pub(super) fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<DpAction, TextError> {
    let row = WORDS_OF.iter().find(|(words, _)| words.iter().any(|word| word.fits(item)));
    match row {
        Some((_, parse)) => parse(item, parser),
        // A port has only its number or name as its word.
        None if item.is_bare() => Output::parse(item, parser).map(DpAction::from),
        None => Foreign::parse(item, parser).map(DpAction::from),
    }
}

/// Parses an attribute as an action.
pub(crate) fn read(attr: &Attr<'_>, reader: &Reader) -> Result<DpAction, ActionError> {
    let foreign = || Foreign::read(attr, reader).map(DpAction::from);
    match READERS.get(usize::from(attr.kind)).copied().flatten() {
        None => foreign(),
        Some(read) => match read(attr, reader) {
            Err(ActionError::Foreign) => foreign(),
            known => known,
        },
    }
}
