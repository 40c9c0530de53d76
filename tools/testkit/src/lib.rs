//! Tools for tests with real traffic: network namespaces, veth pairs, daemons, and programs that send and
//! capture packets. For tests only: independent of the switch, and never shipped.
//!
//! Invariants: every resource created here (namespace, interface, process, folder) ends with its value, also
//! if the test panics; the next test process removes the leftovers of a killed one. All names include the
//! process id and a counter, so tests run in parallel, in one process or in several. The machine's own
//! interfaces, services and processes are never touched: every interface is created inside a namespace from
//! here, and processes are ended by the id of their start.
//!
//! A test that needs namespaces begins with [`require_netns!`], which skips it with a message if they are not
//! available (and [`require_programs!`] likewise for the stock tools):
//!
//! ```no_run
//! fn bridge_forwards() {
//!     testkit::require_netns!();
//!     let net = testkit::Topology::new(2).unwrap();
//!     net.switch.ip("link add br0 type bridge").unwrap();
//!     // …
//! }
//! ```
//!
//! Helpers return `anyhow::Result`; tests `unwrap()` it, so that a failure is a panic, on which a [`Daemon`]
//! prints the end of its log. (A test that returns `Err` instead fails without that.)
#![forbid(unsafe_code)]

mod command;
mod corpus;
mod daemon;
mod leftovers;
mod manager;
mod monitor;
mod names;
mod netns;
mod ovs;
mod pki;
mod skip;
mod stock;
mod tempdir;
#[cfg(test)]
mod tests;
mod topology;
mod traffic;
mod wait;

pub use command::{Cmd, Output, Running, Signal};
pub use corpus::replay_corpus;
pub use daemon::{Daemon, DaemonSpec};
pub use leftovers::{left_by, remove_left_by};
pub use manager::{Held, ServiceManager};
pub use monitor::monitored;
pub use names::{FOREIGN_PIDS, if_name};
pub use netns::{Netns, netns_reason};
pub use ovs::RunDir;
pub use pki::Pki;
pub use skip::{netns_or_skip, programs_or_skip, skip, strace_or_skip};
pub use stock::{start_stock, start_stock_with, stock_root, wait_for_processors};
pub use tempdir::TempDir;
pub use topology::{Host, Topology, TopologyOptions, veth};
pub use traffic::{
    Capture, Iperf3Options, Iperf3Report, PingReport, Pings, iperf3_client, iperf3_server, patient_receiver,
    ping, reachable,
};
pub use wait::{listens, pace, patience, wait_for};

/// Whether to use long ranges (`make check-long`, by the environment variable `SLUICE_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("SLUICE_LONG").is_some_and(|v| v == "1")
}
