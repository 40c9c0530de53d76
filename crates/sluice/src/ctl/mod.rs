//! `sluice ctl`: starts and stops the daemon on machines without systemd, with the words and effects of ovs-ctl(8).
//!
//! One process is the switch and its database server, so one line stands where ovs-ctl prints two. A process is
//! signalled only if it holds the lock of the pid file and its program is `sluiced`.

mod identity;
mod kernel;
mod options;
mod preflight;
mod process;
mod start;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Result;

use options::Action;
pub(crate) use options::Options;
use process::Found;

use crate::remote::{EXIT_TIMED_OUT, TimedOut, complain, print, run_dir};

const PROGRAM: &str = "sluice ctl";
/// Name of the daemon, in messages.
const DAEMON: &str = "sluiced";

/// Folders of the daemon, which it finds by the same variables.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Places {
    /// Sockets and pid files.
    run: PathBuf,
    log: PathBuf,
    /// The database, `conf.db`.
    database: PathBuf,
    /// `system-id.conf` and others.
    settings: PathBuf,
}

impl Places {
    fn find(options: &Options) -> Result<Places> {
        let folder = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
        let settings = folder("OVS_SYSCONFDIR").unwrap_or("/etc".into()).join("openvswitch");
        let database = match options.database_folder()? {
            Some(given) => given,
            None => folder("OVS_DBDIR").unwrap_or(settings.clone()),
        };
        let log = folder("OVS_LOGDIR").unwrap_or("/var/log/openvswitch".into());
        Ok(Places { run: run_dir(), log, database, settings })
    }

    fn pid_file(&self) -> PathBuf {
        self.run.join("ovs-vswitchd.pid")
    }

    fn socket(&self) -> PathBuf {
        self.run.join("db.sock")
    }
}

/// Prints a line in the form of ovs-ctl; returns `good`.
fn report(text: &str, good: bool) -> bool {
    print(&if good { format!("{text}.\n") } else { format!("{text} ... failed!\n") });
    good
}

/// Runs it; returns the exit code: 0 done, 1 failed or, for `status`, not running.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(good) => u8::from(!good),
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let places = Places::find(options)?;
    match options.action {
        Action::Start => start::start(options, &places),
        Action::Stop => process::stop(&places),
        Action::Restart => start::restart(options, &places),
        Action::Reload => start::reload(&places),
        Action::Status => status(&places),
        Action::Version => start::version(),
        Action::Check => preflight::check(options, &places),
        Action::LoadKmod => kernel::load(),
        Action::ForceReloadKmod => kernel::refuse_reload(),
        Action::DeleteTransientPorts => identity::delete_transient_ports().map(|()| true),
        Action::RecordHostnameIfNotSet => identity::record_hostname(!options.no_full_hostname).map(|()| true),
    }
}

fn status(places: &Places) -> Result<bool> {
    let (text, good) = match process::find(places)? {
        Found::Running(daemon) => (daemon.to_string(), daemon.is_ours()),
        Found::Stale(path) => (format!("Pidfile for {DAEMON} ({}) is stale", path.display()), false),
        Found::None => (format!("{DAEMON} is not running"), false),
    };
    print(&format!("{text}\n"));
    Ok(good)
}
