//! The guard: a second process of this program that cleans up if the first ends in any way (`Ctrl-C`, `kill
//! -9`). It waits on a pipe, whose data name further things to restore beside namespaces, folders and
//! daemons.

use crate::hugepages;
use anyhow::{Context, Result};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum time for the measuring process to disappear after its end of the pipe has closed.
const GONE_LIMIT: Duration = Duration::from_secs(20);
/// Maximum time for removing the leftovers of that process.
const REMOVE_LIMIT: Duration = Duration::from_secs(120);

/// The guard, seen from the process that it watches.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts it, in its own process group so that `Ctrl-C` does not reach it.
    pub(crate) fn start() -> Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        let pid = std::process::id().to_string();
        command.args(["--guard", &pid]).stdin(Stdio::piped()).process_group(0);
        Ok(Guard(command.spawn().context("cannot start the guard")?))
    }

    /// Sends the number of 2 MB pages to restore; `None`: none any more.
    pub(crate) fn send(&self, pages: Option<u64>) -> Result<()> {
        let mut pipe = self.0.stdin.as_ref().context("the guard has no pipe")?;
        let word = pages.map_or_else(|| "-".to_string(), |n| n.to_string());
        writeln!(pipe, "hugepages {word}").context("the guard is gone")
    }
}

/// The last number of pages received.
pub(crate) fn pages_to_restore(notes: &str) -> Option<u64> {
    notes.lines().filter_map(|l| l.strip_prefix("hugepages ")).next_back()?.parse().ok()
}

/// The guard's part: waits until the pipe from `pid` closes and the process is gone, then removes its
/// leftovers.
pub(crate) fn keep_guard(pid: u32) -> Result<()> {
    let mut notes = String::new();
    let _ended_either_way = std::io::stdin().read_to_string(&mut notes);
    let path = format!("/proc/{pid}");
    testkit::wait_for(GONE_LIMIT, "the end of the measurement", || !Path::new(&path).exists())?;
    let removed = testkit::remove_left_by(pid, REMOVE_LIMIT);
    pages_to_restore(&notes).map_or(Ok(()), hugepages::set).and(removed)
}
