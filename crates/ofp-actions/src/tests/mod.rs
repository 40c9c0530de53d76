//! Tests of the actions: checks, text, and an action added by a third party.

mod checks;
mod conntrack;
mod encap;
mod extensions;
mod flow_mods;
mod properties;
pub(crate) mod stranger;
mod syntax;
mod tables;

use crate::Action;

/// Rules use memory for their actions: none is larger than a field assignment with its two values of 128 bits.
#[test]
fn an_action_takes_48_bytes() {
    assert_eq!(size_of::<Action>(), 48);
}
