//! [`FdStore`]: descriptors that another process holds for the next process of the same service.
//!
//! The holder is the service manager (sd_notify(3): `FDSTORE=1`) or the monitor ([`crate::monitor`]). Both get the same
//! messages. The next process has the descriptors by sd_listen_fds(3) or by the fork.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::channel::{Channel, Message};

/// Most descriptors that are held: their names have no more room.
pub const STORED_MAX: usize = 4096;
/// Most bytes of a name, for service managers.
pub const NAME_MAX_BYTES: usize = 255;
/// First descriptor of sd_listen_fds(3).
const FIRST: RawFd = 3;

/// Most bytes of all names together: they are one string of the environment (execve(2), `MAX_ARG_STRLEN`).
pub const NAMES_MAX_BYTES: usize = 100 << 10;

const STORE: &str = "FDSTORE=1";
const REMOVE: &str = "FDSTOREREMOVE=1";
/// Its descriptor is closed then.
const BARRIER: &str = "BARRIER=1";
const NAME: &str = "FDNAME=";
/// An error of a descriptor does not remove it: that of a device that is down passes.
const STAY: &str = "FDPOLL=0";

/// A descriptor of the last process.
#[derive(Debug)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Closed on exec.
    pub fd: OwnedFd,
}

/// The way to a holder.
#[derive(Debug)]
pub struct FdStore(Channel);

impl FdStore {
    /// The service manager that `NOTIFY_SOCKET` names; `None`: no manager started this process.
    ///
    /// # Errors
    /// There is no way to it.
    pub fn of_service_manager() -> io::Result<Option<FdStore>> {
        use std::os::unix::ffi::OsStrExt;
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            path @ [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
            _ => return Ok(None),
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Some(FdStore(Channel::of(socket.into()))))
    }

    /// A holder at the other end of a channel.
    pub fn of(channel: OwnedFd) -> FdStore {
        FdStore(Channel::of(channel))
    }

    /// A further descriptor of the way, for another process.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.fd().try_clone_to_owned()
    }

    /// Has a descriptor held. One of that name stays beside it: remove it before.
    ///
    /// # Errors
    /// The holder is gone, or takes no message for that time; the name is too long or has a colon or control characters.
    pub fn put(&self, name: &str, fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(is_of_name) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("bad name {name:?}")));
        }
        self.0.send(format!("{STORE}\n{NAME}{name}\n{STAY}").as_bytes(), &[fd], limit)
    }

    /// Waits until the holder has carried out all messages before (sd_notify_barrier(3)).
    ///
    /// # Errors
    /// It is gone, or has not done so in that time.
    pub fn barrier(&self, limit: Duration) -> io::Result<()> {
        let until = Instant::now() + limit;
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        self.0.send(BARRIER.as_bytes(), &[theirs.as_fd()], limit)?;
        drop(theirs);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&ours, PollFlags::empty())], Some(&left_ms)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                // Its end of the pipe is closed.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Has a descriptor held no longer.
    ///
    /// # Errors
    /// The holder is gone, or takes no message for that time.
    pub fn remove(&self, name: &str, limit: Duration) -> io::Result<()> {
        self.0.send(format!("{REMOVE}\n{NAME}{name}").as_bytes(), &[], limit)
    }
}

fn is_of_name(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte) && byte != b':'
}

/// Descriptors that this process holds for another one.
#[derive(Debug, Default)]
pub struct Holder(BTreeMap<String, OwnedFd>);

impl Holder {
    /// Carries out a message of [`FdStore`]. Other messages, and descriptors beyond [`STORED_MAX`], are dropped.
    pub fn take(&mut self, message: Message) {
        let Ok(text) = std::str::from_utf8(&message.bytes) else { return };
        let Some(name) = text.lines().find_map(|line| line.strip_prefix(NAME)) else { return };
        let has = |word: &str| text.lines().any(|line| line == word);
        if has(REMOVE) {
            self.0.remove(name);
        } else if has(STORE)
            && self.0.len() < STORED_MAX
            && let Some(fd) = message.fds.into_iter().next()
        {
            self.0.insert(name.to_owned(), fd);
        }
    }

