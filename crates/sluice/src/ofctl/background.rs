//! The log, the pid file, the background (`--detach`), its monitor process, another user, and the control socket.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sys::daemon::Detached;
use sys::monitor::Notice;
use sys::pidfile::PidFile;
use sys::signals::Signal;
use sys::user::{Powers, User};
use vlog::vlog;

use super::control::Control;
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
    /// A process starts the command anew after a crash.
    pub(super) monitor: bool,
    pub(super) user: Option<String>,
    /// Control socket: `none`, or a name in the run directory.
    pub(super) unixctl: Option<String>,
    pub(super) syslog_method: Option<String>,
    pub(super) syslog_target: Option<String>,
}

/// A signal ended the command.
#[derive(Debug)]
pub(super) struct Signalled(pub(super) Signal);

impl Signalled {
    /// The exit code, as a shell reports the signal.
    pub(super) fn exit_code(&self) -> u8 {
        128 + match self.0 {
            Signal::Hangup => 1,
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
        }
    }
}

impl std::fmt::Display for Signalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ended by a signal")
    }
}

impl std::error::Error for Signalled {}

/// Detachment and pidfile of the command, until it ends.
#[derive(Debug, Default)]
pub(super) struct Process {
    detached: Option<Detached>,
    no_chdir: bool,
    unixctl: Option<String>,
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
            "monitor" => self.monitor = true,
            // Nothing confines this program.
            "no-self-confinement" => {}
            _ => return false,
        }
        true
    }

    /// The place of an option with a value.
    pub(super) fn with_value(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "user" => &mut self.user,
            "unixctl" => &mut self.unixctl,
            "syslog-method" => &mut self.syslog_method,
            "syslog-target" => &mut self.syslog_target,
            _ => return None,
        })
    }

    /// Carries them out, before any thread exists. With `--detach` a command that lasts goes into the background.
    pub(super) fn begin(&self, command: &str) -> Result<Process> {
        let log = vlog();
        log.set_program("ovs-ofctl");
        log.set("console:warn").map_err(anyhow::Error::msg)?;
        for spec in &self.verbose {
            log.set(spec).map_err(|why| anyhow::anyhow!("processing \"{spec}\": {why}"))?;
        }
        let syslog = |why: String| anyhow::anyhow!(why);
        if let Some(method) = &self.syslog_method {
            log.set_syslog_method(method).map_err(syslog)?;
        }
        if let Some(target) = &self.syslog_target {
            log.set_syslog_target(target).map_err(syslog)?;
        }
        let detached = match self.detach {
            true if !LASTING.contains(&command) => {
                bail!("--detach is for commands that last: {}", LASTING.join(", "))
            }
            true => Some(sys::daemon::detach().context("cannot go into the background")?),
            false => None,
        };
        let detached = match self.monitor && LASTING.contains(&command) {
            true => {
                sys::monitor::monitor(
                    "ovs-ofctl",
                    detached,
                    !self.no_chdir,
                    |notice, text| self.log_for_monitor(notice, text),
                    |_| std::io::Error::other("it hands over to no other process"),
                    Vec::new(),
                )
                .context("cannot watch over the command")?
                .detached
            }
            false => detached,
        };
        if let Some(user) = &self.user {
            let found = User::parse(user).with_context(|| format!("--user={user}"))?;
            found.switch_to(Powers::Ports).with_context(|| format!("--user={user}"))?;
        }
        if let Some(path) = &self.log_file {
            let path = log_path(path.as_deref());
            log.open_file(&path).with_context(|| format!("{}: cannot open the log file", path.display()))?;
        }
        let pidfile = match self.pidfile.as_ref().filter(|_| LASTING.contains(&command)) {
            Some(path) => {
                let path = path.clone().unwrap_or_else(|| run_dir().join("ovs-ofctl.pid"));
                Some(PidFile::create(&path, self.overwrite_pidfile)?)
            }
            None => None,
        };
        Ok(Process { detached, no_chdir: self.no_chdir, unixctl: self.unixctl.clone(), _pidfile: pidfile })
    }

    /// Logs for the monitor, which has no file open while the command runs.
    fn log_for_monitor(&self, notice: Notice, text: &str) {
        let log = vlog();
        // Without the file, lines go to syslog and the console.
        let _unopened = self.log_file.as_ref().map(|path| log.open_file(&log_path(path.as_deref())));
        match notice {
            Notice::Crash => log::error!(target: "daemon_unix", "{text}"),
            Notice::End => log::info!(target: "daemon_unix", "{text}"),
        }
        log.close();
    }
}

/// The log file: the given one, or the default.
fn log_path(given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| log_dir().join("ovs-ofctl.log"), Path::to_path_buf)
}

impl Process {
    /// Opens the control socket, by default `RUNDIR/ovs-ofctl.PID.ctl`.
    ///
    /// # Errors
    /// It cannot be opened. Without the default one the command runs all the same.
    pub(super) fn control(&self) -> Result<Option<Control>> {
        match self.unixctl.as_deref() {
            Some("none") => Ok(None),
            Some(name) => Control::open(&run_dir().join(name)).map(Some),
            None => {
                sys::local::remove_stale(&run_dir(), &[("ovs-ofctl", "ctl")]);
                let path = run_dir().join(format!("ovs-ofctl.{}.ctl", std::process::id()));
                let opened = Control::open(&path);
                if let Err(error) = &opened {
                    log::warn!(target: "unixctl", "no control socket (--unixctl): {error:#}");
                }
                Ok(opened.ok())
            }
        }
    }

    /// The command waits for messages now: the one that started it may end.
    pub(super) fn ready(&mut self) -> Result<()> {
        match self.detached.take() {
            Some(detached) => detached.ready(!self.no_chdir).context("cannot go into the background"),
            None => Ok(()),
        }
    }
}
