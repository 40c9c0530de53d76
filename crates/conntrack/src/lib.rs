//! Connection tracking in user space, shared by all forwarding threads.
//!
//! - [`ipf`]: holds IP fragments until their datagram is complete, so that it is tracked as a whole.
//! - [`alg`]: reads and rewrites control messages of FTP; knows those of TFTP.
//!
//! No I/O, no clock, no thread: times and seeds are arguments.
#![forbid(unsafe_code)]

pub mod alg;
pub mod fuzz;
pub mod ipf;
