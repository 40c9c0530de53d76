//! OpenFlow actions and instructions: one file an action, one line of a list each.
//!
//! - [`OfAction`]: all that the switch knows of one action: names, wire forms, text, prerequisites, place in an action set,
//!   translation. It has no default methods, so an action that leaves something open does not compile.
//! - [`Action`]: any of them; the list in `list.rs` yields it, the dispatch to each, and the tables of wire forms and names. Two
//!   actions with the same wire form or name do not compile.
//! - [`read_actions`], [`read_instructions`], [`put_actions`], [`put_instructions`]: lists on the wire.
//! - [`text`]: lists and flow modifications as `ovs-ofctl` reads and prints them.
//! - [`check_actions`]: whether a list fits its match and the switch.
//! - [`set`]: the action set.
//! - [`Translator`]: what a translation offers to actions; `ofproto` implements it.
//!
//! One list holds actions and instructions: in OpenFlow 1.1 and later, the instructions stand behind the applied actions in the
//! standard's order ([`Stage`]). An empty list drops. Sources: OpenFlow 1.0 §5.2.4 and 1.3 §7.2.4, §7.2.5; the Nicira extension
//! actions (`NXAST_*`).
#![forbid(unsafe_code)]
// Tests match on what they are about.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod action;
mod actions;
mod check;
pub mod fuzz;
mod instructions;
mod list;
mod put;
mod rows;
pub mod set;
pub mod text;
mod translate;

pub use action::{Argument, OfAction, Reference, SetPlace, Stage};
pub use actions::*;
pub use check::{CheckContext, Checker, check_actions};
pub use instructions::{put_instructions, read_instructions};
pub use list::Action;
pub use put::{PutContext, put_actions};
pub use rows::{Row, read_actions};
pub use translate::{Translator, assign};

#[cfg(test)]
mod tests;
