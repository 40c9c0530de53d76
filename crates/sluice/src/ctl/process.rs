//! The running daemon: found by its pid file, ended step by step.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use sys::pidfile;
use sys::process::Handle;

use super::options::Options;
use super::start::arguments;
use super::{DAEMON, Places, report};
use crate::appctl;
use crate::remote::Deadline;

/// Maximum wait for the reply of `exit`, which comes when all ports are closed, and then for the end.
const EXIT_LIMIT: Duration = Duration::from_secs(3);
/// Maximum wait after SIGTERM.
const TERM_LIMIT: Duration = Duration::from_secs(5);
/// Maximum wait after SIGKILL: the kernel closes thousands of devices.
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// Daemons that are ended one after another: a monitor may restart one that crashes at its end.
const ROUNDS: usize = 3;

/// A process that holds the lock of the pid file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Daemon {
    pid: u32,
    /// Name of its program file, if it can be read.
    program: Option<String>,
}

impl Daemon {
    /// Whether its program is `sluiced`, whatever name ps(1) shows.
    pub(super) fn is_ours(&self) -> bool {
        self.program.as_deref() == Some(DAEMON)
    }

    /// Whether a start with these options would be the same: arguments, folders, priority.
    pub(super) fn is_as_started(&self, options: &Options, places: &Places) -> bool {
        let has =
            |name: &str, value: Option<&OsStr>| sys::process::variable(self.pid, name).as_deref() == value;
        let inherits = |name: &str| has(name, std::env::var_os(name).as_deref());
        sys::process::arguments(self.pid).is_some_and(|all| all.get(1..) == Some(&arguments(options, places)))
            && has("OVS_RUNDIR", Some(places.run.as_os_str()))
            && has("OVS_DBDIR", Some(places.database.as_os_str()))
            && ["OVS_LOGDIR", "OVS_SYSCONFDIR"].into_iter().all(inherits)
            && sys::process::folder(self.pid).as_ref() == options.daemon_cwd.canonicalize().ok().as_ref()
            && sys::process::nice(self.pid) == Some(options.ovs_vswitchd_priority.into())
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        match self.program.as_deref() {
            Some(DAEMON) => write!(f, "{DAEMON} is running with pid {pid}"),
            Some(other) => write!(f, "{other} is running with pid {pid} in the place of {DAEMON}"),
            None => write!(f, "an unknown program is running with pid {pid} in the place of {DAEMON}"),
        }
    }
}

/// The daemon of a pid file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its process lives.
    Running(Daemon),
    /// No process holds the file.
    Stale(PathBuf),
    /// No file.
    None,
}

/// Looks for the daemon.
pub(super) fn find(places: &Places) -> Result<Found> {
    let path = places.pid_file();
    Ok(match pidfile::running(&path).with_context(|| path.display().to_string())? {
        Some(pid) => Found::Running(Daemon { pid, program: sys::process::program(pid) }),
        None if path.exists() => Found::Stale(path),
        None => Found::None,
    })
}

/// Ends the daemon; whether it is gone.
pub(super) fn stop(places: &Places) -> Result<bool> {
    for round in 0..ROUNDS {
        let Found::Running(daemon) = find(places)? else {
            return Ok(if round == 0 { report(&format!("{DAEMON} is not running"), true) } else { true });
        };
        if !daemon.is_ours() {
            bail!("{daemon}: it is left alone; stop it by its own tools (ovs-ctl stop)");
        }
        let handle = Handle::open(daemon.pid);
        // The number may have been given to another process since the file was read.
        if find(places)? != Found::Running(daemon.clone()) {
            continue;
        }
        let handle = handle.map_err(|error| anyhow!("{daemon}: {}", sys::os_text(&error)))?;
        if !end(places, daemon.pid, &handle)? {
            return Ok(report(&format!("Killing {DAEMON} ({}) failed", daemon.pid), false));
        }
    }
    match find(places)? {
        Found::Running(daemon) => {
            bail!("{daemon}: it was ended {ROUNDS} times, and something starts it again")
        }
        Found::Stale(_) | Found::None => Ok(true),
    }
}

/// Ends one process: politely, firmly, at once.
fn end(places: &Places, pid: u32, handle: &Handle) -> Result<bool> {
    let socket = places.run.join(format!("ovs-vswitchd.{pid}.ctl"));
    let reply = appctl::call(&socket.to_string_lossy(), "exit", &[], Deadline::within(EXIT_LIMIT));
    let exits = matches!(reply, Ok(appctl::Answer::Text(_)));
    report(&format!("Exiting {DAEMON} ({pid})"), exits);
    if handle.wait(if exits { EXIT_LIMIT } else { Duration::ZERO })? {
        return Ok(true);
    }
    report(&format!("Killing {DAEMON} ({pid})"), handle.end(false).is_ok());
    if handle.wait(TERM_LIMIT)? {
        return Ok(true);
    }
    report(&format!("Killing {DAEMON} ({pid}) with SIGKILL"), handle.end(true).is_ok());
    Ok(handle.wait(KILL_LIMIT)?)
}
