//! Receiving. A packet takes its frame's chunk along, and the kernel gets a spare one instead, if another socket could
//! send the frame. Otherwise, or without a spare chunk, the frame is copied and its chunk returns at once. So the
//! kernel always has the same number of chunks, however long packets are held.
//!
//! A queue that ends takes its socket out of the program's map, and waits until no processor is in the midst of a
//! reception. Then the kernel writes to its chunks no more, unless the device itself does (zero-copy).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use libc::c_int;
use packet::headers::ETH_HEADER_BYTES;
use packet::{BURST_MAX_PACKETS, CHUNK_BYTES, Packet, PacketBatch, PacketPool};

use super::Attachment;
use super::socket::RxRings;
use crate::port::{RxCounters, RxQueue};
use crate::raw;

/// Consecutive empty polls of the ring before a check of the socket's error.
const POLLS_PER_CHECK: u32 = 32;

/// A receive queue.
pub(super) struct XdpRx {
    rings: RxRings,
    malformed: u64,
    empty_looks: u32,
    /// The device's queue.
    queue: usize,
    /// Keeps the program attached while a receive queue exists.
    attachment: Arc<Attachment>,
}

impl XdpRx {
    pub(super) fn new(rings: RxRings, queue: usize, attachment: Arc<Attachment>) -> XdpRx {
        XdpRx { rings, malformed: 0, empty_looks: 0, queue, attachment }
    }

    /// A device error does not appear in the ring, only on the socket.
    fn check_error(&mut self) -> io::Result<()> {
        self.empty_looks += 1;
        if self.empty_looks < POLLS_PER_CHECK {
            return Ok(());
        }
        self.empty_looks = 0;
        let mut error: c_int = 0;
        // SAFETY: the option is an integer.
        unsafe { raw::get_option(&*self.rings.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)? };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        let Attachment { map, device_writes, .. } = &*self.attachment;
        self.rings.kernel_stopped =
            !device_writes && map.remove(self.queue).is_ok() && raw::wait_for_processors().is_ok();
    }
}

impl RxQueue for XdpRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.rings.socket.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let before = batch.len();
        let rings = &mut self.rings;
        let umem = rings.socket.umem;
        let most = max_packets.min(BURST_MAX_PACKETS) as u32;
        let lends = umem.is_shared();
        // As many chunks as entries: the fill ring always has room.
        let count = rings.received.waiting().min(most).min(rings.fill.room());
        for _ in 0..count {
            let (received, chunk) = rings.next();
            let (Some(chunk), bytes) = (chunk, received.len as usize) else {
                self.malformed += 1;
                continue;
            };
            // SAFETY: the kernel handed over the chunk with this entry.
            let frame = unsafe { umem.frame(received.addr, bytes) };
            let at = received.addr as usize % CHUNK_BYTES;
            let Some(frame) = frame.filter(|f| f.len() >= ETH_HEADER_BYTES) else {
                self.malformed += 1;
                rings.fill(chunk);
                continue;
            };
            if let Some(spare) = lends.then(|| umem.spare()).flatten() {
                // SAFETY: the chunk came with this entry.
                batch.push(Packet::from_chunk(unsafe { umem.lend(chunk) }, at..at + bytes));
                rings.fill(spare);
            } else {
                let mut p = pool.alloc(frame.len());
                p.set_frame(frame);
                batch.push(p);
                rings.fill(chunk);
            }
        }
        let RxRings { received, fill, socket, .. } = rings;
        if count > 0 {
            self.empty_looks = 0;
            received.release();
            fill.publish();
        }
        if fill.needs_wakeup() {
            socket.kick_rx();
        }
        if count == 0 && most > 0 {
            self.check_error()?;
        }
        Ok(batch.len() - before)
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            kernel_drops: self.rings.socket.lost(),
            malformed: self.malformed,
            ..RxCounters::default()
        }
    }
}
