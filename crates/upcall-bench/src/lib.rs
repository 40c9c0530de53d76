//! `sluice upcall-bench`: latency and fairness of first packets on any switch of the machine, by four tests.
//!
//! Stamped packets with new addresses go in by veth pairs made for it; each is a miss; they leave by the bridge's own device, where the
//! kernel's receive time stamp ends the delay, so scheduling of this program is left out. What decides is pure and tested alone: [`pace`],
//! [`tally`], [`stats`], [`probe`]; [`measure`] joins them with sockets, [`bench`] with the switch. Who calls it brings the command
//! lines of the OVS tools along ([`Tools`]).
#![forbid(unsafe_code)]

pub mod bench;
pub mod control;
pub mod devices;
pub mod fuzz;
pub mod guard;
pub mod measure;
pub mod model;
pub mod options;
pub mod pace;
pub mod plot;
pub mod probe;
pub mod stats;
pub mod table;
pub mod tally;

pub use bench::main;
pub use control::Tools;
pub use options::Options;
