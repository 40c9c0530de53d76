//! `sluice upcall-bench`: latency and fairness of first packets on any switch of the machine, by four tests.
//!
//! Stamped packets with new addresses enter by veth pairs created for it; each is a miss. They leave by the
//! bridge's own device, whose kernel receive timestamp ends the delay, so scheduling of this program is
//! excluded. The logic is pure and tested alone: [`pace`], [`tally`], [`stats`], [`probe`]; [`measure`]
//! connects it with sockets, [`bench`] with the switch. The caller supplies the command lines of the OVS
//! tools ([`Tools`]).
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