    /// Closes all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Holds these.
    pub fn of(stored: Vec<Stored>) -> Holder {
        Holder(stored.into_iter().map(|Stored { name, fd }| (name, fd)).collect())
    }

    /// All of them, which it holds no longer.
    pub fn take_all(&mut self) -> Vec<Stored> {
        std::mem::take(self).into_stored()
    }

    /// All of them.
    pub fn into_stored(self) -> Vec<Stored> {
        self.0.into_iter().map(|(name, fd)| Stored { name, fd }).collect()
    }
}

/// Descriptors that the service manager passed to this process (sd_listen_fds(3)). Call it once, before others can have
/// closed them.
pub fn inherited() -> Vec<Stored> {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    if var("LISTEN_PID") != std::process::id().to_string() {
        return Vec::new();
    }
    let count = var("LISTEN_FDS").parse::<RawFd>().unwrap_or(0).clamp(0, STORED_MAX as RawFd);
    let names = var("LISTEN_FDNAMES");
    let mut names = names.split(':');
    let mut stored = Vec::new();
    for fd in FIRST..FIRST + count {
        let name = names.next().unwrap_or("unknown").to_owned();
        // SAFETY: fcntl(2) of a number that is none fails.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0 {
            // SAFETY: the manager passed this open descriptor to this process, and nothing else here owns it.
            stored.push(Stored { name, fd: unsafe { OwnedFd::from_raw_fd(fd) } });
        }
    }
    stored
}

/// Has a program that replaces this process get descriptors as from a service manager.
///
/// # Errors
/// No descriptor is left.
pub fn pass_on(command: &mut Command, stored: &[Stored]) -> io::Result<()> {
    let names = stored.iter().map(|stored| stored.name.as_str()).collect::<Vec<_>>().join(":");
    if names.len() > NAMES_MAX_BYTES {
        return Err(io::Error::other(format!("names of descriptors take {} bytes", names.len())));
    }
    let end = FIRST + stored.len() as RawFd;
    // Above the numbers that they are to get, so that none is overwritten.
    let all: Vec<OwnedFd> = stored
        .iter()
        .map(|stored| rustix::io::fcntl_dupfd_cloexec(&stored.fd, end))
        .collect::<Result<_, _>>()?;
    command
        .env("LISTEN_PID", std::process::id().to_string())
        .env("LISTEN_FDS", all.len().to_string())
        .env("LISTEN_FDNAMES", names);
    let number = move || {
        for (fd, number) in all.iter().zip(FIRST..) {
            // SAFETY: a call that touches no memory of this process.
            if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only calls dup2(2).
    unsafe { command.pre_exec(number) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_holder_has_what_was_put_and_not_removed() {
        let (own, other) = Channel::pair().unwrap();
        let store = FdStore::of(other);
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut holder = Holder::default();
        for name in ["a", "b b", "c"] {
            store.put(name, file.as_fd(), SOON).unwrap();
        }
        store.remove("a", SOON).unwrap();
        store.remove("none", SOON).unwrap();
        for _ in 0..5 {
            holder.take(own.receive(SOON).unwrap().unwrap());
        }
        for bytes in [&b"FDSTORE=1\nFDNAME=x"[..], b"FDNAME=b b", b"\xff", b"READY=1"] {
            holder.take(Message { bytes: bytes.to_vec(), fds: Vec::new() });
        }
        let names: Vec<_> = holder.into_stored().into_iter().map(|stored| stored.name).collect();
        assert_eq!(names, ["b b", "c"]);
    }

    #[test]
    fn names_that_a_manager_refuses_are_refused() {
        let (_own, other) = Channel::pair().unwrap();
        let store = FdStore::of(other);
        let file = std::fs::File::open("/dev/null").unwrap();
        for name in ["", "a:b", "a\nb", &"x".repeat(256)] {
            assert!(store.put(name, file.as_fd(), SOON).is_err(), "{name:?}");
        }
        assert!(store.put(&"x".repeat(255), file.as_fd(), SOON).is_ok());
    }
}
