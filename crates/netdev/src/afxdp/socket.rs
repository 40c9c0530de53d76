//! An XDP socket: it registers the whole memory of a umem (`umem`), and its two directions share nothing.
//!
//! Invariant: a direction owns the chunks that it has not given to the kernel. They become spare when it is dropped; the
//! others are retired, unless the kernel has stopped accessing them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{c_int, xdp_desc};
use packet::CHUNK_BYTES;

use super::ring::{Consumer, Producer};
use super::umem::{Holder, Share, Umem};
use crate::raw::{self, context};

/// Bytes reserved by the kernel before a received frame (`XDP_PACKET_HEADROOM`), and by newer ones after it
/// for bookkeeping.
const KERNEL_BYTES: usize = 256 + 320;
/// Maximum frame length that is always received.
pub(super) const MAX_RX_FRAME_BYTES: usize = CHUNK_BYTES - KERNEL_BYTES;
const SEND_BUFFER_BYTES: c_int = 4 << 20;
/// A former socket may release its queue some time after its close.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// The socket itself, shared by both directions.
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) umem: &'static Umem,
    // Dropped after the descriptor.
    _share: Share,
}

impl Socket {
    /// Makes the kernel process the transmit ring.
    pub(super) fn kick_tx(&self) -> io::Result<()> {
        // SAFETY: no buffer is given.
        let ret = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        raw::check_len(ret).map(drop)
    }

