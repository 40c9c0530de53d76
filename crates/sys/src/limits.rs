//! Limits of the process.

use std::io;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files towards `wanted`: beyond the hard limit if the process may, up to it
/// otherwise. Returns the resulting limit (`u64::MAX` for none).
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

/// Disables core dumps of this process and its children.
pub fn no_core_dumps() -> io::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }).map_err(io::Error::from)
}

/// Locks all memory of the process, present and future, from the moment of its use: reserved memory is not
/// populated (`MCL_ONFAULT`; the allocator reserves a gigabyte at a time).
pub fn lock_memory() -> io::Result<()> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(io::Error::from)
}
