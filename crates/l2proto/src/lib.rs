//! Engines of protocols between switches, each a state machine without I/O.
//!
//! - [`bfd`]: bidirectional forwarding detection (RFC 5880 and 5881), as Open vSwitch has it.
//!
//! Time and randomness are arguments. Each engine takes received packets, returns packets to send, and tells the time of
//! its next work. `sluiced` runs them (`sluiced::monitor`).
#![forbid(unsafe_code)]

pub mod bfd;
pub mod fuzz;
