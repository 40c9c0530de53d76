//! The control plane.

pub mod dbfile;
pub mod stream;
pub mod unixctl;
