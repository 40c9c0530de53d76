//! Facts of this system in the row of `Open_vSwitch`, as ovs-ctl records them. The daemon itself records versions, the type of
//! the system, and an identity in a new database.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::options::Options;
use super::{PROGRAM, Places, report};
use crate::vsctl;

/// Maximum wait for the database and for the switch, in seconds.
const TIMEOUT: &str = "--timeout=60";

fn vsctl<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Result<String> {
    let words: Vec<String> =
        std::iter::once(TIMEOUT.to_string()).chain(words.into_iter().map(Into::into)).collect();
    vsctl::answer(PROGRAM, &words)
}

/// A value as a string of the database, whatever characters it has.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Words that set the pairs.
pub(super) fn words(options: &Options, system_id: &str, run_dir: &str) -> Vec<String> {
    let mut all: Vec<String> = ["--no-wait", "set", "Open_vSwitch", "."].map(String::from).into();
    let own = [("system-id", system_id), ("rundir", run_dir)];
    let given = options.external_ids.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.extend(
        own.into_iter()
            .chain(given)
            .map(|(key, value)| format!("external-ids:{}={}", quoted(key), quoted(value))),
    );
    all
}

/// Records identity and folder of sockets; whether it is done.
pub(super) fn record(options: &Options, places: &Places) -> Result<bool> {
    let file = places.settings.join("system-id.conf");
    let system_id = match options.system_id.as_str() {
        // The daemon has written it.
        "random" => std::fs::read_to_string(&file).with_context(|| file.display().to_string())?,
        given => given.to_string(),
    };
    let done = vsctl(words(options, system_id.trim(), &places.run.to_string_lossy()));
    report("Configuring Open vSwitch system IDs", done.is_ok());
    done.map(|_| true)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty())
}

/// Words that run a command for each name, in one transaction.
pub(super) fn each<'a>(command: &[&str], names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.flat_map(|name| ["--"].iter().chain(command).copied().chain([name])).map(String::from).collect()
}

/// Deletes all bridges, and waits for the switch.
pub(super) fn delete_bridges() -> Result<()> {
    let words = each(&["--if-exists", "del-br"], lines(&vsctl(["list-br"])?));
    if words.is_empty() { Ok(()) } else { vsctl(words).map(drop) }
}

/// Deletes the transient ports, and waits for the switch.
pub(super) fn delete_transient_ports() -> Result<()> {
    let found = vsctl(["--bare", "--columns=name", "find", "Port", "other_config:transient=true"])?;
    let words = each(&["--if-exists", "del-port"], lines(&found));
    if words.is_empty() { Ok(()) } else { vsctl(words).map(drop) }
}

/// The name of this machine: with its domain, if a name server or /etc/hosts knows it.
fn hostname(full: bool) -> Result<String> {
    if full
        && let Ok(output) = Command::new("hostname").arg("-f").stderr(Stdio::null()).output()
        && output.status.success()
    {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    let path = "/proc/sys/kernel/hostname";
    Ok(std::fs::read_to_string(path).context(path)?.trim().to_string())
}

/// Records the name of this machine, unless there is one.
pub(super) fn record_hostname(full: bool) -> Result<()> {
    let name = hostname(full)?;
    vsctl(["--no-wait", "add", "Open_vSwitch", ".", "external-ids", &format!("hostname={}", quoted(&name))])
        .map(drop)
}

/// As [`record_hostname`], in a process of its own for a full name: name servers may take long.
pub(super) fn record_hostname_later(short: bool) -> Result<()> {
    if short {
        return record_hostname(false);
    }
    let own = std::env::current_exe().context("cannot find the own program")?;
    let mut command = Command::new(own);
    command.args(["ctl", "record-hostname-if-not-set"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).context("cannot record the name of this machine")
}
