//! The log, the pid file, and the background (`--detach`).

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use sys::daemon::Detached;
use sys::pidfile::PidFile;
use vlog::vlog;

use crate::remote::run_dir;

/// Commands that run until they are stopped.
const LASTING: [&str; 2] = ["monitor", "snoop"];

/// Settings of the process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Log levels to set.
    pub(super) verbose: Vec<String>,
    /// Log file: `Some(None)` is the default one.
    pub(super) log_file: Option<Option<PathBuf>>,
    /// Pid file, likewise.
    pub(super) pidfile: Option<Option<PathBuf>>,
    pub(super) overwrite_pidfile: bool,
    pub(super) detach: bool,
    pub(super) no_chdir: bool,
}

/// Detachment and pidfile of the command, until it ends.
#[derive(Debug, Default)]
pub(super) struct Process {
    detached: Option<Detached>,
    no_chdir: bool,
    _pidfile: Option<PidFile>,
}

fn log_dir() -> PathBuf {
    std::env::var_os("OVS_LOGDIR").map_or_else(|| "/var/log/openvswitch".into(), PathBuf::from)
}

impl Settings {
    /// Takes an option of the log or the process; returns whether it is one.
    pub(super) fn take(&mut self, name: &str, attached: Option<&str>) -> bool {
        let path = || attached.map(PathBuf::from);
        match name {
            "v" | "verbose" => self.verbose.push(attached.unwrap_or("dbg").to_string()),
            "log-file" => self.log_file = Some(path()),
            "pidfile" => self.pidfile = Some(path()),
            "overwrite-pidfile" => self.overwrite_pidfile = true,
            "detach" => self.detach = true,
            "no-chdir" => self.no_chdir = true,
            _ => return false,
        }
        true
    }

    /// Carries them out, before any thread exists. With `--detach` a command that lasts goes into the background.
    pub(super) fn begin(&self, command: &str) -> Result<Process> {
        let log = vlog();
        log.set_program("ovs-ofctl");
        log.set("console:warn").map_err(anyhow::Error::msg)?;
        for spec in &self.verbose {
            log.set(spec).map_err(|why| anyhow::anyhow!("processing \"{spec}\": {why}"))?;
        }
        let detached = match self.detach {
            true if !LASTING.contains(&command) => {
                bail!("--detach is for commands that last: {}", LASTING.join(", "))
            }
            true => Some(sys::daemon::detach().context("cannot go into the background")?),
            false => None,
        };
        if let Some(path) = &self.log_file {
            let path = path.clone().unwrap_or_else(|| log_dir().join("ovs-ofctl.log"));
            log.open_file(&path).with_context(|| format!("{}: cannot open the log file", path.display()))?;
        }
        let pidfile = match self.pidfile.as_ref().filter(|_| LASTING.contains(&command)) {
            Some(path) => {
                let path = path.clone().unwrap_or_else(|| run_dir().join("ovs-ofctl.pid"));
                Some(PidFile::create(&path, self.overwrite_pidfile)?)
            }
            None => None,
        };
        Ok(Process { detached, no_chdir: self.no_chdir, _pidfile: pidfile })
    }
}

impl Process {
    /// The command waits for messages now: the one that started it may end.
    pub(super) fn ready(&mut self) -> Result<()> {
        match self.detached.take() {
            Some(detached) => detached.ready(!self.no_chdir).context("cannot go into the background"),
            None => Ok(()),
        }
    }
}
