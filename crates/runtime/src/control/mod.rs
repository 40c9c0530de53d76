//! The control plane.

mod claim;
pub mod commands;
pub mod daemon;
pub mod db;
pub mod dbfile;
mod devices;
mod dummies;
mod facts;
mod instances;
mod machine;
mod openflow;
pub mod reactor;
mod status;
pub mod stream;
pub mod switch;
pub mod turn;
pub mod unixctl;

pub use vswitch::DummyMode;
