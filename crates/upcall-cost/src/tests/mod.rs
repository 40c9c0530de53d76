//! Tests of the analysing half. `scenario` makes records of text.

mod join;
mod known;
mod measures;
mod recording;
mod ring;
mod scenario;
mod show;
