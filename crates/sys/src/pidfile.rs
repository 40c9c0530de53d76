//! A pid file in the form of OVS daemons and tools: the process id in decimal and a newline, the file locked
//! by that process (fcntl(2) `F_SETLK`) while it lives. An unlocked pid file is stale.
//!
//! POSIX locks belong to the process: create the file after the last fork, and open it again only by
//! [`running`], which tracks those of this process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::lock::holder;
use crate::process::{Stage, stage};

const PLACE_ATTEMPTS: usize = 10;
/// Longest wait for an ending process, whose files the kernel still closes, perhaps after thousands of devices.
const ENDING_MAX: Duration = Duration::from_secs(120);
/// Longest wait for another process: `ovs-vswitchd` answers `exit` shortly before it removes its file.
const LEAVING_MAX: Duration = Duration::from_secs(1);
/// Polling interval of both.
const LOOK: Duration = Duration::from_millis(10);

/// Device and inode of the pid files of this process.
static OWN: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<(u64, u64)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reason why there is no pid file.
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// A live process holds it.
    #[error("{path}: already running as process {pid}")]
    Running {
        /// The pid file.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// It cannot be created.
    #[error("{path}: cannot make the pid file: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The pid file of this process; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    /// Open while the lock is held.
    file: File,
    path: PathBuf,
    pid: u32,
}

impl PidFile {
    /// Creates the file. Replaces a stale one; replaces that of a live process only with `overwrite`. Waits for the end
    /// of a process that was killed or is exiting, two minutes at most, and a second for that of another one.
    ///
    /// # Errors
    /// A live process holds it, or it cannot be created.
    pub fn create(path: &Path, overwrite: bool) -> Result<PidFile, PidFileError> {
        let failed = |source| PidFileError::Io { path: path.to_owned(), source };
        // Complete and locked before it has its name, so a reader never sees a partial file.
        let pid = std::process::id();
        let mut draft = path.to_owned().into_os_string();
        draft.push(format!(".tmp{pid}"));
        let draft = PathBuf::from(draft);
        let file = write_locked(&draft, pid).map_err(failed)?;
        let placed = if overwrite {
            std::fs::rename(&draft, path).map_err(failed)
        } else {
            let placed = place(&draft, path);
            let _ = std::fs::remove_file(&draft);
            placed
        };
        placed?;
        let made = file.metadata().map_err(failed)?;
        own().push((made.dev(), made.ino()));
        Ok(PidFile { file, path: path.to_owned(), pid })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Ok(made) = self.file.metadata() {
            own().retain(|id| *id != (made.dev(), made.ino()));
        }
        // Not in a child forked later, and not if another process has put its own file in place.
        if self.pid == std::process::id() && is_same(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The live process that holds the pid file, if any.
pub fn running(path: &Path) -> io::Result<Option<u32>> {
    // Opening and closing a pid file of this process would release its lock.
    if std::fs::metadata(path).is_ok_and(|m| own().contains(&(m.dev(), m.ino()))) {
        return Ok(Some(std::process::id()));
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let Some(locker) = holder(&file)? else { return Ok(None) };
    let mut text = String::new();
    Read::by_ref(&mut file).take(64).read_to_string(&mut text)?;
    match text.trim().parse::<u32>() {
        Ok(pid) if pid == locker => Ok(Some(pid)),
        _ => {
            let what = format!("names process {:?}, but process {locker} has it locked", text.trim());
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// As [`running`], once the holder has had the time to end.
fn still_running(path: &Path) -> io::Result<Option<u32>> {
    let began = Instant::now();
    loop {
        match running(path)? {
            Some(pid) if pid != std::process::id() => {
                let max = if stage(pid) == Stage::Ending { ENDING_MAX } else { LEAVING_MAX };
                if began.elapsed() >= max {
                    return Ok(Some(pid));
                }
                std::thread::sleep(LOOK);
            }
            found => return Ok(found),
        }
    }
}

/// Renames the draft if there is no pid file or a stale one.
fn place(draft: &Path, path: &Path) -> Result<(), PidFileError> {
    let failed = |source| PidFileError::Io { path: path.to_owned(), source };
    for _ in 0..PLACE_ATTEMPTS {
        if let Some(pid) = still_running(path).map_err(failed)? {
            return Err(PidFileError::Running { path: path.to_owned(), pid });
        }
        remove_stale(path).map_err(failed)?;
        match std::fs::hard_link(draft, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map_err(failed),
        }
    }
    Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)))
}

/// Removes an unlocked pid file. Locks it meanwhile, so that of two concurrent callers only one removes it,
/// and not the other's new file.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_same(&file, path) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

fn is_same(file: &File, path: &Path) -> bool {
    let both = file.metadata().ok().zip(std::fs::metadata(path).ok());
    both.is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn write_locked(path: &Path, pid: u32) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    writeln!(file, "{pid}")?;
    Ok(file)
}
