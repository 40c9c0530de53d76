//! The OpenFlow classifier: which rule of a table matches a packet, and which bits of the packet decided it.
//!
//! A [`Classifier`] is a persistent value. Cloning it costs a few reference counts and gives a snapshot that later updates
//! do not touch; an update copies only the path to what it changes, and nothing at all where no snapshot shares it. So a
//! reader holds a snapshot and never waits, and a writer changes a private clone, however many rules that takes, and
//! publishes it by swapping one pointer: readers see all of the change or none.
//!
//! How a lookup works (terms as in Open vSwitch, whose megaflows this crate reproduces bit by bit):
//!
//! - Rules with the same mask are in one *subtable*, a hash table over the masked words. Subtables are visited in the order
//!   of their highest priority, until the rule found cannot be beaten.
//! - *Staged lookup*: a subtable is looked at in up to four stages (metadata, layer 2, layer 3, layer 4). A miss in an early
//!   stage adds only the bits of the stages so far to the wildcards.
//! - *Prefix tries* over address fields tell which prefix lengths can match at all, and how many bits of the address show
//!   that; other subtables are skipped (the tries are kept as sorted maps). A trie over the ports of a subtable narrows what a miss in its last stage adds.
//!
//! A rule that is one clause of a conjunction is *soft*: [`Classifier::lookup_conjunctive`] returns the soft rules above the best hard
//! one, with the wildcards of all of them; translation combines them.
//!
//! Not here: versions of single rules, timeouts and counters of rules (they belong to the rule), and any lock: publishing is the
//! caller's.
#![forbid(unsafe_code)]

mod blocks;
mod bucket;
mod classifier;
mod hash;
mod prefixes;
mod priorities;
pub mod reference;
mod rule;
mod shape;
mod sorted;
mod subtable;

pub use classifier::{Classifier, DEFAULT_PREFIX_FIELDS, Footprint, Lookup, MAX_PREFIX_FIELDS, Walk};
pub use rule::ClsRule;

#[cfg(test)]
mod tests;
