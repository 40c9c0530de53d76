//! Daemonizing: the command that started the daemon returns once the daemon is ready, or with its exit status
//! if it failed before.
//!
//! Order: [`detach`] early, while the process has one thread; then all set-up, with errors still going to the
//! terminal; then [`Detached::ready`]. Pid files, locks and threads come after `detach`.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

/// The background process before it reports ready. If dropped before, the waiting command only sees the end
/// of the process.
#[derive(Debug)]
pub struct Detached {
    ready: OwnedFd,
}

/// Forks. The parent waits and never returns: it exits with 0 once the child reports ready, with the child's
/// status if the child exits before, with 1 if it dies otherwise. The child returns, as the leader of a new
/// session.
///
/// An error if the process has more than one thread: a forked child would have only one of them.
pub fn detach() -> io::Result<Detached> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads != 1 {
        return Err(io::Error::other(format!("cannot go into the background with {threads} threads")));
    }
    let (wait, ready) = pipe_with(PipeFlags::CLOEXEC)?;
    // Buffered output would be written twice.
    io::stdout().flush()?;
    // SAFETY: the process has one thread, so the child is a whole copy of it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(wait);
            rustix::process::setsid()?;
            Ok(Detached { ready })
        }
        child => {
            drop(ready);
            let status = await_child(&wait, child);
            // SAFETY: ends the process without running exit handlers, which the child, its copy, will run
            // itself.
            unsafe { libc::_exit(status) }
        }
    }
}

/// The exit status for the parent: waits for a byte from the child, or for its end.
fn await_child(wait: &OwnedFd, child: libc::pid_t) -> i32 {
    let mut byte = [0];
    loop {
        match rustix::io::read(wait, &mut byte) {
            Ok(1) => return 0,
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` is alive through the call.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited == child {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return 1;
        }
    }
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let _ = writeln!(io::stderr(), "the daemon died of signal {signal} before it was ready");
        return 1;
    }
    match libc::WEXITSTATUS(status) {
        0 => {
            let _ = writeln!(io::stderr(), "the daemon ended before it was ready");
            1
        }
        code => code,
    }
}

impl Detached {
    /// Reports to the reader of the other end of `ready`.
    pub(crate) fn new(ready: OwnedFd) -> Detached {
        Detached { ready }
    }

    /// Reports that the daemon is ready: the command that started it returns. Redirects standard input,
    /// output and error to `/dev/null`; with `change_directory` changes to `/`, so that no file system stays
    /// busy.
    pub fn ready(self, change_directory: bool) -> io::Result<()> {
        if change_directory {
            std::env::set_current_dir("/")?;
        }
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        for stdio in 0..3 {
            // SAFETY: both are descriptors; the standard streams are replaced, never left closed.
            if unsafe { libc::dup2(null.as_raw_fd(), stdio) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        loop {
            match rustix::io::write(&self.ready, &[0]) {
                Err(rustix::io::Errno::INTR) => {}
                // No process waits any more: the parent was killed. The daemon runs all the same.
                Ok(_) | Err(rustix::io::Errno::PIPE) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}
