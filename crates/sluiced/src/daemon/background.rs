//! [`Behind`]: the daemon in the background, and under a monitor.

use super::OPEN_FILES;
use crate::config::DaemonConfig;
use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use sys::daemon::Detached;
use sys::fdstore::{self, FdStore, Stored};
use sys::monitor::{Monitored, Notice};
use vlog::vlog;

/// The place of the daemon behind its caller and its monitor.
#[derive(Default)]
pub(super) struct Behind {
    /// In the background.
    pub(super) detached: Option<Detached>,
    /// The monitor, as a holder of descriptors.
    pub(super) monitor: Option<FdStore>,
    /// Descriptors of the last process.
    pub(super) stored: Vec<Stored>,
}

impl Behind {
    /// Goes into the background and under a monitor, as configured. Only the daemon returns.
    pub(super) fn go(config: &DaemonConfig) -> Result<Behind> {
        let stored = fdstore::inherited();
        let detached = match config.detach {
            true => Some(sys::daemon::detach().context("cannot go into the background")?),
            false => None,
        };
        if !config.monitor {
            return Ok(Behind { detached, monitor: None, stored });
        }
        // The monitor keeps few descriptors then; the daemon says so.
        let _ = sys::limits::raise_open_files(OPEN_FILES);
        let log = |notice, text: &str| log_for_monitor(config, notice, text);
        let start_over = |stored: &[Stored]| {
            let mut command = config.program.command();
            fdstore::pass_on(&mut command, stored).map_or_else(|e| e, |()| command.exec())
        };
        let monitored =
            sys::monitor::monitor(&config.name, detached, !config.no_chdir, log, start_over, stored)
                .context("cannot watch over the daemon")?;
        let Monitored { detached, store, stored } = monitored;
        Ok(Behind { detached, monitor: Some(store), stored })
    }
}

/// Logs for the monitor, which has no log file open while the daemon runs.
fn log_for_monitor(config: &DaemonConfig, notice: Notice, text: &str) {
    let log = vlog();
    log.set_program(&config.name);
    // Without the file and a console, use syslog.
    let _ = config.log_file.as_ref().map(|path| log.open_file(path));
    let _ = if config.detach { log.set("console:off") } else { Ok(()) };
    match notice {
        Notice::Crash => log::error!(target: "daemon_unix", "{text}"),
        Notice::End => log::info!(target: "daemon_unix", "{text}"),
    }
    log.close();
}
