//! The OpenFlow classifier: the matching rule of a table for a packet, and the packet bits that determined it.
//!
//! A [`Classifier`] is a persistent value. A clone costs a few reference counts and is a snapshot, unaffected by
//! later updates; an update copies only the changed path, and nothing if no snapshot shares it. So a reader holds a
//! snapshot and never waits. A writer changes a private clone, with any number of rules, and publishes it by
//! swapping one pointer: readers see all of the change or none.
//!
//! Lookup (terms as in Open vSwitch, whose megaflows this crate reproduces exactly):
//!
//! - Rules with the same mask are in one *subtable*, a hash table over the masked words. Subtables are visited in the
//!   order of their highest priority, until the rule found cannot be beaten.
//! - *Staged lookup*: a subtable is searched in up to four stages (metadata, layer 2, layer 3, layer 4). A miss in an
//!   early stage adds only the bits of the stages so far to the wildcards.
//! - *Prefix tries* over address fields determine which prefix lengths can match, and how many bits of the address
//!   show it; other subtables are skipped (the tries are stored as sorted maps). A trie over the ports of a subtable
//!   reduces the bits that a miss in its last stage adds.
//!
//! A rule that is one clause of a conjunction is *soft*: [`Classifier::lookup_conjunctive`] returns the soft rules
//! above the best hard one, with the wildcards of all of them; translation combines them.
//!
//! Not here: versions of single rules, timeouts and counters (they belong to the rule), and locks: the caller
//! publishes.
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
