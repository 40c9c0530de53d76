//! A daemon under test: started in the foreground, with its own run directory, ended with its value.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{Cmd, Output, Running, Signal};
use crate::manager::{Held, ServiceManager};
use crate::netns::Netns;
use crate::ovs::RunDir;
use crate::wait::{listens, wait_for};

/// Maximum time for a daemon to become ready, and to end.
const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// A line of the log about a system call that the confinement of a thread refuses.
const REFUSED: &str = "was refused the system call";
/// Lines of the log and of each stream shown after a failed test.
const TAIL_LINES: usize = 60;

/// Specification of a daemon.
#[derive(Clone, Debug)]
pub struct DaemonSpec {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    netns: Option<Netns>,
    root: Option<PathBuf>,
    rundir: RunDir,
    ready_file: Option<String>,
    descriptors: Held,
}

/// Runs a program (`$3` and its arguments) in the root file system `$1`, which gets the run directory `$2` and the
/// machine's pseudo file systems in a mount namespace of its own. The process stays the same.
const IN_ROOT: &str = r#"
mount -t tmpfs none "$1/tmp"
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
for system in proc sys dev; do mount --rbind "/$system" "$1/$system"; done
root=$1
shift 2
exec chroot "$root" "$@"
"#;

impl DaemonSpec {
    /// Starts `program` (for a binary of the own crate: `env!("CARGO_BIN_EXE_…")`) with a new run directory.
    /// It must stay in the foreground.
    ///
    /// # Errors
    /// If the run directory cannot be created.
    pub fn new(program: impl Into<OsString>) -> Result<Self> {
        let program = program.into();
        let tag =
            Path::new(&program).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let rundir = RunDir::new(&tag)?;
        Ok(Self {
            program,
            args: Vec::new(),
            env: Vec::new(),
            netns: None,
            root: None,
            rundir,
            ready_file: None,
            descriptors: Vec::new(),
        })
    }

    /// Its future run directory, to put files into before the start.
    pub fn run_directory(&self) -> &RunDir {
        &self.rundir
    }

    /// Uses an existing run directory, for instance after a crash.
    pub fn rundir(mut self, rundir: &RunDir) -> Self {
        self.rundir = rundir.clone();
        self
    }

    /// Runs it inside a namespace.
    pub fn netns(mut self, netns: &Netns) -> Self {
        self.netns = Some(netns.clone());
        self
    }

    /// Runs the program of another root file system, which sees the run directory at its place. Needs root.
    pub fn root(mut self, root: &Path) -> Self {
        self.root = Some(root.to_path_buf());
        self
    }

    /// The root file system, if it is another one.
    pub(crate) fn root_directory(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Runs it under a service manager, which passes on what it holds now.
    pub fn manager(mut self, manager: &ServiceManager) -> Self {
        self.descriptors = manager.held();
        self.env("NOTIFY_SOCKET", manager.path())
    }

    /// Considers it ready once this file appears in the run directory, instead of its unixctl socket. A socket must accept connections: it appears before it listens, and one of a crashed daemon remains.
    pub fn ready_file(mut self, name: &str) -> Self {
        self.ready_file = Some(name.to_owned());
        self
    }

    /// Starts it and waits until it is ready: until its unixctl socket (`*.<pid>.ctl`) in the run directory
    /// listens. A pidfile tells nothing: daemons write it before they listen.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready after 20 s; the text includes the end of its output and
    /// log.
    pub fn start(&self) -> Result<Daemon> {
        let mut cmd = match &self.root {
            None => Cmd::new(self.program.clone()),
            Some(root) => Cmd::new("unshare")
                .args(["--mount", "sh", "-ec", IN_ROOT, "sh"])
                .arg(root)
                .arg(self.rundir.path())
                .arg(self.program.clone()),
        };
        cmd = cmd.args(self.args.iter().cloned()).descriptors(self.descriptors.clone());
        if let Some(netns) = &self.netns {
            cmd = cmd.netns(netns);
        }
        for (name, value) in self.rundir.env() {
            cmd = cmd.env(name, value);
        }
        for (name, value) in &self.env {
            cmd = cmd.env(name.clone(), value.clone());
        }
        let running = cmd.spawn()?;
        let mut daemon =
            Daemon { running: Some(running), rundir: self.rundir.clone(), netns: self.netns.clone(), pid: 0 };
        daemon.pid = daemon.running.as_ref().map_or(0, Running::pid);
        let mut ended = None;
        let waited = wait_for(START_LIMIT, "the daemon to be ready", || {
            ended = daemon.status();
            ended.is_some() || self.is_ready(daemon.pid)
        });
        let name = self.program.to_string_lossy();
        if let Some(status) = ended {
            if let Some(running) = &daemon.running {
                running.drain();
            }
            bail!("{name} ended before it was ready: {status}\n{}", daemon.tail());
        }
        waited.with_context(|| format!("{name} is not ready\n{}", daemon.tail()))?;
        Ok(daemon)
    }

    fn is_ready(&self, pid: u32) -> bool {
        if let Some(name) = &self.ready_file {
            let path = self.rundir.join(name);
            let is_socket = path.metadata().is_ok_and(|m| m.file_type().is_socket());
            return if is_socket { listens(&path) } else { path.exists() };
        }
        let Ok(entries) = std::fs::read_dir(self.rundir.path()) else { return false };
        entries.flatten().any(|entry| {
            entry.file_name().to_string_lossy().ends_with(&format!(".{pid}.ctl")) && listens(&entry.path())
        })
    }
}

/// A running daemon. Dropping it ends it by its process id, gracefully at first; if the test panics, it
/// prints the end of its log. A test fails if the log, which an orderly end completes, has a refused system call of a thread.
#[derive(Debug)]
pub struct Daemon {
    /// `None` only after it was stopped.
    running: Option<Running>,
    rundir: RunDir,
    netns: Option<Netns>,
    pid: u32,
}

impl Daemon {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its run directory.
    pub fn rundir(&self) -> &RunDir {
        &self.rundir
    }

