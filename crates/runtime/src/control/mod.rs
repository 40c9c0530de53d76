//! The control plane.

pub mod commands;
pub mod daemon;
pub mod db;
pub mod dbfile;
pub mod reactor;
pub mod stream;
pub mod switch;
pub mod unixctl;
