//! The network namespace of a handle: a socket belongs to that of the creating thread.

use crate::raw;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The kernel's name of the thread's namespace.
const PATH: &str = "/proc/thread-self/ns/net";

/// A network namespace; `None` without `/proc`, so unknown.
#[derive(Debug)]
pub(crate) struct Namespace(Option<File>);

impl Namespace {
    /// The namespace of the calling thread.
    pub(crate) fn current() -> Namespace {
        Namespace(File::open(PATH).ok())
    }

    /// Calls `work` in the namespace: on the calling thread if possible, else on a thread that enters it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let Some(file) = self.0.as_ref().filter(|file| !is_here(file)) else { return work() };
        let moved = || {
            raw::enter_namespace(file)?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(moved).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Whether the calling thread is in that namespace.
fn is_here(file: &File) -> bool {
    let id = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    File::open(PATH).is_ok_and(|here| id(&here) == id(file))
}
