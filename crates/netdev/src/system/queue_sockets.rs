//! Sockets of a transmit queue by the queue of the device: the kernel classifies a packet by the priority of its socket
//! (`SO_PRIORITY`).
//!
//! Packets without a queue leave by the usual sockets. The others need sockets of their own, opened with the first of
//! them: the usual ones may be shared with other threads. Each queue has its own while there are few, so that one that
//! waits for its rate does not fill the send buffer of another.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::c_int;

use super::tx::Sockets;
use super::{bind, set_buffer, socket};
use crate::raw;

/// Opens sockets that send on a device.
pub(crate) struct Opener {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) buffer_bytes: u32,
}

impl Opener {
    /// A socket, with `virtio_net_hdr` before every frame or without; it receives nothing.
    pub(super) fn open(&self, vnet_hdr: bool) -> io::Result<OwnedFd> {
        let failed = |what: &str| raw::context(format!("device {}: {what}", self.name));
        let fd = socket(vnet_hdr).map_err(failed("cannot open a packet socket"))?;
        set_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, self.buffer_bytes)
            .map_err(failed("send buffer"))?;
        bind(&fd, self.ifindex, 0).map_err(failed("cannot bind"))?;
        Ok(fd)
    }
}

/// Queues of a transmit queue with sockets of their own; others share the last ones.
const QUEUES_MAX: usize = 16;
/// Such sockets in the process.
const SOCKETS_MAX: usize = 8192;

static SOCKETS: AtomicUsize = AtomicUsize::new(0);

/// Sockets with a priority.
struct Prioritized {
    finished: OwnedFd,
    unfinished: Option<OwnedFd>,
    /// The queue whose priority they have.
    queue: u16,
}

impl Drop for Prioritized {
    fn drop(&mut self) {
        SOCKETS.fetch_sub(1 + usize::from(self.unfinished.is_some()), Ordering::Relaxed);
    }
}

/// The sockets of a transmit queue.
pub(crate) struct QueueSockets {
    usual: Sockets,
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
    pub(super) fn new(usual: Sockets, opener: Opener, offload: bool) -> QueueSockets {
        QueueSockets { usual, prioritized: Vec::new(), opener, offload, exhausted: false }
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
        for fd in [Some(&sockets.finished), sockets.unfinished.as_ref()].into_iter().flatten() {
            raw::set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority(queue))?;
        }
        sockets.queue = queue;
        Ok(place)
    }
}
