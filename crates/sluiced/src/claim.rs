//! Finds the server of the database, for a daemon that may serve its own: at the start, and when its server is lost.
//!
//! Two sources: the lock of the database file, and the listener at the default socket. An ending process still
//! accepts connections while the kernel closes its devices, and is never followed: the new process waits until it is
//! gone. It does not connect again meanwhile, since each connection takes a place in the backlog until that is full.
//!
//! | lock | socket | result |
//! | --- | --- | --- |
//! | ours | no listener | serve the database |
//! | another's, or ours | a running process | follow that process: an `ovsdb-server`, perhaps of another file, or another switch |
//! | another's | no listener | wait: the owner starts, ends, or is a tool |
//! | any | an ending process | wait |
//! | a running process's | a full backlog | follow the listener: it is busy or stopped |
//! | an ending process's | a full backlog | wait |
//! | ours | a full backlog | wait until its process is known; follow it if that lasts |

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::local::{self, Server};
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

/// Result of a look at both sources.
pub(super) enum Look {
    /// They agree.
    Found(Claim),
    /// They do not agree yet.
    Wait(Pause),
}

/// Reason to look again later.
pub(super) struct Pause {
    why: String,
    /// The process waited for is ending.
    ending: bool,
    /// Server to follow when the wait is over; without one, the start fails.
    or_follow: bool,
}

/// Looks for the server of the database.
#[derive(Debug)]
pub(super) struct Seeker {
    file: PathBuf,
    socket: PathBuf,
    /// The ending process that listens.
    ending: Option<u32>,
    /// The process that listened and was gone.
    gone: Option<u32>,
}

impl Seeker {
    /// For the database of `file`, served at `socket`.
    pub(super) fn new(file: PathBuf, socket: PathBuf) -> Seeker {
        Seeker { file, socket, ending: None, gone: None }
    }

    /// Database file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Default socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Looks once, without waiting.
    ///
    /// # Errors
    /// The socket cannot be reached, or the file not be locked.
    pub(super) fn look(&mut self) -> Result<Look> {
        if let Some(pid) = self.ending.filter(|pid| stage(*pid) == Stage::Ending) {
            return Ok(self.ends(pid));
        }
        self.ending = None;
        let server = local::server(&self.socket).with_context(|| format!("{}", self.socket.display()))?;
        match server.map(|server| (server, as_process(server).map(stage))) {
            Some((Server::Process(pid), Some(Stage::Ending))) => {
                self.ending = Some(pid);
                Ok(self.ends(pid))
            }
            // It may have ended in between, or left the socket to another process.
            Some((Server::Process(pid), Some(Stage::Gone))) if self.gone.replace(pid) != Some(pid) => {
                self.look()
            }
            Some((Server::Process(_) | Server::Hidden, _)) => Ok(Look::Found(Claim::Served)),
            Some((Server::Full, _)) => self.look_behind_a_full_backlog(),
            None => self.look_at_file(),
        }
    }

    /// Looks at the lock alone, when no other process can listen.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub(super) fn look_at_file(&self) -> Result<Look> {
        Ok(match lock(&self.file)? {
            Ok(lock) => Look::Found(Claim::Ours(lock)),
            Err((pid, held)) => Look::Wait(Pause {
                why: format!("{held}, and no process listens at {}", self.socket.display()),
                ending: stage(pid) == Stage::Ending,
                or_follow: false,
            }),
        })
    }

    fn ends(&self, pid: u32) -> Look {
        let why = format!("{}: process {pid} is ending and still listens", self.socket.display());
        Look::Wait(Pause { why, ending: true, or_follow: false })
    }

    /// The listener's process is unknown: the owner of the lock stands for it.
    fn look_behind_a_full_backlog(&self) -> Result<Look> {
        let full = format!("{}: the listener does not accept connections", self.socket.display());
        // Dropped at once, if free: the listener may need it.
        Ok(match lock(&self.file)?.map(drop) {
            Err((pid, held)) if stage(pid) == Stage::Ending => {
                Look::Wait(Pause { why: format!("{full}; {held}"), ending: true, or_follow: false })
            }
            Err(_) => Look::Found(Claim::Served),
            Ok(()) => Look::Wait(Pause { why: full, ending: false, or_follow: true }),
        })
    }
}

fn as_process(server: Server) -> Option<u32> {
    match server {
        Server::Process(pid) => Some(pid),
        Server::Hidden | Server::Full => None,
    }
}

/// Finds the server of the database, and waits until both sources agree.
///
/// # Errors
/// The lock cannot be taken, or not in time; `stop` requests the end of the process.
pub(super) fn claim(seeker: &mut Seeker, patience: &Patience, stop: impl Fn() -> bool) -> Result<Claim> {
    let began_ms = sys::clock::machine_us() / 1000;
    let mut logged = None;
    loop {
        let Pause { why, ending, or_follow } = match seeker.look()? {
            Look::Found(claim) => return Ok(claim),
            Look::Wait(pause) => pause,
        };
        if logged.as_ref() != Some(&why) {
            log::info!(target: "ovsdb_file", "{why}; waiting for it");
        }
        if stop() {
            bail!("terminated while waiting: {why}");
        }
        let limit = if ending { patience.ending } else { patience.running };
        if sys::clock::machine_us() / 1000 - began_ms >= limit.as_millis() as u64 {
            if or_follow {
                return Ok(Claim::Served);
            }
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
