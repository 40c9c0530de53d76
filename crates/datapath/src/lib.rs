//! The fast path: a forwarding core ([`Pmd`]) turns bursts of packets and operations into packets to send and
//! upcalls. Pure: no I/O, no clock, no thread; the threads of `dpif-netdev` and the simulator drive it alike.
//!
//! A [`Pmd`] shares nothing with other cores except [`DpShared`] (meters, connections). See `process` for the path of a burst:
//! extract, parked flows, flow cache, megaflow table, accounting, actions, output. Deliberately left out:
//! translation, limits and lifetimes of flows (the slow path handles them), segmentation and checksums that a device
//! performs.
//!
//! Invariants: conservation ([`Ledger`]), bounds (every table and queue has a limit, and a drop reason or error for
//! reaching it), equivalence (caches and ranking give the result of a scan of the flow list).
#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod actions;
mod bonds;
mod bucket;
mod burst;
mod cache;
mod drops;
mod finish;
mod handover;
mod hash;
mod ledger;
mod marks;
mod megaflow;
mod meter;
mod ops;
mod park;
mod pmd;
mod ports;
mod process;
mod repeats;
mod samples;
mod shared;
mod stages;
mod tuning;
mod upkeep;

pub use actions::{
    ACTION_NESTING_MAX, CannotEmulate, EXECUTED_ACTIONS_MAX, EmulatedPart, RECIRC_DEPTH_MAX, emulate,
    re_extract, rewrite,
};
pub use drops::DropBudget;
pub use handover::{FlowWalk, Leaving};
pub use ledger::Ledger;
pub use meter::{METER_BANDS_MAX, METERS_MAX, MeterLevels};
pub use pmd::{CacheStats, Pmd, PmdConfig};
pub use ports::{PORT_NUMBERS, PmdIo, TX_BATCH_MAX_PACKETS, TxReport};
pub use shared::DpShared;
pub use tuning::PmdTuning;
pub use upkeep::SLICE_FLOWS;

#[cfg(test)]
mod tests;
