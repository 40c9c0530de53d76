//! Threads and loops: where the pure rooms meet the system.
//!
//! - [`userspace`]: forwarding threads behind [`dpif::Datapath`];
//! - [`slowpath`]: handlers and the revalidator;
//! - [`control`]: the main loop: database, control socket, OpenFlow, configuration;
//! - [`ablation`]: optimisations switched off for measuring;
//! - [`vlog`]: the log.
//!
//! The control plane shares no thread and no lock with the packet path, unless it is told to (`--without=threads`).
#![forbid(unsafe_code)]

pub mod ablation;
pub mod control;
pub mod fuzz;
mod probes;
pub mod slowpath;
pub mod userspace;
pub mod vlog;
