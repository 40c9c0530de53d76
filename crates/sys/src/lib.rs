//! Operating system services for a daemon: daemonizing, pid files, file locks, Unix sockets, other processes, DSCPs,
//! signals, limits, users, confinement of threads, machine statistics, threads and processors, USDT probes, waking and waiting,
//! random numbers, clocks, the allocator. For measuring tools also: frames with timestamps, unnamed network namespaces.
//!
//! Nothing here is specific to switches. Everything may be called from any thread unless its page restricts
//! that.
#![allow(unsafe_code, reason = "system calls that no safe library has; each block says why it is sound")]

pub mod channel;
pub mod clock;
pub mod confine;
pub mod counting;
pub mod daemon;
pub mod fdstore;
pub mod frames;
pub mod heap;
pub mod idle;
pub mod interval;
pub mod limits;
pub mod local;
pub mod lock;
pub mod machine;
pub mod monitor;
pub mod netns;
pub mod pidfile;
pub mod poll;
mod poller;
pub mod priority;
pub mod process;
pub mod random;
pub mod signals;
pub mod tcp;
pub mod thread;
mod title;
pub mod usdt;
pub mod user;
mod waker;
mod watch;

pub use poller::Poller;
pub use waker::Waker;
pub use watch::WatchSet;

/// Whether this process may create files in a folder.
pub fn is_writable(folder: &std::path::Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// An error's text without the numbers that `std` appends to the system's texts, as C programs print it. Contexts stay.
pub fn os_text(error: &(impl std::fmt::Display + ?Sized)) -> String {
    const NUMBER: &str = " (os error ";
    let text = error.to_string();
    let mut pieces = text.split(NUMBER);
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => out.push_str(rest),
            _ => out.extend([NUMBER, piece]),
        }
    }
    out
}

#[cfg(test)]
mod tests;
