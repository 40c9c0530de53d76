//! Confinement of threads: each kind of thread has a list of system calls (seccomp), of capabilities, and of files (Landlock).
//!
//! A confined thread never gets more, and the threads that it starts inherit its confinement. So do processes, and with them a
//! newer version of the program: threads that start processes, or threads of other kinds, stay unconfined.
//!
//! A refused call fails with EPERM, and the thread goes on. The call is recorded: [`refused`]. Nothing is confined before
//! [`begin`].

mod files;
mod filter;
mod kinds;
mod refused;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use caps::{CapSet, Capability};

pub use kinds::Kind;
pub use refused::{Refused, refused, refused_calls};

/// Means of the kernel that confine threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Means {
    /// Error of seccomp, if it is unavailable.
    pub calls: Result<(), String>,
    /// Error of Landlock, if it is unavailable.
    pub files: Result<(), String>,
}

/// The choice of the process.
struct Chosen {
    means: Means,
    /// Memory is locked: each thread that maps memory needs CAP_IPC_LOCK, or a limit that is high enough.
    locks_memory: bool,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();
/// Threads that are less confined than their kind, since something failed.
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Confines threads that call [`enter`] from now on. `locks_memory`: the process has locked its memory, future pages included.
///
/// # Errors
/// The handler of refused calls cannot be installed; nothing is confined.
pub fn begin(locks_memory: bool) -> io::Result<&'static Means> {
    refused::install_handler()?;
    refused::unblock()?;
    // The first read of a clock or processor by rustix reads the auxiliary vector, which threads without files cannot.
    crate::thread::cpu();
    count_processors_for_malloc();
    let means = || Means { calls: filter::is_available(), files: files::is_available() };
    Ok(&CHOSEN.get_or_init(|| Chosen { means: means(), locks_memory }).means)
}

/// Sets the most arenas of the C library's allocator to its own default. It otherwise counts processors by files, in the thread
/// that needs the ninth arena.
fn count_processors_for_malloc() {
    #[cfg(target_env = "gnu")]
    {
        let arenas = i32::try_from(crate::thread::online_cpus().saturating_mul(8)).unwrap_or(i32::MAX);
        // SAFETY: takes numbers; the allocator locks itself.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
    }
}

/// The means of the kernel; `None` before [`begin`].
pub fn means() -> Option<&'static Means> {
    CHOSEN.get().map(|chosen| &chosen.means)
}

/// Confines the calling thread, and those that it starts, for good. Has no effect before [`begin`]. `folders` are those
/// whose files a thread of [`Kind::Files`] uses.
pub fn enter(kind: Kind, folders: &[&Path]) {
    let Some(chosen) = CHOSEN.get() else { return };
    // A thread that cannot be confined does its work all the same.
    if confine(kind, folders, chosen).is_err() {
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Number of threads that could not be confined as their kind is.
pub fn failed() -> u32 {
    FAILED.load(Ordering::Relaxed)
}

fn confine(kind: Kind, folders: &[&Path], chosen: &Chosen) -> io::Result<()> {
    let row = kind.row();
    // The other parts need neither files nor capabilities after it; the filter comes last, as it refuses their calls.
    let files = if chosen.means.files.is_ok() { files::restrict(row.files, folders) } else { Ok(()) };
    let capabilities = keep_capabilities(row.capabilities, chosen.locks_memory);
    let calls = if chosen.means.calls.is_ok() { filter::install(kind) } else { Ok(()) };
    files.and(capabilities).and(calls)
}

/// Drops all capabilities of the calling thread but these.
fn keep_capabilities(kept: &[Capability], locks_memory: bool) -> io::Result<()> {
    let failed = |e: caps::errors::CapsError| io::Error::other(e.to_string());
    let locking = locks_memory.then_some(Capability::CAP_IPC_LOCK);
    let wanted: HashSet<Capability> = kept.iter().copied().chain(locking).collect();
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let has = caps::read(None, set).map_err(failed)?;
        caps::set(None, set, &has.intersection(&wanted).copied().collect()).map_err(failed)?;
    }
    Ok(())
}
