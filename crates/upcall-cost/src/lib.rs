//! The tracer behind `sluice upcall-cost`: what the first packets cost, where, and why.
//!
//! Records come from a [`Source`] (a recording, the daemon's event socket) and are gathered ([`gather`]), joined to upcalls
//! ([`join`]), measured ([`figures`], [`stats`]), put together ([`report`]) and shown ([`text`], [`export`], [`plot`]). [`run`] does
//! all of it as the command line asks. Analysis is pure: the same recording gives the same report on every machine.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod export;
pub mod figures;
pub mod fuzz;
pub mod gather;
pub mod join;
pub mod live;
pub mod options;
pub mod packet;
pub mod plot;
pub mod recording;
pub mod report;
pub mod ring;
pub mod run;
pub mod source;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod text;

use gather::Gathered;
use join::Joined;
use report::Report;

pub use options::Options;
pub use run::run;
pub use source::{Capture, Source, Told};

/// A recording with all that was found out about it.
pub struct Analysed {
    /// What was told.
    pub gathered: Gathered,
    /// Which events belong together.
    pub joined: Joined,
    /// What is to be said of it.
    pub report: Report,
}

/// Joins and measures what was gathered. `notes`: what the reader must know of how it was gathered; `progress`: told, now and
/// then, how many events are joined.
pub fn analyse(
    name: &str,
    mut gathered: Gathered,
    notes: Vec<String>,
    progress: &mut dyn FnMut(usize),
) -> Analysed {
    let joined = join::join(&mut gathered, progress);
    let report = report::report(name, &gathered, &joined, notes);
    Analysed { gathered, joined, report }
}
