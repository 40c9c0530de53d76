//! Locks a file by a lock file beside it, like `ovsdb-server` and `ovsdb-tool`: for `DIR/NAME`, symbolic
//! links followed, a POSIX record lock (fcntl(2) `F_SETLK`, exclusive, from 0 without end) on
//! `DIR/.NAME.~lock~`, mode 0600, which stays after the unlock.
//!
//! POSIX locks belong to the process and are lost when it closes any descriptor of the file. So this module
//! tracks the process's locks and never opens a lock file twice; no other code may open one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Maximum symbolic links followed.
const MAX_LINKS: usize = 10;

/// Device and inode of the lock files locked by this process.
static HELD: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Reason for a failed lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{path}: locked by process {pid}")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder.
        pid: u32,
    },
    /// This process holds it already.
    #[error("{path}: locked by this process already")]
    HeldHere {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("{path}: cannot lock: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
    id: (u64, u64),
}

impl FileLock {
    /// Locks `protected` (which need not exist), without waiting.
    pub fn lock(protected: &Path) -> Result<FileLock, LockError> {
        let path = lock_path(protected);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let mut held = held();
        // Checked before opening: closing it again would release our lock.
        if std::fs::metadata(&path).is_ok_and(|m| held.contains(&(m.dev(), m.ino()))) {
            return Err(LockError::HeldHere { path });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if let Err(e) = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            let e = io::Error::from(e);
            let taken = matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
            return Err(match holder(&file).ok().flatten().filter(|_| taken) {
                Some(pid) => LockError::Held { path, pid },
                None => failed(e),
            });
        }
        let meta = file.metadata().map_err(failed)?;
        let id = (meta.dev(), meta.ino());
        held.push(id);
        drop(held);
        Ok(FileLock { file, path, id })
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let mut held = held();
        // Unlocked here, not by the later drop of the file: in between another lock attempt must not believe
        // it free.
        let _ = fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock);
        held.retain(|id| *id != self.id);
    }
}

fn held() -> MutexGuard<'static, Vec<(u64, u64)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other process that holds an exclusive lock on the file, if any.
pub(crate) fn holder(file: &File) -> io::Result<Option<u32>> {
    let asked = Flock::from(FlockType::WriteLock);
    let found = fcntl_getlk(file, &asked)?;
    Ok(found.and_then(|l| l.pid).map(|pid| pid.as_raw_nonzero().get() as u32))
}

/// Resolves symbolic links in the last component of a path.
pub fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// The lock file of `protected`.
fn lock_path(protected: &Path) -> PathBuf {
    let path = follow_links(protected);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".~lock~");
    path.with_file_name(name)
}
