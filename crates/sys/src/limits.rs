//! Limits of the process.

use std::io;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that may be open towards `wanted`: beyond the hard limit where the process may, up to it
/// otherwise. Returns the limit as it is then (`u64::MAX` when there is none).
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return Ok(current);
    }
    let hard = now.maximum.unwrap_or(u64::MAX);
    let more = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    if setrlimit(Resource::Nofile, more).is_ok() {
        return Ok(wanted);
    }
    let most = wanted.min(hard);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum })?;
    Ok(most)
}

/// Has the kernel write no core of this process and those that it starts.
pub fn no_core_dumps() -> io::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }).map_err(io::Error::from)
}

/// Keeps all memory of the process, present and future, from being swapped out, from the moment it is used: what is only reserved
/// takes no memory (`MCL_ONFAULT`; the allocator reserves a gigabyte at a time).
pub fn lock_memory() -> io::Result<()> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(io::Error::from)
}
