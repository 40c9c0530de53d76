//! Signals as something to read, by signalfd(2).
//!
//! Create one [`Signals`] before the first other thread starts: threads inherit the mask that blocks the
//! signals, and so do processes started later. SIGPIPE is ignored (writing to a closed socket is an error),
//! SIGCHLD keeps its default, which ignores it and still permits waiting for children.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal that a daemon acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM: end.
    Terminate,
    /// SIGINT: exit, requested by the terminal.
    Interrupt,
    /// SIGHUP: the terminal is gone, or for many daemons: reopen files.
    Hangup,
}

const HELD: [(libc::c_int, Signal); 3] =
    [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt), (libc::SIGHUP, Signal::Hangup)];

/// The signals of the process, held back and read here.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in the calling thread (and threads started by it) and makes them readable.
    pub fn hold() -> io::Result<Signals> {
        // SAFETY: the set is initialised by sigemptyset before its use; handlers are constants; a descriptor
        // returned by signalfd is new.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for (number, _) in HELD {
                libc::sigaddset(&mut set, number);
            }
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// Readable when a signal waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal, if one waits.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        loop {
            // SAFETY: signalfd_siginfo is plain data; the read has its size.
            let (info, got) = unsafe {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of::<libc::signalfd_siginfo>();
                let got = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
                (info, got)
            };
            if got < 0 {
                let e = io::Error::last_os_error();
                match e.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(e),
                }
            }
            let number = info.ssi_signo as libc::c_int;
            if let Some((_, signal)) = HELD.iter().find(|(held, _)| *held == number) {
                return Ok(Some(*signal));
            }
        }
    }
}
