//! The tracer behind `sluice upcall-cost`: what the first packets cost, where, and why.
//!
//! Records come from a [`Source`] (a recording, the daemon's event socket, probes).
#![forbid(unsafe_code)]

pub mod bpf;
pub mod source;

pub use source::{Capture, Source, Told};
