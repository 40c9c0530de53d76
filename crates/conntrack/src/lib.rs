//! Connection tracking in user space, shared by all forwarding threads.
//!
//! - [`ipf`]: holds IP fragments until their datagram is complete, so that it is tracked as a whole.
//!
//! No I/O, no clock, no thread: times and seeds are arguments.
#![forbid(unsafe_code)]

pub mod fuzz;
pub mod ipf;
