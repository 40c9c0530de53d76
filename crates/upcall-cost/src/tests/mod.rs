//! Tests of the analysis. `scenario` builds records from text.

mod join;
mod known;
mod measures;
mod recording;
mod ring;
mod scenario;
mod show;
