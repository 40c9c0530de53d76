//! Unix stream sockets in the file system, as kept by OVS daemons: mode 0770 less the umask from the moment
//! that the name exists; and their listening processes.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::process::{Stage, stage};

use rustix::fs::{Mode, OFlags, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Mode of control, management and database sockets, before the umask.
pub const SOCKET_MODE: u32 = 0o770;
/// Mode of the database file and of log files, before the umask.
pub const FILE_MODE: u32 = 0o660;

/// The listener found at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The socket of a process.
    Process(u32),
    /// The socket of a process in a PID namespace not visible from here.
    Hidden,
    /// Its backlog is full, so its process is unknown.
    Full,
}

/// The listener at `path`, if any. Each call takes a place in its backlog until it accepts.
///
/// # Errors
/// The path cannot be reached, or is too long for a socket.
pub fn server(path: &Path) -> io::Result<Option<Server>> {
    let socket = stream_socket()?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Some(peer(&socket)?.map_or(Server::Hidden, Server::Process))),
        Err(Errno::AGAIN) => Ok(Some(Server::Full)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Listens at `path` with `mode` less the umask, non-blocking. Replaces a socket without a listener.
///
/// # Errors
/// The path has a listener or another kind of file, or the socket cannot be created.
pub fn listen_at(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = stream_socket()?;
    // bind(2) gives the name the mode of the socket, so no other user connects in between.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    let address = SocketAddrUnix::new(path)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || server(path)?.is_some() {
                return Err(Errno::ADDRINUSE.into());
            }
            std::fs::remove_file(path)?;
            bind(&socket, &address)?;
        }
        other => other?,
    }
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// A listening socket of another process. From now on this process is its listener for those who connect.
///
/// # Errors
/// It is no such socket.
pub fn listener(socket: OwnedFd) -> io::Result<UnixListener> {
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Opens a file for reading if only this user, or root, can have written it.
///
/// # Errors
/// It does not exist, is a link or no regular file, or belongs to another user.
pub fn open_own(path: &Path) -> io::Result<File> {
    let file = File::from(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )?);
    let about = file.metadata()?;
    let owner = about.uid();
    if !about.is_file() || owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a file of this user"));
    }
    Ok(file)
}

/// Bytes of the file system of a folder, used or not.
///
/// # Errors
/// There is no such folder, or the kernel does not tell.
pub fn volume_bytes(folder: &Path) -> io::Result<u64> {
    let about = rustix::fs::statvfs(folder)?;
    Ok(about.f_blocks.saturating_mul(about.f_frsize))
}

/// Removes the sockets of former processes from a directory: files `PREFIX.PID.SUFFIX` of an ending process,
/// or of an ended one without a listener. Inaccessible ones stay.
pub fn remove_stale(directory: &Path, kinds: &[(&str, &str)]) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(pid) = name.to_str().and_then(|name| kinds.iter().find_map(|kind| owner(name, *kind)))
        else {
            continue;
        };
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let is_stale = match stage(pid) {
            Stage::Running => false,
            Stage::Ending => true,
            Stage::Gone => server(&path).is_ok_and(|found| found.is_none()),
        };
        if is_socket && is_stale {
            // Another starting process may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The process id in a name `PREFIX.PID.SUFFIX`.
fn owner(name: &str, (prefix, suffix): (&str, &str)) -> Option<u32> {
    name.strip_prefix(prefix)?.strip_prefix('.')?.strip_suffix(suffix)?.strip_suffix('.')?.parse().ok()
}

/// The process at the other end; for a listener, the one that called listen(2).
fn peer(socket: &OwnedFd) -> io::Result<Option<u32>> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and both pointers are to values of the stated size that live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &mut size,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // Zero means a process in a namespace not visible from here.
    Ok(u32::try_from(found.pid).ok().filter(|pid| *pid > 0))
}

fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}
