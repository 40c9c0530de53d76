//! Network namespaces that end with their value.

use std::os::fd::AsFd;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{Cmd, Output, Running};
use crate::names;

/// Folder of the names of `ip netns`.
pub(crate) const FOLDER: &str = "/run/netns";

static SWEEP: Once = Once::new();

/// A named network namespace with its loopback up. Clones are the same namespace, deleted with the last of
/// them (and of the programs started in it).
#[derive(Clone, Debug)]
pub struct Netns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
}

impl Netns {
    /// Creates a namespace named `sl-<pid>-<n>-<tag>`. The first call of a process first removes the
    /// namespaces (and the programs in them) left by dead test processes.
    ///
    /// # Errors
    /// If the machine does not permit it: see [`netns_reason`].
    pub fn new(tag: &str) -> Result<Self> {
        SWEEP.call_once(sweep);
        let name = names::unique(tag);
        Cmd::new("ip").args(["netns", "add", &name]).run()?;
        let netns = Self(Arc::new(Inner { name }));
        netns.up("lo")?;
        Ok(netns)
    }

    /// Its name in `ip netns`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A program to run inside it.
    pub fn cmd(&self, program: &str) -> Cmd {
        Cmd::new(program).netns(self)
    }

    /// Runs a program inside, which must succeed.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn run(&self, program: &str, args: &[&str]) -> Result<Output> {
        self.cmd(program).args(args).run()
    }

    /// Starts a program inside it and leaves it running.
    ///
    /// # Errors
    /// As [`Cmd::spawn`].
    pub fn spawn(&self, program: &str, args: &[&str]) -> Result<Running> {
        self.cmd(program).args(args).spawn()
    }

    /// Calls `work` on a new thread in the namespace: sockets opened, and threads started by it, belong
    /// there. Propagates a panic.
    ///
    /// # Errors
    /// If the thread cannot be moved; `work` is not called then.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("{FOLDER}/{}", self.name());
        let namespace = std::fs::File::open(&path).with_context(|| format!("cannot open {path}"))?;
        let moved = || -> Result<T> {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot move into {path}"))?;
            Ok(work())
        };
        std::thread::scope(|scope| scope.spawn(moved).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `ip` for this namespace, with the words of `line` as arguments; returns its output.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn ip(&self, line: &str) -> Result<String> {
        Ok(Cmd::new("ip").args(["-n", self.name()]).args(line.split_whitespace()).run()?.stdout)
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn up(&self, dev: &str) -> Result<()> {
        self.ip(&format!("link set dev {dev} up")).map(drop)
    }

    /// Adds an address with its prefix length to an interface. An IPv6 address is usable at once (no
    /// duplicate address detection).
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn add_addr(&self, dev: &str, addr: &str) -> Result<()> {
        let nodad = if addr.contains(':') { " nodad" } else { "" };
        self.ip(&format!("addr add {addr} dev {dev}{nodad}")).map(drop)
    }

    /// Enables or disables the checksum, segmentation and receive offloads of an interface, all together.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn set_offloads(&self, dev: &str, on: bool) -> Result<()> {
        let value = if on { "on" } else { "off" };
        let features = ["rx", "tx", "sg", "tso", "gso", "gro"];
        let args = features.iter().flat_map(|feature| [*feature, value]);
        self.cmd("ethtool").args(["-K", dev]).args(args).run().map(drop)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Ends the programs in one of our namespaces and deletes it.
pub(crate) fn remove(name: &str) {
    let ip = |args: &[&str]| Cmd::new("ip").args(args.iter().copied()).limit(Duration::from_secs(10)).run();
    if let Ok(out) = ip(&["netns", "pids", name]) {
        for pid in out.stdout.split_whitespace().filter_map(|p| p.parse().ok()).filter_map(Pid::from_raw) {
            let _already_gone = kill_process(pid, Signal::KILL);
        }
    }
    if let Err(why) = ip(&["netns", "del", name]) {
        eprintln!("testkit: {why:#}");
    }
}

/// Removes the namespaces of dead test processes. Another process may do the same concurrently.
pub(crate) fn sweep() {
    let Ok(entries) = std::fs::read_dir(FOLDER) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if names::is_stale(&name) {
            remove(&name);
        }
    }
}

/// The reason why namespaces with veth pairs are not available; `None` if they are. Tested once per process.
/// Tests use [`require_netns!`](crate::require_netns).
pub fn netns_reason() -> Option<&'static str> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let probe = || -> Result<()> {
        let netns = Netns::new("probe").context("cannot make a network namespace (root with CAP_SYS_ADMIN and CAP_NET_ADMIN, and iproute2, are needed)")?;
        let (a, b) = (names::if_name("pa"), names::if_name("pb"));
        netns.ip(&format!("link add {a} type veth peer name {b}")).context("cannot make a veth pair")?;
        netns.run("true", &[]).context("cannot run a program in a network namespace")?;
        Ok(())
    };
    REASON.get_or_init(|| probe().err().map(|why| format!("{why:#}").replace('\n', " "))).as_deref()
}
