//! OpenFlow actions and instructions: one file per action, with one line in a list.
//!
//! - [`OfAction`]: interface of one action: names, wire forms, text, prerequisites, slot in an action set,
//!   translation. It has no default methods, so an incomplete action does not compile.
//! - [`Action`]: any of them; the list in `list.rs` generates it, the dispatch to each, and the tables of wire forms
//!   and names. Two actions with the same wire form or name do not compile.
//! - [`read_actions`], [`read_instructions`], [`put_actions`], [`put_instructions`]: lists on the wire.
//! - [`text`]: lists and flow modifications in `ovs-ofctl` syntax.
//! - [`check_actions`]: whether a list fits its match and the switch.
//! - [`set`]: the action set.
//! - [`Translator`]: interface of a translation to actions; `ofproto` implements it.
//!
//! One list has actions and instructions: in OpenFlow 1.1 and later, the instructions follow the applied actions in
//! the standard's order ([`Stage`]). An empty list drops. Sources: OpenFlow 1.0 §5.2.4 and 1.3 §7.2.4, §7.2.5; the
//! Nicira extension actions (`NXAST_*`).
#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod action;
mod actions;
mod check;
pub mod fuzz;
mod instructions;
mod list;
mod nesting;
mod put;
mod rows;
pub mod set;
pub mod text;
mod translate;

pub use action::{Argument, OfAction, Reference, SetPlace, Stage};
pub use actions::*;
pub use check::{CheckContext, Checker, check_actions};
pub use instructions::{put_instructions, read_instructions};
pub use list::{Action, protocols_of};
pub use put::{PutContext, put_actions};
pub use rows::{Row, read_actions};
pub use translate::{Translator, assign, look_at_prereq};

#[cfg(test)]
mod tests;
