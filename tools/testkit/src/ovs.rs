//! The run directory of one switch, and stock tools restricted to it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::command::{Cmd, Output};
use crate::netns::Netns;
use crate::tempdir::TempDir;
use crate::wait::patience;

/// Timeout of a stock tool.
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);
/// OVS's environment variables for directories; all point to the run directory.
const DIR_VARIABLES: [&str; 4] = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];

/// A folder that is the run, log, database and configuration directory of a switch. Clones are the same
/// folder, removed with the last of them; a daemon and its successor can share one.
#[derive(Clone, Debug)]
pub struct RunDir(Arc<TempDir>);

impl RunDir {
    /// Creates an empty one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(tag: &str) -> Result<Self> {
        Ok(Self(Arc::new(TempDir::new(tag)?)))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The remote of the database socket: `unix:…/db.sock`.
    pub fn db(&self) -> String {
        format!("unix:{}", self.join("db.sock").display())
    }

    /// The variables that lead OVS's programs, and Sluice, to it.
    pub fn env(&self) -> impl Iterator<Item = (&'static str, OsString)> + '_ {
        DIR_VARIABLES.iter().map(|name| (*name, self.path().into()))
    }

    /// A stock tool of OVS with this environment; tools with the option get `--timeout`, and `ovs-vsctl` gets
    /// `--db`. `netns` matters for tools that use TCP.
    pub fn tool(&self, tool: &str, netns: Option<&Netns>) -> Cmd {
        let mut cmd = Cmd::new(tool);
        if let Some(netns) = netns {
            cmd = cmd.netns(netns);
        }
        for (name, value) in self.env() {
            cmd = cmd.env(name, value);
        }
        if matches!(tool, "ovs-vsctl" | "ovs-ofctl" | "ovs-appctl" | "ovs-dpctl" | "ovsdb-client") {
            cmd = cmd.arg(format!("--timeout={}", patience(TOOL_TIMEOUT).as_secs()));
        }
        if tool == "ovs-vsctl" {
            cmd = cmd.arg(format!("--db={}", self.db()));
        }
        cmd
    }

    /// Runs a stock tool, which must succeed.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn ovs(&self, tool: &str, args: &[&str]) -> Result<Output> {
        self.tool(tool, None).args(args).run()
    }

    /// The text of all `*.log` files in it.
    pub fn log(&self) -> String {
        let Ok(entries) = std::fs::read_dir(self.path()) else { return String::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "log"));
        paths.sort();
        let read = |p: &PathBuf| std::fs::read(p).unwrap_or_default();
        paths.iter().map(|p| String::from_utf8_lossy(&read(p)).into_owned()).collect()
    }
}
