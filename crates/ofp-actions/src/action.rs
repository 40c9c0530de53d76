//! [`OfAction`]: interface of one action.

use crate::check::Checker;
use crate::list::Action;
use crate::put::PutContext;
use crate::rows::Row;
use crate::text::check::TextChecker;
use crate::translate::Translator;
use flow::text::token::Token;
use flow::text::{Parsed, PortNames};
use flow::{OfPort, Protocols, SubField, TableId};
use ofp_wire::{Res, Writer};

/// One kind of action. No method has a default: each action defines all of them.
pub trait OfAction: Sized + Into<Action> {
    /// Names in text, aliases included; empty if it is written under another action's name.
    const NAMES: &'static [&'static str];

    /// Wire forms that are read.
    const ROWS: &'static [Row];

    /// Its stage among the instructions.
    const STAGE: Stage;

    /// Whether later actions can undo it on the same packet.
    const REVERSIBLE: bool;

    /// Writes it in the version's form; nothing if the version has none.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>);

    /// Parses an action under one of [`OfAction::NAMES`], and appends the resulting actions.
    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()>;

    /// Prints it in the form of `ovs-ofctl dump-flows`.
    fn format(&self, ports: &dyn PortNames) -> String;

    /// Checks it against its match and the switch's limits.
    fn check(&self, checker: &mut Checker<'_>) -> Res<()>;

    /// Checks it for `ovs-ofctl`, without a switch: returns the prerequisite missing from the match.
    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String>;

    /// The flow formats that carry it.
    fn protocols(&self) -> Protocols;

    /// Its slot in an action set.
    fn set_place(&self) -> SetPlace;

    /// Reports all its references.
    fn references(&self, visit: &mut dyn FnMut(Reference));

    /// Executes it.
    fn translate<X: Translator>(&self, x: &mut X);
}

/// Stages of instructions, in execution order (OpenFlow 1.3 §5.9). All actions are in `Apply`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Stage {
    /// `meter`.
    Meter,
    /// The applied actions.
    Apply,
    /// `clear_actions`.
    Clear,
    /// `write_actions`.
    Write,
    /// `write_metadata`.
    Metadata,
    /// `goto_table`.
    Goto,
}

impl Stage {
    /// The instruction's name in text.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Meter => "meter",
            Stage::Apply => "apply_actions",
            Stage::Clear => "clear_actions",
            Stage::Write => "write_actions",
            Stage::Metadata => "write_metadata",
            Stage::Goto => "goto_table",
        }
    }
}

/// Slot of an action in an action set, in execution order. Numbers are steps of OpenFlow 1.3 §5.10 times ten, plus
/// one for each that OVS adds after that step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SetPlace {
    /// Not permitted in an action set.
    Never,
    /// Before the rewrites; replaces one of the same number.
    Before(u8),
    /// Rewrites fields; all of these are executed, in the order in which they were written.
    Rewrite,
    /// After the rewrites; replaces one of the same number.
    After(u8),
    /// Final output; replaces one of the same number. Only the lowest number in a set is executed, and without any
    /// the set has no effect.
    WayOut(u8),
}

/// A reference of an action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reference {
    /// An output port; `CONTROLLER` too.
    Output(OfPort),
    /// A meter, required by the rule.
    Meter(u32),
    /// A group, required by the rule.
    Group(u32),
    /// Rules of a table and cookie that it learns, and that are deleted with its own.
    Learned(TableId, u64),
    /// The timeouts of its own rule, which it shortens.
    OwnTimeouts,
    /// A mapping of tunnel metadata, by the number of its field.
    TunMetadata(u8),
    /// The cookie of its own rule, which controllers may receive.
    OwnCookie,
}

/// Reports the mapping of a range of tunnel metadata.
pub(crate) fn refer_to(range: SubField, visit: &mut dyn FnMut(Reference)) {
    range.field.metadata_index().into_iter().for_each(|i| visit(Reference::TunMetadata(i)));
}

/// An action in text, split into name and argument.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    /// The name in lower case, one of [`OfAction::NAMES`].
    pub name: &'static str,
    /// Name and argument as written.
    pub token: Token<'a>,
    /// Names of ports.
    pub ports: &'a dyn PortNames,
    /// Lists of actions around it.
    pub nesting: u8,
}

impl<'a> Argument<'a> {
    /// The argument, empty if there is none.
    pub fn value(&self) -> &'a str {
        self.token.value
    }
}
