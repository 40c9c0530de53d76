//! An XDP socket with its memory: chunks of 4 KB, the first half for received frames, the second for sent
//! ones, so the two directions share nothing.
//!
//! Invariant: a chunk belongs to the kernel (in the fill or transmit ring or on its way back), or to one of
//! the two directions here. Only its owner accesses its bytes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{c_int, xdp_desc};

use super::ring::{Consumer, Producer};
use crate::raw::{self, context};

/// Bytes of a chunk: a page, the kernel's maximum.
pub(super) const CHUNK_BYTES: usize = 4096;
/// Bytes reserved by the kernel before a received frame (`XDP_PACKET_HEADROOM`), and by newer ones after it
/// for bookkeeping.
const KERNEL_BYTES: usize = 256 + 320;
/// Maximum frame length that is always received.
pub(super) const MAX_RX_FRAME_BYTES: usize = CHUNK_BYTES - KERNEL_BYTES;
const SEND_BUFFER_BYTES: c_int = 4 << 20;
/// A former socket may release its queue some time after its close.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// The chunks' memory.
struct Area {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, owned by this value; the invariant above governs access to its parts.
unsafe impl Send for Area {}
// SAFETY: as above: each part is accessed by pointer by its one owner.
unsafe impl Sync for Area {}

impl Area {
    fn new(bytes: usize) -> io::Result<Area> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Area { base, bytes })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; slices of it do not outlive the socket.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The socket itself, shared by both directions.
pub(super) struct Socket {
    // Closed first, so that the kernel is done with the memory.
    fd: OwnedFd,
    area: Area,
}

impl Socket {
    /// The bytes of a frame at `at` in the area, if within it.
    ///
    /// # Safety
    /// The caller must own the chunk.
    pub(super) unsafe fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        if at.checked_add(len)? > self.area.bytes {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as `self` and was zeroed; nobody writes to it, as
        // the caller owns the chunk.
        Some(unsafe { std::slice::from_raw_parts(self.area.base.as_ptr().add(at), len) })
    }

    /// Writes `frame`, at most a chunk long, to the chunk at `at`.
    ///
    /// # Safety
    /// The caller must own the chunk, and `at` must be the offset of a chunk.
    pub(super) unsafe fn put(&self, at: u64, frame: &[u8]) {
        assert!(frame.len() <= CHUNK_BYTES && at as usize + CHUNK_BYTES <= self.area.bytes);
        // SAFETY: within the mapping; no other access to the chunk, as the caller owns it.
        unsafe {
            let to = self.area.base.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len());
        }
    }

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
}

/// The sending direction.
pub(super) struct TxRings {
    pub(super) transmit: Producer<xdp_desc>,
    pub(super) completed: Consumer<u64>,
    pub(super) socket: Arc<Socket>,
    /// Chunks owned by this side.
    pub(super) free: Vec<u64>,
}

/// Opens a socket on a device's queue; frames arrive once it is in the program's map.
pub(super) fn open(ifindex: u32, queue: usize, setup: Setup) -> io::Result<(RxRings, TxRings)> {
    let fd = raw::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
        .map_err(context("cannot open an XDP socket (it needs CAP_NET_RAW)"))?;
    let chunks = 2 * setup.entries as usize;
    let area = Area::new(chunks * CHUNK_BYTES).map_err(context("memory for frames"))?;
    let socket = Arc::new(Socket { fd, area });
    let (mut rx, tx) = rings(&socket, setup)?;
    bind(&socket.fd, ifindex, queue, setup)?;
    for chunk in 0..u64::from(setup.entries) {
        rx.fill.write(chunk * CHUNK_BYTES as u64);
    }
    rx.fill.publish();
    Ok((rx, tx))
}

fn rings(socket: &Arc<Socket>, setup: Setup) -> io::Result<(RxRings, TxRings)> {
    let fd = socket.fd.as_fd();
    let buffer = |name| raw::set_option(&fd, libc::SOL_SOCKET, name, SEND_BUFFER_BYTES);
    buffer(libc::SO_SNDBUFFORCE).or_else(|_| buffer(libc::SO_SNDBUF))?;
    let area = libc::xdp_umem_reg {
        addr: socket.area.base.as_ptr() as u64,
        len: socket.area.bytes as u64,
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
    // Last in, first out: low chunks are reused and stay in the processor's cache.
    let free = (u64::from(n)..2 * u64::from(n)).rev().map(|chunk| chunk * CHUNK_BYTES as u64).collect();
    let rx = RxRings { received, fill, socket: Arc::clone(socket) };
    Ok((rx, TxRings { transmit, completed, socket: Arc::clone(socket), free }))
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
