//! From rows of the `Open_vSwitch` database to commands, and from facts about the running switch back to rows.
//!
//! ```text
//! Replica ─ config ─→ Desired ─ plan ─→ Command … executed by the owner, results fed back
//! Replica + Facts ─ status ─→ a transaction that writes what differs
//! ```
//!
//! Everything here is a value or a state machine, without I/O, clock or randomness. The owner is one thread, the
//! main loop of the daemon or the simulator. Commands name devices and bridges, never handles, so this crate knows
//! no device code.
#![forbid(unsafe_code)]

pub mod config;
pub mod plan;
pub mod settings;
pub mod status;
#[cfg(test)]
mod testbed;

pub use config::{Desired, Notice, Parsed, SupportedTypes};
pub use plan::{Command, OpenedInterface, Planner};
pub use status::{Facts, Writeback};
