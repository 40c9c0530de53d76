//! The actions, one file each; families with the same structure share a file.

/// Methods of an action that writes a field: later actions can undo it, an action set stores it among the rewrites,
/// `ovs-ofctl` checks nothing, and it has no references.
macro_rules! writes_a_field {
    () => {
        const STAGE: Stage = Stage::Apply;
        const REVERSIBLE: bool = true;

        fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
            Ok(())
        }

        fn protocols(&self) -> Protocols {
            Protocols::ANY
        }

        fn set_place(&self) -> SetPlace {
            SetPlace::Rewrite
        }

        fn references(&self, _visit: &mut dyn FnMut(Reference)) {}
    };
}

/// Methods of a Nicira action with one name and no argument, not permitted in an action set.
macro_rules! nicira_word {
    ($action:ident, $name:literal, $subtype:literal) => {
        const NAMES: &'static [&'static str] = &[$name];
        const ROWS: &'static [Row] = &[nx($subtype, Len::Is(16), |_| Ok($action.into()))];
        const STAGE: Stage = Stage::Apply;
        const REVERSIBLE: bool = true;

        fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
            nicira_plain(w, $subtype);
        }

        fn parse(_text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
            out.push($action.into());
            Ok(())
        }

        fn format(&self, _ports: &dyn PortNames) -> String {
            $name.into()
        }

        fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
            Ok(())
        }

        fn protocols(&self) -> Protocols {
            Protocols::ANY
        }

        fn set_place(&self) -> SetPlace {
            SetPlace::Never
        }

        fn references(&self, _visit: &mut dyn FnMut(Reference)) {}
    };
}

mod bundle;
mod check_pkt_larger;
mod clear_actions;
mod clone;
mod conjunction;
mod controller;
mod ct;
mod ct_clear;
mod debug;
mod dec_mpls_ttl;
mod dec_nsh_ttl;
mod dec_ttl;
mod decap;
mod delete_field;
mod encap;
mod exit;
mod fin_timeout;
mod goto_table;
mod group;
mod learn;
mod meter;
mod multipath;
mod nat;
mod note;
mod output;
mod output_trunc;
mod pop_mpls;
mod push_mpls;
mod queue;
mod reg_move;
mod resubmit;
mod sample;
mod set_eth;
mod set_field;
mod set_ip;
mod set_ipv4;
mod set_l4;
mod set_mpls;
mod set_tun_metadata;
mod set_tunnel;
mod stack;
mod vlan;
mod write_actions;
mod write_metadata;

pub use bundle::{Bundle, MemberAlgorithm};
pub use check_pkt_larger::CheckPktLarger;
pub use clear_actions::ClearActions;
pub use clone::CloneList;
pub use conjunction::Conjunction;
pub use controller::{ControllerAction, PacketInReason};
pub use ct::{Commit, Ct, Zone};
pub use ct_clear::CtClear;
pub use debug::{DebugRecirc, DebugSlow};
pub use dec_mpls_ttl::DecMplsTtl;
pub use dec_nsh_ttl::DecNshTtl;
pub use dec_ttl::DecTtl;
pub use decap::Decap;
pub use delete_field::DeleteField;
pub use encap::{Encap, EncapHeader, EncapProperty};
pub use exit::Exit;
pub use fin_timeout::FinTimeout;
pub use goto_table::GotoTable;
pub use group::Group;
pub use learn::{LearnAction, LearnDest, LearnSource, LearnSpec};
pub use meter::Meter;
pub use multipath::{LinkAlgorithm, Multipath};
pub use nat::{Nat, NatAddresses, NatRange, NatSelection, NatSide};
pub use note::Note;
pub(crate) use output::output_to;
pub use output::{Output, OutputReg};
pub use output_trunc::OutputTrunc;
pub use pop_mpls::PopMpls;
pub use push_mpls::PushMpls;
pub use queue::{Enqueue, PopQueue, SetQueue};
pub use reg_move::Move;
pub use resubmit::Resubmit;
pub use sample::{SampleDirection, SampleFlow, SampleId};
pub use set_eth::{SetEthDst, SetEthSrc};
pub use set_field::{SetField, SetStyle};
pub use set_ip::{SetIpDscp, SetIpEcn, SetIpTtl};
pub use set_ipv4::{SetIpv4Dst, SetIpv4Src};
pub use set_l4::{SetL4Dst, SetL4Src};
pub use set_mpls::{SetMplsLabel, SetMplsTc, SetMplsTtl};
pub use set_tun_metadata::SetTunMetadata;
pub use set_tunnel::SetTunnel;
pub use stack::{StackPop, StackPush};
pub use vlan::{PushVlan, SetVlanPcp, SetVlanVid, StripVlan};
pub use write_actions::WriteActions;
pub use write_metadata::WriteMetadata;

/// Imports for the files of actions.
mod prelude {
    pub(super) use crate::action::{Argument, OfAction, Reference, SetPlace, Stage};
    pub(super) use crate::check::Checker;
    pub(super) use crate::list::Action;
    pub(super) use crate::put::{PutContext, nicira, nicira_plain, standard};
    pub(super) use crate::rows::{Len, Row, instruction, nx, of10, of11, setter11};
    pub(super) use crate::text::check::TextChecker;
    pub(super) use crate::translate::Translator;
    pub(super) use flow::Protocols;
    pub(super) use flow::text::{Parsed, PortNames, fail};
    pub(super) use ofp_wire::{ErrorKind, Reader, Res, Version, Writer};
}
