//! [`OfAction`]: what each action tells.

use crate::check::Checker;
use crate::list::Action;
use crate::put::PutContext;
use crate::rows::Row;
use crate::text::check::TextChecker;
use crate::translate::Translator;
use flow::text::token::Token;
use flow::text::{Parsed, PortNames};
use flow::{OfPort, TableId};
use ofp_wire::{Res, Writer};

/// One kind of action. No method has a default: each action answers each question.
pub trait OfAction: Sized + Into<Action> {
    /// Names in text, aliases included; none where it is written under another action's name.
    const NAMES: &'static [&'static str];

    /// Wire forms that are read.
    const ROWS: &'static [Row];

    /// Place among the instructions.
    const STAGE: Stage;

    /// Whether later actions can undo it on the same packet.
    const REVERSIBLE: bool;

    /// Writes it in the form that the version has for it; nothing where the version has none.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>);

    /// Parses an action that is written under one of [`OfAction::NAMES`], and adds what it stands for.
    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()>;

    /// Prints it as `ovs-ofctl dump-flows` does.
    fn format(&self, ports: &dyn PortNames) -> String;

    /// Holds it against the match that it stands with and the switch's limits.
    fn check(&self, checker: &mut Checker<'_>) -> Res<()>;

    /// The same for `ovs-ofctl`, which knows no switch: says in words what the match lacks.
    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String>;

    /// Place in an action set.
    fn set_place(&self) -> SetPlace;

    /// Tells all that it refers to.
    fn references(&self, visit: &mut dyn FnMut(Reference));

    /// Carries it out.
    fn translate<X: Translator>(&self, x: &mut X);
}

/// Places of instructions, in the order in which they take effect (OpenFlow 1.3 §5.9). All actions are in `Apply`.
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

/// Place of an action in an action set, and so its turn when the set is carried out: the greater, the later. Numbers are steps of
/// OpenFlow 1.3 §5.10 times ten, plus one for each that OVS adds behind that step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SetPlace {
    /// May not be written.
    Never,
    /// Comes ahead of the rewrites; replaces one of the same number.
    Before(u8),
    /// Rewrites fields; all of these are carried out, in the order in which they were written.
    Rewrite,
    /// Comes behind the rewrites; replaces one of the same number.
    After(u8),
    /// Says where the packet goes; replaces one of the same number. Only the least number in a set is carried out, and without any
    /// the set does nothing.
    WayOut(u8),
}

/// What an action may refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// An output port; `CONTROLLER` too.
    Output(OfPort),
    /// A meter, without which the rule cannot be.
    Meter(u32),
    /// Rules of a table and cookie that it makes, and that end with its own.
    Learned(TableId, u64),
    /// The timeouts of its own rule, which it shortens.
    OwnTimeouts,
    /// The cookie of its own rule, which it may tell controllers.
    OwnCookie,
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
}

impl<'a> Argument<'a> {
    /// The argument, empty where there is none.
    pub fn value(&self) -> &'a str {
        self.token.value
    }
}
