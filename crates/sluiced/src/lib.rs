//! The switch daemon as a library: the main loop with database, OpenFlow connections and control socket, and the slow path's threads.
//!
//! - [`daemon`]: start, main loop and end of the process;
//! - [`db`], [`dbfile`]: the database, served or followed;
//! - [`switch`]: bridges and ports as configured in the database;
//! - [`routing`]: routes, neighbours and listeners of tunnels in user space;
//! - [`appctl`]: commands of the control socket ([`unixctl`]), which act on the [`control_plane`];
//! - [`slowpath`]: handlers and the revalidator;
//! - `metrics`: the thread that serves metrics for Prometheus;
//! - `link_protocols`: the thread that runs the sessions of link protocols.
//!
//! The control plane shares no thread and no lock with the packet path, except with `--without=threads`.
#![forbid(unsafe_code)]

pub mod appctl;
mod bonds;
mod claim;
pub mod config;
mod confinement;
pub mod control_plane;
mod coverage;
pub mod daemon;
pub mod db;
pub mod dbfile;
mod devices;
mod dp_features;
mod dummies;
mod exporters;
mod facts;
mod features;
pub mod fuzz;
mod handover;
mod implementations;
mod inherited;
mod instances;
mod kept;
mod link_protocols;
mod loop_times;
mod machine;
mod memory_growth;
mod metrics;
mod next_hops;
mod observer;
mod openflow;
mod places;
mod port_changes;
pub mod reactor;
pub mod routing;
mod service;
pub mod slowpath;
mod state;
mod status;
pub mod stream;
pub mod switch;
#[cfg(test)]
mod tests;
mod trace_text;
#[cfg(test)]
mod tracker;
mod tunnels;
pub mod turn;
pub mod unixctl;
mod upcall_times;
mod wakeups;
mod work;
mod zones;
