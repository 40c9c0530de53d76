//! Threads and loops: where the pure rooms meet the system.
//!
//! - [`kernel`]: the kernel's datapath behind [`dpif::Datapath`];
//! - [`userspace`]: forwarding threads behind [`dpif::Datapath`];
//! - [`driver`]: what is asked of a datapath that runs here, beside that;
//! - [`slowpath`]: handlers and the revalidator;
//! - [`control`]: the main loop: database, control socket, OpenFlow, configuration;
//! - [`ablation`]: optimisations switched off for measuring;
//! - [`vlog`]: the log.
//!
//! The control plane shares no thread and no lock with the packet path, unless it is told to (`--without=threads`).
#![forbid(unsafe_code)]

pub mod ablation;
pub mod control;
pub mod driver;
pub mod fuzz;
pub mod kernel;
mod probes;
pub mod slowpath;
#[cfg(test)]
mod testing;
pub mod userspace;
pub mod vlog;