    /// Makes the kernel process the fill ring.
    pub(super) fn kick_rx(&self) {
        // SAFETY: no buffer is passed. Device errors show elsewhere.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Received frames lost by the kernel.
    pub(super) fn lost(&self) -> u64 {
        // SAFETY: plain integers for which all zeros are valid.
        let mut stats: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // SAFETY: any bytes make valid statistics.
        let got = unsafe { raw::get_option(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut stats) };
        if got.is_ok() { stats.rx_dropped + stats.rx_ring_full } else { 0 }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Parameters of a socket.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Entries of each ring, and chunks of each direction: a power of two.
    pub(super) entries: u32,
    pub(super) zerocopy: bool,
    pub(super) use_need_wakeup: bool,
}

/// The receiving direction.
pub(super) struct RxRings {
    // Dropped before the socket: a remaining mapping keeps it alive.
    pub(super) received: Consumer<xdp_desc>,
    pub(super) fill: Producer<u64>,
    pub(super) socket: Arc<Socket>,
    holder: Holder,
    /// The kernel no longer writes to chunks of this side.
    pub(super) kernel_stopped: bool,
}

impl RxRings {
    /// Gives a chunk of the caller to the kernel for a frame; visible to it after [`Producer::publish`].
    pub(super) fn fill(&mut self, chunk: u32) {
        self.socket.umem.give_to(chunk, &self.holder);
        self.fill.write(Umem::address_of(chunk));
    }

    /// The next frame, which must wait, and its chunk, owned by the caller. `None`: not a chunk of this side.
    pub(super) fn next(&mut self) -> (xdp_desc, Option<u32>) {
        let received = self.received.read();
        (received, self.socket.umem.take_from(received.addr, &self.holder))
    }
}

impl Drop for RxRings {
    fn drop(&mut self) {
        for _ in 0..self.received.waiting() {
            if let (_, Some(chunk)) = self.next() {
                self.socket.umem.put_back(chunk);
            }
        }
        self.socket.umem.end(&self.holder, self.kernel_stopped);
    }
}

/// The sending direction.
pub(super) struct TxRings {
    pub(super) transmit: Producer<xdp_desc>,
    pub(super) completed: Consumer<u64>,
    pub(super) socket: Arc<Socket>,
    /// Chunks owned by this side, for copies: at most as many as ring entries.
    pub(super) free: Vec<u32>,
    /// Chunks in the transmit ring, the completion ring or the kernel.
    in_kernel: u32,
    entries: u32,
    holder: Holder,
}

impl TxRings {
    /// Frames that can be written now. Completions never outnumber the entries of their ring.
    pub(super) fn room(&self) -> u32 {
        self.transmit.room().min(self.entries - self.in_kernel)
    }

    /// Writes a frame at that place of a chunk of the caller; requires [`TxRings::room`].
    pub(super) fn write(&mut self, chunk: u32, at: usize, bytes: usize) {
        self.in_kernel += 1;
        self.socket.umem.give_to(chunk, &self.holder);
        let addr = Umem::address_of(chunk) + at as u64;
        self.transmit.write(xdp_desc { addr, len: bytes as u32, options: 0 });
    }

    /// Reclaims the chunks of sent frames; those beyond the own ones become spare.
    pub(super) fn reclaim(&mut self) {
        let count = self.completed.waiting();
        for _ in 0..count {
            let address = self.completed.read();
            let Some(chunk) = self.socket.umem.take_from(address, &self.holder) else { continue };
            self.in_kernel = self.in_kernel.saturating_sub(1);
            if self.free.len() < self.entries as usize {
                self.free.push(chunk);
            } else {
                self.socket.umem.put_back(chunk);
            }
        }
        if count > 0 {
            self.completed.release();
        }
    }
}

impl Drop for TxRings {
    fn drop(&mut self) {
        self.reclaim();
        self.free.drain(..).for_each(|chunk| self.socket.umem.put_back(chunk));
        self.socket.umem.end(&self.holder, false);
    }
}

/// Opens a socket on a device's queue; frames arrive once it is in the program's map.
pub(super) fn open(
    ifindex: u32,
    queue: usize,
    setup: Setup,
    mut share: Share,
) -> io::Result<(RxRings, TxRings)> {
    let fd = raw::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
        .map_err(context("cannot open an XDP socket (it needs CAP_NET_RAW)"))?;
    let (to_fill, free) = (std::mem::take(&mut share.rx), std::mem::take(&mut share.tx));
    let socket = Arc::new(Socket { fd, umem: share.umem, _share: share });
    let (mut rx, tx) = rings(&socket, setup, free)?;
    // The kernel reads the ring from the call of bind(2) on.
    to_fill.into_iter().for_each(|chunk| rx.fill(chunk));
    bind(&socket.fd, ifindex, queue, setup)?;
    rx.kernel_stopped = false;
    rx.fill.publish();
    Ok((rx, tx))
}

fn rings(socket: &Arc<Socket>, setup: Setup, free: Vec<u32>) -> io::Result<(RxRings, TxRings)> {
    let fd = socket.fd.as_fd();
    let buffer = |name| raw::set_option(&fd, libc::SOL_SOCKET, name, SEND_BUFFER_BYTES);
    buffer(libc::SO_SNDBUFFORCE).or_else(|_| buffer(libc::SO_SNDBUF))?;
    let area = libc::xdp_umem_reg {
        addr: socket.umem.address(),
        len: socket.umem.bytes() as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    raw::set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, area)
        .map_err(context("cannot register memory for frames (ENOBUFS: raise the limit of locked memory)"))?;
    // SAFETY: plain integers for which all zeros are valid.
    let mut at: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    // SAFETY: any bytes make valid offsets.
    unsafe { raw::get_option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut at) }
        .map_err(context("offsets of rings"))?;
    let failed = || context("cannot make a ring");
    let n = setup.entries;
    let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
    let completion_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
    let fill = Producer::new(fd, libc::XDP_UMEM_FILL_RING, n, &at.fr, fill_at).map_err(failed())?;
    let completed =
        Consumer::new(fd, libc::XDP_UMEM_COMPLETION_RING, n, &at.cr, completion_at).map_err(failed())?;
    let received =
        Consumer::new(fd, libc::XDP_RX_RING, n, &at.rx, libc::XDP_PGOFF_RX_RING).map_err(failed())?;
    let transmit =
        Producer::new(fd, libc::XDP_TX_RING, n, &at.tx, libc::XDP_PGOFF_TX_RING).map_err(failed())?;
    let (umem, socket) = (socket.umem, Arc::clone(socket));
    // Before bind(2) the kernel accesses nothing.
    let kernel_stopped = true;
    let rx =
        RxRings { received, fill, socket: Arc::clone(&socket), holder: umem.new_holder(), kernel_stopped };
    let holder = umem.new_holder();
    Ok((rx, TxRings { transmit, completed, socket, free, in_kernel: 0, entries: n, holder }))
}

fn bind(fd: &OwnedFd, ifindex: u32, queue: usize, setup: Setup) -> io::Result<()> {
    let mode = if setup.zerocopy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let wakeup = if setup.use_need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: mode | wakeup,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue as u32,
        sxdp_shared_umem_fd: 0,
    };
    let start = Instant::now();
    loop {
        let error = match raw::bind(fd, &address) {
            Ok(()) => return Ok(()),
            Err(e) => e,
        };
        match error.raw_os_error() {
            Some(libc::EBUSY) if start.elapsed() < BUSY_LIMIT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Some(libc::EBUSY) => {
                return Err(context(format!("queue {queue} is in use by another XDP socket"))(error));
            }
            Some(libc::EINVAL) => return Err(context(format!("the device has no queue {queue}"))(error)),
            _ => return Err(context(format!("cannot bind to queue {queue}"))(error)),
        }
    }
}
