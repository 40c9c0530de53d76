//! Datapath actions of a megaflow (`enum ovs_action_attr` of `linux/openvswitch.h`). One file per action, with one
//! line in a list.
//!
//! - `Action`: interface of one action: words, attributes, both encodings, nested lists, effect, datapaths that
//!   execute it, execution. It has no default methods, so an incomplete action does not compile.
//! - [`DpAction`]: any of them; the list in `list.rs` generates it, the dispatch to each, and the tables of words
//!   and attributes. Two actions with the same word or attribute do not compile.
//! - [`SetAction`]: the headers that `set` rewrites, a list of the same kind in `set/`.
//! - [`Executor`]: interface of a datapath to actions; the forwarding core, its oracle and the emulation implement
//!   it.
//! - Lists as text: [`format_actions`], [`parse_actions`]; as attributes: [`nlactions`](crate::nlactions).

/// Methods of an action that only the kernel executes: no rewrite, unused by translations, dropped in userspace.
macro_rules! kernel_only {
    ($word:literal) => {
        fn as_rewrite(&self) -> Option<Rewrite<'_>> {
            None
        }

        fn is_translated(&self) -> bool {
            false
        }

        fn userspace_lacks(&self) -> Option<&'static str> {
            Some($word)
        }

        fn lacking(&self, _can: &Capabilities) -> Option<&'static str> {
            None
        }

        fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
            x.unsupported(packets)
        }
    };
}

/// Methods of an action that translations use and both datapaths execute.
macro_rules! both_datapaths {
    () => {
        fn is_translated(&self) -> bool {
            true
        }

        fn userspace_lacks(&self) -> Option<&'static str> {
            None
        }

        fn lacking(&self, _can: &Capabilities) -> Option<&'static str> {
            None
        }
    };
}

mod action;
mod add_mpls;
mod check_pkt_len;
mod clone;
mod ct;
mod ct_clear;
mod dec_ttl;
mod drop;
mod executor;
mod foreign;
mod hash;
mod lb_output;
mod list;
mod meter;
mod output;
mod pop_eth;
mod pop_mpls;
mod pop_nsh;
mod pop_vlan;
mod psample;
mod push_eth;
mod push_mpls;
mod push_nsh;
mod push_vlan;
mod recirc;
mod sample;
mod set;
mod text;
pub mod tnl_header;
mod tnl_pop;
mod tnl_push;
mod trunc;
mod userspace;

pub use action::Effect;
pub use add_mpls::AddMpls;
pub use check_pkt_len::CheckPktLen;
pub use clone::CloneAction;
pub use ct::{CtAction, CtCommit, CtName, CtNat, HelperName, NatAddresses, NatRange, TimeoutName};
pub use ct_clear::CtClear;
pub use dec_ttl::DecTtl;
pub use drop::DropAction;
pub use executor::{ExecResult, Executor, Rewrite};
pub use foreign::Foreign;
pub use hash::{HashAction, HashAlgorithm};
pub use lb_output::LbOutput;
pub use list::DpAction;
pub(crate) use list::{ReadFn, read};
pub use meter::Meter;
pub use output::Output;
pub use pop_eth::PopEth;
pub use pop_mpls::PopMpls;
pub use pop_nsh::PopNsh;
pub use pop_vlan::PopVlan;
pub use psample::Psample;
pub use push_eth::PushEth;
pub use push_mpls::PushMpls;
pub use push_nsh::PushNsh;
pub use push_vlan::PushVlan;
pub use recirc::Recirc;
pub use sample::Sample;
pub use set::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdExtSet, NdSet, PortsSet, SetAction};
pub use text::{format_actions, parse_actions};
pub use tnl_pop::TnlPop;
pub use tnl_push::TnlPush;
pub use trunc::Trunc;
pub use userspace::Userspace;

use crate::ops::Capabilities;

impl DpAction {
    /// Its nested lists, one level down.
    #[inline]
    pub fn lists(&self) -> impl Iterator<Item = &[DpAction]> {
        self.nested().into_iter().flatten()
    }

    /// Whether it, or an action nested in it, satisfies a predicate.
    pub fn any(&self, is: impl Fn(&DpAction) -> bool + Copy) -> bool {
        is(self) || self.lists().flatten().any(|a| a.any(is))
    }

    /// Whether it, or an action nested in it, has an effect outside of the packet.
    #[inline]
    pub fn has_effect(&self) -> bool {
        self.effect() != Effect::None || self.lists().flatten().any(DpAction::has_effect)
    }

    /// Whether it, or an action nested in it, is unsupported by a datapath with these capabilities: the slow path
    /// emulates it, packet by packet.
    pub fn needs_emulation(&self, can: &Capabilities) -> bool {
        self.lacking(can).is_some() || self.lists().flatten().any(|a| a.needs_emulation(can))
    }
}

/// Imports for the files of actions.
mod prelude {
    pub(super) use super::action::{Action, Effect, Lists, NO_LISTS};
    pub(super) use super::executor::{ExecResult, Executor, Rewrite};
    pub(super) use super::list::DpAction;
    pub(super) use super::text::{Parser, Word, bare, call};
    pub(super) use crate::nlactions::{ActionError, Reader, Writer};
    pub(super) use crate::ops::Capabilities;
    pub(super) use crate::text::token::Item;
    pub(super) use crate::text::{PortNames, TextError};
    pub(super) use flow::nlattr::{Attr, AttrWriter};
}

#[cfg(test)]
mod tests;
