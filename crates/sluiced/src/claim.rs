//! Finds the server of the database, at the start of a daemon that may serve its own.
//!
//! Two sources: the lock of the database file, and the listener at the default socket. An ending process still
//! accepts connections while the kernel closes its devices, and is never followed: the new process waits until it is
//! gone.
//!
//! | lock | socket | result |
//! | --- | --- | --- |
//! | ours | no listener | serve the database |
//! | another's, or ours | a running process | follow that process: an `ovsdb-server`, perhaps of another file, or another switch |
//! | another's | no listener | wait: the owner starts, ends, or is a tool |
//! | any | an ending process | wait |

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;
use sys::local;
use sys::lock::{FileLock, LockError};
use sys::process::{Stage, stage};

/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// Maximum waits.
pub(super) struct Patience {
    /// For a running process that has the lock.
    running: Duration,
    /// For an ending one.
    ending: Duration,
}

impl Patience {
    /// Enough for a stop or a start, and for the kernel to close thousands of devices.
    pub(super) const DEFAULT: Patience =
        Patience { running: Duration::from_secs(5), ending: Duration::from_secs(120) };
}

/// Server of the database.
#[derive(Debug)]
pub(super) enum Claim {
    /// This process, which now has the lock.
    Ours(FileLock),
    /// Another one, at the socket.
    Served,
}

/// Finds the server of `file` at `socket`, and waits until both sources agree.
///
/// # Errors
/// The lock cannot be taken, or not in time; `stop` requests the end of the process.
pub(super) fn claim(
    file: &Path,
    socket: &Path,
    patience: &Patience,
    stop: impl Fn() -> bool,
) -> Result<Claim> {
    let began_ms = sys::clock::machine_us() / 1000;
    let (mut logged, mut gone) = (None, None);
    loop {
        let server = local::server(socket).with_context(|| format!("{}", socket.display()))?;
        let (why, limit) = match server.map(|server| server.pid.map(|pid| (pid, stage(pid)))) {
            Some(Some((pid, Stage::Ending))) => {
                (format!("{}: process {pid} is ending and still listens", socket.display()), patience.ending)
            }
            // It may have ended in between, or left the socket to another process.
            Some(Some((pid, Stage::Gone))) if gone.replace(pid) != Some(pid) => continue,
            Some(_) => return Ok(Claim::Served),
            None => match lock(file)? {
                Ok(lock) => return Ok(Claim::Ours(lock)),
                Err((pid, held)) => {
                    let ends = stage(pid) == Stage::Ending;
                    let limit = if ends { patience.ending } else { patience.running };
                    (format!("{held}, and nobody listens at {}", socket.display()), limit)
                }
            },
        };
        if logged.as_ref() != Some(&why) {
            log::info!(target: "ovsdb_file", "{why}; waiting for it");
        }
        if stop() {
            bail!("told to end while waiting: {why}");
        }
        if sys::clock::machine_us() / 1000 - began_ms >= limit.as_millis() as u64 {
            bail!("{why}: end that process, or name the database server to follow (such as unix:PATH)");
        }
        logged = Some(why);
        std::thread::sleep(LOOK);
    }
}

/// Takes the lock; otherwise returns its owner, and the error message.
fn lock(file: &Path) -> Result<Result<FileLock, (u32, String)>> {
    let dir = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    match FileLock::lock(file) {
        Ok(lock) => Ok(Ok(lock)),
        Err(e @ LockError::Held { pid, .. }) => Ok(Err((pid, format!("the database file is in use: {e}")))),
        Err(e) => Err(e).context("the database file is in use"),
    }
}

#[cfg(test)]
mod tests;
