//! The tracer behind `sluice upcall-cost`: cost of first packets by stage, port and thread.
//!
//! Records come from a [`Source`] (a recording, the daemon's event socket) and are stored ([`gather`]),
//! joined to upcalls ([`join`]), measured ([`metrics`], [`stats`]), assembled ([`report`]) and printed
//! ([`text`], [`export`], [`plot`]). [`run`] does all of it by command line. Analysis is pure: the same
//! recording yields the same report on every machine.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod export;
pub mod fuzz;
pub mod gather;
pub mod join;
pub mod live;
pub mod metrics;
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
pub use source::{Capture, Polled, Source};
pub use upcall_events::{Dropped, Record, Sampled};

/// A recording with all that was found out about it.
pub struct Analysed {
    /// Stored records.
    pub gathered: Gathered,
    /// Upcalls with their events.
    pub joined: Joined,
    /// The resulting report.
    pub report: Report,
}

/// Joins and measures stored records. `notes`: notes for the reader about the trace; `progress`: called now
/// and then with the number of joined events.
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
