//! Going into the background, so that the command that started the daemon returns when the daemon is ready, or with its
//! exit status when it failed before.
//!
//! Order: [`detach`] early, while the process has one thread; then all set-up, errors still going to the terminal; then
//! [`Detached::ready`]. Pid files, locks and threads come after `detach`.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

/// The background process before it has said that it is ready. Dropping it without that lets the command that waits see
/// the process's end only.
#[derive(Debug)]
pub struct Detached {
    ready: OwnedFd,
}

/// Forks. The parent waits and never returns: it exits with 0 when the child says that it is ready, with the child's
/// status when the child exits before, with 1 when it dies otherwise. The child returns, leading a session of its own.
///
/// An error when the process has more than one thread: a forked child would have only one of them.
pub fn detach() -> io::Result<Detached> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads != 1 {
        return Err(io::Error::other(format!("cannot go into the background with {threads} threads")));
    }
    let (wait, ready) = pipe_with(PipeFlags::CLOEXEC)?;
    // What is buffered would be written twice.
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
            // SAFETY: ends the process without running what the child, its copy, will run itself.
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
    /// Tells whoever reads the other end of `ready`.
    pub(crate) fn new(ready: OwnedFd) -> Detached {
        Detached { ready }
    }

    /// Says that the daemon is ready: the command that started it returns. Standard input, output and error go to
    /// `/dev/null` from now on; with `change_directory` the process works in `/`, so that it keeps no file system busy.
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
                // Nobody waits any more: somebody ended the parent. The daemon runs all the same.
                Ok(_) | Err(rustix::io::Errno::PIPE) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}
