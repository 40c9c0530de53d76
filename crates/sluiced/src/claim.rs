//! Who serves the database, found at the start of a daemon that may serve its own.
//!
//! Two things tell: the lock of the database file, and who listens at the default socket. A process on its way out still accepts
//! connections for as long as the kernel closes its devices, and is never followed: the new one waits until it is gone.
//!
//! | lock | socket | answer |
//! | --- | --- | --- |
//! | ours | nobody | ours |
//! | another's, or ours | a process that runs | that process serves: an `ovsdb-server`, perhaps of another file, or another switch |
//! | another's | nobody | wait: it starts, ends, or is a tool |
//! | any | a process that ends | wait |

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;
use sys::local;
use sys::lock::{FileLock, LockError};
use sys::process::{Stage, stage};

/// How often it is looked again.
const LOOK: Duration = Duration::from_millis(20);

/// How long is waited.
pub(super) struct Patience {
    /// For a process that runs and has the lock.
    running: Duration,
    /// For one that ends.
    ending: Duration,
}

impl Patience {
    /// Enough for a stop or a start; and for the kernel to close thousands of devices.
    pub(super) const DEFAULT: Patience =
        Patience { running: Duration::from_secs(5), ending: Duration::from_secs(120) };
}

/// Who serves.
#[derive(Debug)]
pub(super) enum Claim {
    /// This process, which has the lock now.
    Ours(FileLock),
    /// Another one, at the socket.
    Served,
}

/// Finds out who serves `file` at `socket`, and waits until both tell the same.
///
/// # Errors
/// The lock cannot be had, or not in time; `stop` says that the process is to end.
pub(super) fn claim(
    file: &Path,
    socket: &Path,
    patience: &Patience,
    stop: impl Fn() -> bool,
) -> Result<Claim> {
    let began_ms = sys::clock::machine_us() / 1000;
    let (mut told, mut gone) = (None, None);
    loop {
        let server = local::server(socket).with_context(|| format!("{}", socket.display()))?;
        let (why, limit) = match server.map(|server| server.pid.map(|pid| (pid, stage(pid)))) {
            Some(Some((pid, Stage::Ending))) => {
                (format!("{}: process {pid} is ending and still listens", socket.display()), patience.ending)
            }
            // It may have ended in between; else it left the socket to another process.
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
        if told.as_ref() != Some(&why) {
            log::info!(target: "ovsdb_file", "{why}; waiting for it");
        }
        if stop() {
            bail!("told to end while waiting: {why}");
        }
        if sys::clock::machine_us() / 1000 - began_ms >= limit.as_millis() as u64 {
            bail!("{why}: end that process, or name the database server to follow (such as unix:PATH)");
        }
        told = Some(why);
        std::thread::sleep(LOOK);
    }
}

/// Takes the lock; else who has it, and the words for it.
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
