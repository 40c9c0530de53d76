//! Tools for tests with real traffic: network namespaces, veth pairs, daemons, and the programs that make and watch
//! packets. For tests only; nothing of the switch is in here, and nothing that ships depends on it.
//!
//! Invariants: whatever a value here made (namespace, interface, process, folder) ends with it, also when the test
//! panics; what a killed test process left behind is swept by the next one. All names hold the process id and a counter,
//! so that tests run in parallel, in one process or in several. The machine's own interfaces, services and
//! processes are never touched: every interface is born inside a namespace that was made here, and a process
//! is ended by the id under which it was started.
//!
//! A test that needs namespaces begins with [`require_netns!`], which skips it, visibly, where they cannot be had (and
//! [`require_programs!`] likewise for the stock tools):
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
//! Helpers return `anyhow::Result`; tests `unwrap()` it, so that a failure is a panic, on which a [`Daemon`] prints the
//! end of its log. (A test that returns `Err` instead fails without that.)
#![forbid(unsafe_code)]

mod command;
mod corpus;
mod daemon;
mod leftovers;
mod names;
mod netns;
mod ovs;
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
pub use names::{FOREIGN_PIDS, if_name};
pub use netns::{Netns, netns_reason};
pub use ovs::RunDir;
pub use skip::{netns_or_skip, programs_or_skip, skip, strace_or_skip};
pub use stock::start_stock;
pub use tempdir::TempDir;
pub use topology::{Host, Topology, TopologyOptions, veth};
pub use traffic::{
    Capture, Iperf3Options, Iperf3Report, PingReport, iperf3_client, iperf3_server, ping, reachable,
};
pub use wait::{patience, wait_for};

/// Whether the long ranges are asked for (`make check-long`, by the environment variable `SLUICE_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("SLUICE_LONG").is_some_and(|v| v == "1")
}