    /// Its exit status, or `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.running.as_mut().and_then(Running::status)
    }

    /// Its log files until now.
    pub fn log(&self) -> String {
        self.rundir.log()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.running.as_ref().map(Running::stdout).unwrap_or_default()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.running.as_ref().map(Running::stderr).unwrap_or_default()
    }

    /// A stock tool of OVS, in the daemon's namespace and with its run directory: see [`RunDir::tool`].
    pub fn tool(&self, tool: &str) -> Cmd {
        self.rundir.tool(tool, self.netns.as_ref())
    }

    /// Runs a stock tool of OVS against the daemon, which must succeed.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub fn ovs(&self, tool: &str, args: &[&str]) -> Result<Output> {
        self.tool(tool).args(args).run()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.running.as_mut().map_or(Ok(()), |r| r.signal(signal))
    }

    /// Waits until it ends on its own, for instance after `ovs-appctl exit`.
    ///
    /// # Errors
    /// If it has not ended after `limit`; it is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<Output> {
        let output = self.running.take().context("the daemon was stopped before")?.wait(limit)?;
        self.expect_none_refused(&output);
        Ok(output)
    }

    /// Ends it: SIGTERM, and SIGKILL if it has not ended after 10 s.
    ///
    /// # Errors
    /// If the kernel rejects the signal.
    pub fn stop(mut self) -> Result<Output> {
        self.end(Signal::TERM)
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// If the kernel rejects the signal.
    pub fn crash(mut self) -> Result<Output> {
        self.end(Signal::KILL)
    }

    fn end(&mut self, signal: Signal) -> Result<Output> {
        let output =
            self.running.take().context("the daemon was stopped before")?.stop(signal, STOP_LIMIT)?;
        self.expect_none_refused(&output);
        Ok(output)
    }

    /// # Panics
    /// If a thread was refused a system call.
    fn expect_none_refused(&self, output: &Output) {
        let log = self.log();
        let lines = log.lines().chain(output.stderr.lines());
        let refused: Vec<&str> = lines.filter(|line| line.contains(REFUSED)).collect();
        assert!(refused.is_empty() || std::thread::panicking(), "{}", refused.join("\n"));
    }

    /// All that it wrote, to its log and to standard error, once it has ended.
    ///
    /// # Errors
    /// If it still runs after 10 s ([`crate::patience`]).
    pub fn last_words(&mut self) -> Result<String> {
        wait_for(STOP_LIMIT, "the daemon's end", || self.status().is_some())?;
        if let Some(running) = &self.running {
            running.drain();
        }
        Ok(format!("{}\n{}", self.log(), self.stderr()))
    }

    /// The last lines of its log, standard output and standard error.
    pub fn tail(&self) -> String {
        let parts = [("log", self.log()), ("stdout", self.stdout()), ("stderr", self.stderr())];
        parts.iter().map(|(name, text)| tail(name, text)).collect()
    }
}

fn tail(name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    if lines.is_empty() { String::new() } else { format!("--- {name}\n{}\n", lines[from..].join("\n")) }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon {} in {}:\n{}", self.pid, self.rundir.path().display(), self.tail());
        }
        if self.running.is_some() {
            // If it does not end gracefully, dropping `running` kills it.
            let _killed_instead = self.end(Signal::TERM);
        }
    }
}
