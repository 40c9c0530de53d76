//! The options of the daemon, and how it ends.

use dpif::DummyMode;
use dpif_netdev::ablation::Ablation;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Version of the stock switch that tools find here.
pub const COMPATIBLE: &str = "ovs-vswitchd (Open vSwitch) 3.5.4";

/// Options of the daemon.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Name in logs and default files: that of `ovs-vswitchd`, so that stock tools find the daemon.
    pub name: String,
    /// How it was started.
    pub program: Program,
    /// Target of the database; `None` for the default socket, or our own database if there is no listener.
    pub remote: Option<String>,
    /// Whether it may serve its own database.
    pub may_embed: bool,
    /// Targets of its own database besides the default socket and the managers.
    pub remotes: Vec<String>,
    /// Sockets and pid file (`OVS_RUNDIR`).
    pub run_dir: PathBuf,
    /// Log files (`OVS_LOGDIR`).
    pub log_dir: PathBuf,
    /// Database file (`OVS_DBDIR`).
    pub db_dir: PathBuf,
    /// `system-id.conf` and the like (`OVS_SYSCONFDIR`).
    pub config_dir: PathBuf,
    /// Pid file, if wanted.
    pub pid_file: Option<PathBuf>,
    /// Take over a pid file held by another process.
    pub overwrite_pid_file: bool,
    /// Detach into the background.
    pub detach: bool,
    /// Run a monitor process that restarts the daemon after a crash.
    pub monitor: bool,
    /// Stay in the start directory.
    pub no_chdir: bool,
    /// Log file, if wanted.
    pub log_file: Option<PathBuf>,
    /// Control socket other than the default.
    pub unixctl: Option<PathBuf>,
    /// Log levels to set.
    pub verbose: Vec<String>,
    /// Syslog daemon, as [`vlog::Vlog::set_syslog_method`] reads it.
    pub syslog_method: Option<String>,
    /// A second one, by address and port.
    pub syslog_target: Option<String>,
    /// Lock all memory.
    pub lock_memory: bool,
    /// Confine threads to what they need.
    pub confine: bool,
    /// User to run as, with an optional group after a colon.
    pub user: Option<String>,
    /// Type of this system and its version, in place of those of its files.
    pub system: (Option<String>, Option<String>),
    /// Degree of dummy use.
    pub dummies: DummyMode,
    /// Simulated cores, by their NUMA nodes; empty for the machine's own.
    pub dummy_numa: Vec<u16>,
    /// Bridges of type `system` use the kernel's datapath, if available.
    pub kernel: bool,
    /// Follow the kernel's routes.
    pub system_routes: bool,
    /// Disabled parts of the fast path.
    pub ablation: Ablation,
    /// Keys and certificates for TLS; a row of `SSL` replaces these files.
    pub tls: tls::Settings,
}

/// How the daemon is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exit {
    /// Remove persistent state.
    pub cleanup: bool,
    /// A successor forwards.
    pub handed_over: bool,
}

/// How the process was started, so that a successor can be started likewise.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// The first argument: its name.
    pub name: OsString,
    /// The other arguments.
    pub arguments: Vec<OsString>,
    /// Its directory at the start, if known.
    pub directory: Option<PathBuf>,
}

impl Program {
    /// A command that starts it likewise.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.arg0(&self.name).args(&self.arguments);
        if let Some(directory) = self.directory.as_ref().filter(|directory| directory.is_dir()) {
            command.current_dir(directory);
        }
        command
    }
}
