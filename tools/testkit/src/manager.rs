//! [`ServiceManager`]: holds descriptors of a service and passes them to its next process, as systemd does
//! (sd_notify(3): `FDSTORE=1`; sd_listen_fds(3)).

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Descriptors by name.
pub type Held = Vec<(String, Arc<OwnedFd>)>;

/// Interval of looking for the end.
const LOOK: Duration = Duration::from_millis(50);

/// A manager of one service. Dropped, it closes all descriptors.
#[derive(Debug)]
pub struct ServiceManager {
    path: PathBuf,
    held: Arc<Mutex<Held>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceManager {
    /// Listens on a socket at `path`.
    ///
    /// # Errors
    /// If there is something already.
    pub fn start(path: &Path) -> Result<Self> {
        let socket = UnixDatagram::bind(path).with_context(|| path.display().to_string())?;
        socket.set_read_timeout(Some(LOOK))?;
        let (held, ends) = (Arc::<Mutex<Held>>::default(), Arc::<AtomicBool>::default());
        let (of_thread, is_over) = (held.clone(), ends.clone());
        let serve = move || {
            while !is_over.load(Ordering::Acquire) {
                serve_one(&socket, &of_thread);
            }
        };
        Ok(Self { path: path.to_owned(), held, ends, thread: Some(std::thread::spawn(serve)) })
    }

    /// Its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptors that it holds now.
    pub fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
        // A test may have removed the folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Receives a message, if one comes soon.
fn serve_one(socket: &UnixDatagram, held: &Mutex<Held>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let Ok(received) = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) else { return };
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            fds.extend(some);
        }
    }
    let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let name = value("FDNAME").unwrap_or("stored").to_owned();
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    if value("FDSTORE") == Some("1") {
        held.extend(fds.into_iter().map(|fd| (name.clone(), Arc::new(fd))));
    } else if value("FDSTOREREMOVE") == Some("1") {
        held.retain(|(of, _)| *of != name);
    }
    // A barrier ends as its descriptor is closed.
}
