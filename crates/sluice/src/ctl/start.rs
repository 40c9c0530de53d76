//! The start of the daemon, and its version.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::options::Options;
use super::process::{self, Found};
use super::{DAEMON, PROGRAM, Places, identity, report};
use crate::appctl;
use crate::remote::{Deadline, complain, print};

/// Maximum wait for the reply of `version`.
const VERSION_LIMIT: Duration = Duration::from_secs(2);
/// Maximum wait for a handover, longer than that of the daemon for its successor.
const HANDOVER_LIMIT: Duration = Duration::from_secs(180);

/// The program of the daemon: beside this one, as in a build folder, or in `sbin` beside its `bin`; else on the PATH.
pub(super) fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("/"));
    let beside = [folder.join(DAEMON), folder.with_file_name("sbin").join(DAEMON)];
    beside.into_iter().find(|path| path.is_file()).unwrap_or(DAEMON.into())
}

/// Arguments of the daemon, as ovs-ctl gives them.
pub(super) fn arguments(options: &Options, places: &Places) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    if options.no_ovsdb_server {
        all.push(format!("unix:{}", places.socket().display()).into());
    }
    all.extend(["-vconsole:emer", "-vsyslog:err", "-vfile:info"].map(OsString::from));
    if !options.no_mlockall {
        all.push("--mlockall".into());
    }
    let named = [
        ("--user", &options.ovs_user),
        ("--system-type", &options.system_type),
        ("--system-version", &options.system_version),
    ];
    for (name, value) in named {
        all.extend(value.as_ref().map(|value| OsString::from(format!("{name}={value}"))));
    }
    all.extend(options.ovs_vswitchd_options.split_ascii_whitespace().map(OsString::from));
    all.push("--no-chdir".into());
    for (name, path) in
        [("--log-file=", places.log.join("ovs-vswitchd.log")), ("--pidfile=", places.pid_file())]
    {
        let mut option = OsString::from(name);
        option.push(path);
        all.push(option);
    }
    all.push("--detach".into());
    if !options.no_monitor {
        all.push("--monitor".into());
    }
    all
}

fn make_folder(path: &Path, mode: u32) -> Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path).with_context(|| path.display().to_string())
}

/// Starts the daemon; whether it runs.
pub(super) fn start(options: &Options, places: &Places) -> Result<bool> {
    if let Found::Running(daemon) = process::find(places)? {
        return Ok(match daemon.is_ours() {
            true => report(&format!("{DAEMON} is already running"), true),
            false => report(&format!("Starting {DAEMON}: {daemon}"), false),
        });
    }
    let folders =
        [(&places.run, 0o755), (&places.log, 0o750), (&places.database, 0o755), (&options.daemon_cwd, 0o755)];
    for (path, mode) in folders {
        make_folder(path, mode)?;
    }
    let mut command = Command::new("nice");
    command.arg("-n").arg(options.ovs_vswitchd_priority.to_string()).arg(program());
    command.args(arguments(options, places)).current_dir(&options.daemon_cwd);
    command.env("OVS_RUNDIR", &places.run).env("OVS_DBDIR", &places.database);
    let ended = command.status().context("cannot run nice")?;
    Ok(report(&format!("Starting {DAEMON}"), ended.success()) && record(options, places)?)
}

/// Records and removes in the database of a new daemon as asked.
fn record(options: &Options, places: &Places) -> Result<bool> {
    if !options.no_ovsdb_server && !identity::record(options, places)? {
        return Ok(false);
    }
    if options.delete_bridges {
        identity::delete_bridges()?;
    }
    if options.delete_transient_ports {
        identity::delete_transient_ports()?;
    }
    if !options.no_record_hostname {
        identity::record_hostname_later(options.no_full_hostname)?;
    }
    Ok(true)
}

/// Hands a daemon that runs as `options` would start it over to a new process. Ends and starts another one, and one that
/// refuses or does not answer.
pub(super) fn restart(options: &Options, places: &Places) -> Result<bool> {
    let hands_over = !options.delete_bridges
        && matches!(process::find(places)?, Found::Running(daemon) if daemon.is_ours() && daemon.is_as_started(options, places))
        && running_version().is_some();
    let handed_over = hands_over
        && reload(places).unwrap_or_else(|error| {
            complain(PROGRAM, &format!("{error:#}"));
            false
        });
    if handed_over {
        return record(options, places);
    }
    Ok(process::stop(places)? && start(options, places)?)
}

/// Hands the running switch over to a new process of the installed program; whether that has the role.
pub(super) fn reload(places: &Places) -> Result<bool> {
    match process::find(places)? {
        Found::Running(daemon) if daemon.is_ours() => {}
        Found::Running(daemon) => return Ok(report(&format!("Handing over {DAEMON}: {daemon}"), false)),
        Found::Stale(_) | Found::None => return Ok(report(&format!("{DAEMON} is not running"), false)),
    }
    // A program of the PATH has the name that the daemon was started by.
    let program = program().is_absolute().then(|| program().display().to_string());
    let arguments: Vec<String> = program.into_iter().collect();
    let deadline = Deadline::within(HANDOVER_LIMIT);
    let answer = appctl::call(appctl::DEFAULT_TARGET, "sluice/handover", &arguments, deadline)?;
    if let appctl::Answer::Error(why) = &answer {
        complain(PROGRAM, why.trim());
    }
    Ok(report(&format!("Handing over {DAEMON}"), matches!(answer, appctl::Answer::Text(_))))
}

/// The version of the daemon, if one answers.
fn running_version() -> Option<String> {
    let deadline = Deadline::within(VERSION_LIMIT);
    match appctl::call(appctl::DEFAULT_TARGET, "sluice/version", &[], deadline) {
        Ok(appctl::Answer::Text(version)) => Some(version),
        Ok(appctl::Answer::Error(_)) | Err(_) => None,
    }
}

/// Prints the version of the installed daemon, and of a running one with another.
pub(super) fn version() -> Result<bool> {
    let path = program();
    let output = Command::new(&path)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", path.display()))?;
    let installed = String::from_utf8_lossy(&output.stdout);
    print(&installed);
    if let Some(running) = running_version()
        && !installed.lines().any(|line| line == running.trim())
    {
        print(&format!("running: {running}"));
    }
    Ok(output.status.success())
}
