//! The list of all actions. It generates the enum [`Action`], exhaustive dispatch of every method, and the tables of
//! wire forms and names.
//!
//! A new action is a file in `actions/` and a line here.

use crate::action::{OfAction, Reference, SetPlace, Stage};
use crate::actions::*;
use crate::check::Checker;
use crate::put::PutContext;
use crate::rows::{self, Row};
use crate::text::check::TextChecker;
use crate::text::names::{self, Index, NameRow};
use crate::translate::Translator;
use flow::Protocols;
use flow::text::PortNames;
use ofp_wire::{Res, Writer};

macro_rules! actions {
    ($($(#[$cfg:meta])* $variant:ident($action:ty),)*) => {
        /// An action or instruction.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Action {
            $($(#[$cfg])* #[doc = concat!("`", stringify!($variant), "`; see its type.")] $variant($action),)*
        }

        $($(#[$cfg])*
        impl From<$action> for Action {
            fn from(action: $action) -> Action {
                Action::$variant(action)
            }
        })*

        /// Wire forms by action.
        const ROWS_OF: &[&[Row]] = &[$($(#[$cfg])* <$action as OfAction>::ROWS,)*];

        /// Names by action.
        const NAMES_OF: &[(&[&str], NameRow)] = &[$($(#[$cfg])* (
            <$action as OfAction>::NAMES,
            NameRow { name: "", stage: <$action as OfAction>::STAGE, parse: <$action as OfAction>::parse },
        ),)*];

        impl Action {
            /// Its stage among the instructions.
            pub fn stage(&self) -> Stage {
                match self { $($(#[$cfg])* Action::$variant(_) => <$action as OfAction>::STAGE,)* }
            }

            /// Whether later actions can undo it on the same packet.
            pub fn is_reversible(&self) -> bool {
                match self { $($(#[$cfg])* Action::$variant(_) => <$action as OfAction>::REVERSIBLE,)* }
            }

            /// Writes it in the version's form.
            pub(crate) fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
                match self { $($(#[$cfg])* Action::$variant(a) => a.put(w, cx),)* }
            }

            /// Prints it in the form of `ovs-ofctl dump-flows`.
            pub fn format(&self, ports: &dyn PortNames) -> String {
                match self { $($(#[$cfg])* Action::$variant(a) => a.format(ports),)* }
            }

            /// Checks it against the match and the switch's limits.
            pub(crate) fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
                match self { $($(#[$cfg])* Action::$variant(a) => a.check(checker),)* }
            }

            /// Returns the prerequisite missing from the match, as text.
            pub(crate) fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
                match self { $($(#[$cfg])* Action::$variant(a) => a.check_text(checker),)* }
            }

            /// The flow formats that carry it.
            pub(crate) fn protocols(&self) -> Protocols {
                match self { $($(#[$cfg])* Action::$variant(a) => a.protocols(),)* }
            }

            /// Its slot in an action set.
            pub fn set_place(&self) -> SetPlace {
                match self { $($(#[$cfg])* Action::$variant(a) => a.set_place(),)* }
            }

            /// Reports all its references.
            pub fn references(&self, visit: &mut dyn FnMut(Reference)) {
                match self { $($(#[$cfg])* Action::$variant(a) => a.references(visit),)* }
            }

            /// Executes it.
            pub fn translate<X: Translator>(&self, x: &mut X) {
                match self { $($(#[$cfg])* Action::$variant(a) => a.translate(x),)* }
            }
        }
    };
}

actions! {
    Output(Output),
    OutputReg(OutputReg),
    OutputTrunc(OutputTrunc),
    Controller(Box<ControllerAction>),
    Enqueue(Enqueue),
    SetQueue(SetQueue),
    PopQueue(PopQueue),
    SetField(SetField),
    SetTunMetadata(SetTunMetadata),
    DeleteField(DeleteField),
    Move(Move),
    Multipath(Multipath),
    Bundle(Box<Bundle>),
    StackPush(StackPush),
    StackPop(StackPop),
    SetVlanVid(SetVlanVid),
    SetVlanPcp(SetVlanPcp),
    StripVlan(StripVlan),
    PushVlan(PushVlan),
    SetEthSrc(SetEthSrc),
    SetEthDst(SetEthDst),
    SetIpv4Src(SetIpv4Src),
    SetIpv4Dst(SetIpv4Dst),
    SetIpDscp(SetIpDscp),
    SetIpEcn(SetIpEcn),
    SetIpTtl(SetIpTtl),
    SetL4Src(SetL4Src),
    SetL4Dst(SetL4Dst),
    DecTtl(DecTtl),
    PushMpls(PushMpls),
    PopMpls(PopMpls),
    SetMplsLabel(SetMplsLabel),
    SetMplsTc(SetMplsTc),
    SetMplsTtl(SetMplsTtl),
    DecMplsTtl(DecMplsTtl),
    Encap(Encap),
    Decap(Decap),
    DecNshTtl(DecNshTtl),
    SetTunnel(SetTunnel),
    Resubmit(Resubmit),
    Group(Group),
    Learn(Box<LearnAction>),
    FinTimeout(FinTimeout),
    Sample(SampleFlow),
    Note(Note),
    Clone(CloneList),
    CheckPktLarger(CheckPktLarger),
    Conjunction(Conjunction),
    Ct(Box<Ct>),
    CtClear(CtClear),
    Nat(Box<Nat>),
    Exit(Exit),
    DebugRecirc(DebugRecirc),
    DebugSlow(DebugSlow),
    Meter(Meter),
    ClearActions(ClearActions),
    WriteActions(WriteActions),
    WriteMetadata(WriteMetadata),
    GotoTable(GotoTable),
    // The test action: one file and this line.
    #[cfg(test)]
    Stranger(crate::tests::stranger::Stranger),
}

/// The flow formats that carry all of these actions.
pub fn protocols_of(actions: &[Action]) -> Protocols {
    actions.iter().fold(Protocols::ANY, |all, action| all & action.protocols())
}

/// All wire forms, sorted for [`rows::find`].
pub(crate) static ROWS: [Row; rows::count(ROWS_OF)] = SORTED_ROWS;
const SORTED_ROWS: [Row; rows::count(ROWS_OF)] = rows::sorted(ROWS_OF);
/// Their keys.
pub(crate) static KEYS: [u64; rows::count(ROWS_OF)] = rows::keys(&SORTED_ROWS);
const _: () = assert!(rows::are_distinct(&SORTED_ROWS), "two actions have the same wire form");

/// All names, in alphabetical order.
pub(crate) static NAMES: [NameRow; names::count(NAMES_OF)] = SORTED_NAMES;
const SORTED_NAMES: [NameRow; names::count(NAMES_OF)] = names::sorted(NAMES_OF);
const _: () = assert!(names::are_distinct(&SORTED_NAMES), "two actions have the same name");

/// Index of [`names::find`].
pub(crate) static INDEX: Index = names::index(&SORTED_NAMES);
