//! Unnamed network namespaces: held by a descriptor, removed with it and the last process inside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespace of the thread that reads it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace. It exists as long as this value, a socket opened in it, or a process that runs in it.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// A new namespace, with only a loopback that is down. It has no name, so it vanishes with this process,
    /// however that ends.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or at the limit of namespaces.
    pub fn new() -> io::Result<NetNs> {
        let made = || -> io::Result<NetNs> {
            // SAFETY: no pointers; only the calling thread, which was created for this and ends here, changes
            // its namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            NetNs::current()
        };
        std::thread::scope(|scope| scope.spawn(made).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The one of the calling thread.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn current() -> io::Result<NetNs> {
        Ok(NetNs { file: File::open(OWN)? })
    }

    /// Moves the calling thread into it: sockets opened, and threads and programs started by it, belong
    /// there.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(io::Error::from)
    }

    /// Calls `work` on a new thread inside. Propagates a panic.
    ///
    /// # Errors
    /// As [`NetNs::enter`]; `work` is not called then.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let moved = || self.enter().map(|()| work());
        std::thread::scope(|scope| scope.spawn(moved).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A path to it for programs started by this process, such as `ip link … netns PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}
