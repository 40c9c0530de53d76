//! Tests of the actions: checks, text, and an action that a stranger adds.

mod checks;
mod flow_mods;
mod properties;
pub(crate) mod stranger;
mod syntax;
mod tables;

use crate::Action;

/// A rule's memory is that of its actions: none is larger than a field assignment with its two values of 128 bits.
#[test]
fn an_action_takes_48_bytes() {
    assert_eq!(size_of::<Action>(), 48);
}
