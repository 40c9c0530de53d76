//! Leftovers of a process that died without cleaning up: namespaces with running programs, and folders.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{names, netns};

/// Required time without new leftovers: a child of the dead process (`ip netns add`) can outlive it and
/// create one more.
const QUIET: Duration = Duration::from_secs(1);

/// Names of the namespaces and folders left by process `pid`.
pub fn left_by(pid: u32) -> Vec<String> {
    [Path::new(netns::FOLDER), &std::env::temp_dir()].into_iter().flat_map(|f| owned(f, pid)).collect()
}

fn owned(folder: &Path, pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| names::owner(name) == Some(pid)).collect()
}

/// Removes the leftovers of the dead process `pid`, repeatedly until none has appeared for a second. Programs
/// go first: a running one writes into the folder being removed.
///
/// # Errors
/// If leftovers remain after `limit`; the error names them.
pub fn remove_left_by(pid: u32, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let mut quiet_since = start;
    while quiet_since.elapsed() < QUIET {
        let left = left_by(pid);
        if !left.is_empty() {
            if start.elapsed() >= limit {
                bail!("process {pid} left what cannot be removed: {}", left.join(", "));
            }
            owned(Path::new(netns::FOLDER), pid).iter().for_each(|name| netns::remove(name));
            let folders = std::env::temp_dir();
            for name in owned(&folders, pid) {
                let _tried_again = std::fs::remove_dir_all(folders.join(name));
            }
            quiet_since = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
