//! Sockets of a transmit queue by the queue of the device: the kernel classifies a packet by the priority of its socket
//! (`SO_PRIORITY`).
//!
//! Packets without a queue leave by the usual sockets: the one that the port receives by, and once there were many bursts,
//! sockets of the transmit queue alone, which cost a little less per frame. The others need sockets of their own, opened with the first of
//! them: the usual ones may be shared with other threads. Each queue has its own while there are few, so that one that
//! waits for its rate does not fill the send buffer of another.

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::c_int;

use super::tx::Sockets;
use super::{OwnSockets, bind, set_buffer, socket};
use crate::kept::Kept;
use crate::raw;

/// A socket that only sends.
pub(crate) struct SendSocket {
    fd: Arc<OwnedFd>,
    _kept: Option<Kept>,
}

impl Deref for SendSocket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Opens sockets that send on a device.
pub(crate) struct Opener {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) buffer_bytes: u32,
}

impl Opener {
    /// A socket, with `virtio_net_hdr` before every frame or without; it receives nothing.
    pub(super) fn open(&self, vnet_hdr: bool) -> io::Result<SendSocket> {
        let failed = |what: &str| raw::context(format!("device {}: {what}", self.name));
        let fd = socket(vnet_hdr).map_err(failed("cannot open a packet socket"))?;
        set_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, self.buffer_bytes)
            .map_err(failed("send buffer"))?;
        bind(&fd, self.ifindex, 0).map_err(failed("cannot bind"))?;
        let fd = Arc::new(fd);
        Ok(SendSocket { _kept: Kept::sending(&self.name, &fd), fd })
    }

    /// Sockets of a transmit queue alone.
    ///
    /// # Errors
    /// The process has too many of them, or the kernel refuses.
    pub(super) fn open_own(&self, offload: bool) -> io::Result<Sockets> {
        let places = OwnSockets::take(1 + usize::from(offload));
        let _places = places.ok_or_else(|| io::Error::other("no socket is left"))?;
        let unfinished = if offload { Some(self.open(true)?) } else { None };
        Ok(Sockets::Own { finished: self.open(false)?, unfinished, _places })
    }
}

/// Queues of a transmit queue with sockets of their own; others share the last ones.
const QUEUES_MAX: usize = 16;
/// Such sockets in the process.
const SOCKETS_MAX: usize = 8192;

static SOCKETS: AtomicUsize = AtomicUsize::new(0);

/// Sockets with a priority.
struct Prioritized {
    finished: SendSocket,
    unfinished: Option<SendSocket>,
    /// The queue whose priority they have.
    queue: u16,
}

impl Drop for Prioritized {
    fn drop(&mut self) {
        SOCKETS.fetch_sub(1 + usize::from(self.unfinished.is_some()), Ordering::Relaxed);
    }
}

/// Bursts after which a transmit queue gets sockets of its own, if the process has few of them.
const BUSY_BURSTS: u32 = 256;
/// Frames of a burst at least.
const BURST_FRAMES: usize = 8;

/// The sockets of a transmit queue.
pub(crate) struct QueueSockets {
    usual: Sockets,
    /// Bursts until it asks for sockets of its own; 0: it does not.
    bursts_left: u32,
    /// By the queues seen.
    prioritized: Vec<Prioritized>,
    opener: Opener,
    /// Frames may leave work to the kernel.
    offload: bool,
    /// None can be opened: all packets leave by the usual ones.
    exhausted: bool,
}

/// Priority of packets of a queue: the handle of its class.
fn priority(queue: u16) -> c_int {
    1 << 16 | (c_int::from(queue) + 1)
}

impl QueueSockets {
    /// Begins with these; `grows`: may get some of its own.
    pub(super) fn new(usual: Sockets, opener: Opener, offload: bool, grows: bool) -> QueueSockets {
        let bursts_left = if grows { BUSY_BURSTS } else { 0 };
        QueueSockets { usual, bursts_left, prioritized: Vec::new(), opener, offload, exhausted: false }
    }

    /// Counts frames that are about to leave.
    #[inline]
    pub(super) fn count(&mut self, frames: usize) {
        if self.bursts_left > 0 && frames >= BURST_FRAMES {
            self.bursts_left -= 1;
            if self.bursts_left == 0 {
                self.take_own();
            }
        }
    }

    /// Opens sockets of its own, or asks again after as many bursts.
    #[cold]
    fn take_own(&mut self) {
        match self.opener.open_own(self.offload) {
            Ok(own) => self.usual = own,
            Err(_) => self.bursts_left = BUSY_BURSTS,
        }
    }

    /// The socket for such frames of a queue, and whether it requires a `virtio_net_hdr`.
    #[inline]
    pub(super) fn of(&mut self, unfinished_frames: bool, queue: u16) -> (&OwnedFd, bool) {
        if queue == 0 || self.exhausted {
            return self.usual.of(unfinished_frames);
        }
        self.of_queue(unfinished_frames, queue)
    }

    #[cold]
    fn of_queue(&mut self, unfinished_frames: bool, queue: u16) -> (&OwnedFd, bool) {
        let known = self.prioritized.iter().position(|sockets| sockets.queue == queue);
        let place = known.or_else(|| self.prioritize(queue).ok());
        self.exhausted = place.is_none();
        match place.and_then(|place| self.prioritized.get(place)) {
            Some(Prioritized { unfinished: Some(fd), .. }) if unfinished_frames => (fd, true),
            Some(Prioritized { finished, .. }) => (finished, false),
            None => self.usual.of(unfinished_frames),
        }
    }

    /// Gives new sockets the priority of a queue, or the last ones; their place.
    fn prioritize(&mut self, queue: u16) -> io::Result<usize> {
        let wanted = 1 + usize::from(self.offload);
        if self.prioritized.len() < QUEUES_MAX {
            let is_free = SOCKETS.fetch_add(wanted, Ordering::Relaxed) + wanted <= SOCKETS_MAX;
            let open = || {
                let unfinished = if self.offload { Some(self.opener.open(true)?) } else { None };
                Ok::<_, io::Error>((self.opener.open(false)?, unfinished))
            };
            match if is_free { open().ok() } else { None } {
                Some((finished, unfinished)) => {
                    self.prioritized.push(Prioritized { finished, unfinished, queue: 0 });
                }
                None => drop(SOCKETS.fetch_sub(wanted, Ordering::Relaxed)),
            }
        }
        let none = || io::Error::other("no socket is left");
        let place = self.prioritized.len().checked_sub(1).ok_or_else(none)?;
        let sockets = &mut self.prioritized[place];
        for socket in [Some(&sockets.finished), sockets.unfinished.as_ref()].into_iter().flatten() {
            raw::set_option(&**socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority(queue))?;
        }
        sockets.queue = queue;
        Ok(place)
    }
}
